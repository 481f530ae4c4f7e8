// Is there a GPU? Asked of the driver alone: LibTorch's CUDA half costs 350 MB and is not loaded for the
// question.
#pragma once

#include <string>

namespace lowtide::device {

struct CudaDriver {
  int devices = 0;
  std::string problem;  // why there are none: one phrase; empty where there are some
};

/// Asks once per process; what the driver says does not change while it runs. Respects CUDA_VISIBLE_DEVICES.
/// Never throws for want of a driver.
const CudaDriver& cuda_driver();

}  // namespace lowtide::device
