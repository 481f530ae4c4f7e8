// Parse, run, one catch, documented exit code.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "lowtide/commands.hpp"
#include "lowtide/error.hpp"
#include "lowtide/log.hpp"

namespace lowtide::app {
namespace {

enum ExitCode {
  ok = 0,
  inputs_failed = 1,
  usage = 2,
  infeasible = 3,
  bad_archive = 4,
  device = 5,
  interrupted = 130
};

/// --verbose: also what is only of interest to those who look for something.
void log_everything() {
  set_log_sink(
      [](LogLevel, const std::string& message) { std::fprintf(stderr, "lowtide: %s\n", message.c_str()); });
}

int dispatch(const Command& command) {
  const bool verbose = std::visit(
      [](const auto& c) {
        if constexpr (requires { c.common.verbose; }) return c.common.verbose;
        return false;
      },
      command);
  if (verbose) log_everything();
  struct {
    int operator()(const RunCommand& c) const { return run(c); }
    int operator()(const PlanCommand& c) const { return plan(c); }
    int operator()(const InspectCommand& c) const { return inspect(c); }
    int operator()(const MeasureCommand& c) const { return measure(c); }
    int operator()(const DoctorCommand&) const { return doctor(); }
    int operator()(const PrintAndExit& c) const {
      std::fputs(c.text.c_str(), c.code == 0 ? stdout : stderr);
      return c.code;
    }
  } const visitor;
  return std::visit(visitor, command);
}

/// One line, whatever a library put into its message.
int complain(const std::exception& e, ExitCode code) {
  std::string text = e.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "lowtide: error: %s\n", text.c_str());
  return code;
}

int guarded_main(int argc, char** argv) {
  try {
    return dispatch(parse_command_line(argc, argv));
  } catch (const UsageError& e) {
    return complain(e, ExitCode::usage);
  } catch (const PlanInfeasible& e) {
    return complain(e, ExitCode::infeasible);
  } catch (const ArchiveError& e) {
    return complain(e, ExitCode::bad_archive);
  } catch (const DeviceError& e) {
    return complain(e, ExitCode::device);
  } catch (const Cancelled& e) {
    return complain(e, ExitCode::interrupted);
  } catch (const std::bad_alloc&) {
    std::fputs("lowtide: error: out of host memory: close other programs, or use smaller inputs\n", stderr);
    return ExitCode::inputs_failed;
  } catch (const std::exception& e) {
    return complain(e, ExitCode::inputs_failed);
  }
}

}  // namespace
}  // namespace lowtide::app

int main(int argc, char** argv) {
  return lowtide::app::guarded_main(argc, argv);
}
