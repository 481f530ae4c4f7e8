// What LibTorch and the device throw, as our own errors.
#pragma once

#include <exception>

namespace lowtide::detail {

/// Throws the exception, with what the device's allocator says as OutOfBudget, what else the device says as
/// DeviceError, and other refusals of PyTorch as OperatorError.
[[noreturn]] void rethrow_as_ours(const std::exception_ptr& error);

}  // namespace lowtide::detail
