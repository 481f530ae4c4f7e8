// LibTorch's settings while a job runs: the same bits every time, at every cap.
#pragma once

#include <ATen/Context.h>

namespace lowtide::device::cuda {

/// Sets them when made and puts back what was there when it ends, on the same thread. All but the TF32 guard
/// are process-wide in LibTorch, so operators that other threads of a host program run meanwhile are
/// deterministic as well. Not for several jobs at once.
///
/// Operators without a deterministic form still run, and LibTorch warns and names them: a job with a warning
/// is worth more than none.
class JobSettings {
 public:
  JobSettings();
  ~JobSettings();
  JobSettings(const JobSettings&) = delete;
  JobSettings& operator=(const JobSettings&) = delete;

 private:
  at::NoTF32Guard no_tf32_;  // this thread's cuBLAS calls
  bool deterministic_;
  bool warn_only_;
  bool fill_uninitialized_;
  bool benchmark_cudnn_;
  at::Float32MatmulPrecision matmul_;
  at::Float32Precision cuda_matmul_;
  at::Float32Precision cpu_matmul_;
  at::Float32Precision cuda_conv_;
  at::Float32Precision cuda_rnn_;
};

}  // namespace lowtide::device::cuda
