#include "device/conformance/tally.hpp"

#include <doctest/doctest.h>

#include <ostream>

namespace lowtide::conformance {
namespace {

class SummaryPrinter final : public doctest::IReporter {
 public:
  explicit SummaryPrinter(const doctest::ContextOptions& options) : out_(*options.cout) {}

  void test_run_end(const doctest::TestRunStats&) override {
    out_ << "[conformance] promises: " << promise_tally().summary() << '\n'
         << "[conformance] faulty devices seen to fail: " << fault_tally().summary() << std::endl;
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  std::ostream& out_;
};

REGISTER_LISTENER("conformance", 1, SummaryPrinter);

}  // namespace

std::string Tally::summary() const {
  std::size_t skipped = 0;
  std::string reasons;
  for (const auto& [reason, count] : skipped_) {
    skipped += count;
    reasons += (reasons.empty() ? "" : "; ") + std::to_string(count) + " " + reason;
  }
  std::string text = std::to_string(passed_) + " passed";
  if (failed_ != 0) text += ", " + std::to_string(failed_) + " failed";
  text += ", " + std::to_string(skipped) + " skipped";
  if (skipped != 0) text += " (" + reasons + ")";
  return text;
}

Tally& promise_tally() {
  static Tally tally;
  return tally;
}

Tally& fault_tally() {
  static Tally tally;
  return tally;
}

}  // namespace lowtide::conformance
