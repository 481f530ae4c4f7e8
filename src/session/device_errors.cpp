#include "session/device_errors.hpp"

#include <c10/util/Exception.h>

#include <string>

#include "lowtide/error.hpp"

namespace lowtide::detail {
namespace {

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace

void rethrow_as_ours(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& e) {
    throw OutOfBudget("the device refused memory: " + first_line(e), 0, 0);
  } catch (const c10::AcceleratorError& e) {
    throw DeviceError("the device failed: " + first_line(e));
  } catch (const c10::Error& e) {
    throw OperatorError("PyTorch refused: " + first_line(e));
  }
}

}  // namespace lowtide::detail
