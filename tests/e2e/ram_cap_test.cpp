// --ram-cap as a user meets it: refusals, the smallest cap, the report.
#include <doctest/doctest.h>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

TEST_CASE(
    "a RAM cap that is too small exits with 3 and names the smallest, which works; one byte less does not") {
  const Archive archive = model("minilm_l6");
  for (const char* device : {"cpu", "sim"}) {
    CAPTURE(device);
    const Workplace place;
    const auto run = [&](const std::string& cap) {
      return place.run(archive.path, {archive.inputs[0]}, {"--device", device, "--ram-cap", cap});
    };
    const Reported refused = run("1MiB");
    check_refused(refused.outcome, 3,
                  {"a RAM cap of 1048576 bytes is too small: the smallest that works is"});
    CHECK(refused.report.at("ram_cap_bytes") == 1048576);
    const std::uint64_t smallest = refused.plan().at("min_ram_cap_bytes");
    CHECK(refused.outcome.last_error().find(std::to_string(smallest)) != std::string::npos);
    CHECK(run(std::to_string(smallest - 1)).outcome.code == 3);
    const Reported works = run(std::to_string(smallest));
    CHECK(works.outcome.code == 0);
    CHECK(works.plan().at("min_ram_cap_bytes") == smallest);
    // On the card everything stays after the first job.
    CHECK((works.plan().at("disk_bytes_per_pass") > 0) == (std::string(device) == "cpu"));
    const std::uint64_t weights = works.measured().at("weight_bytes");
    CHECK(works.measured().at("disk_read_bytes") > 0);
    CHECK(works.measured().at("disk_read_bytes") <= weights);
    CHECK(difference(place.out() / archive.inputs[0].filename().string(), archive.outputs[0], 1e-3) == "");
  }
}

TEST_CASE("without a RAM cap nobody counts what is read; with a large one all is read once") {
  const Archive archive = model("ocr_cls");
  const Workplace place;
  const Reported without = place.run(archive.path, {archive.inputs[0]}, {"--device", "sim"});
  CHECK(without.measured().at("disk_read_bytes").is_null());
  CHECK(without.plan().at("disk_bytes_per_pass").is_null());
  const Reported with =
      place.run(archive.path, {archive.inputs[0]}, {"--device", "sim", "--ram-cap", "2GiB"});
  CHECK(with.outcome.code == 0);
  CHECK(with.plan().at("disk_bytes_per_pass") == 0);
  CHECK(with.measured().at("disk_read_bytes") > 0);
  CHECK(with.measured().at("modelled_s") == without.measured().at("modelled_s"));
}

TEST_CASE("plan shows how a RAM cap is divided, and a size that is none is refused") {
  const Archive archive = model("minilm_l6");
  const Workplace place;
  const std::string path = archive.path.string();
  for (const char* device : {"cpu", "sim"}) {
    const Outcome page = place.lowtide({"plan", path, "--device", device, "--ram-cap", "110MiB"});
    CHECK(page.code == 0);
    for (const char* part : {"RAM cap 110.0 MiB", "+ ring", "smallest RAM cap", "from disk"})
      CHECK(page.out.find(part) != std::string::npos);
  }
  check_refused(place.lowtide({"plan", path, "--ram-cap", "much"}), 2, {"much"});
  check_refused(place.lowtide({"plan", path, "--ram-cap", "3MiB"}), 3, {"the smallest that works is"});
}
