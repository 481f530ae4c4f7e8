#include "device/cuda/job_settings.hpp"

#include <c10/util/Exception.h>

namespace lowtide::device::cuda {
namespace {

using at::Float32Backend;
using at::Float32MatmulPrecision;
using at::Float32Op;
using at::Float32Precision;

/// LibTorch keeps this twice, by an old and a new interface, and refuses to answer the old question where the
/// two differ. They differ when only the new one was used, and then the old value is its default.
Float32MatmulPrecision matmul_precision(const at::Context& context) {
  try {
    return context.float32MatmulPrecision();
  } catch (const c10::Error&) {
    return Float32MatmulPrecision::HIGHEST;
  }
}

const char* name_of(Float32MatmulPrecision precision) {
  switch (precision) {
    case Float32MatmulPrecision::HIGHEST:
      return "highest";
    case Float32MatmulPrecision::HIGH:
      return "high";
    case Float32MatmulPrecision::MEDIUM:
      return "medium";
  }
  return "highest";
}

}  // namespace

JobSettings::JobSettings()
    : deterministic_(at::globalContext().deterministicAlgorithms()),
      warn_only_(at::globalContext().deterministicAlgorithmsWarnOnly()),
      fill_uninitialized_(at::globalContext().deterministicFillUninitializedMemory()),
      benchmark_cudnn_(at::globalContext().benchmarkCuDNN()),
      matmul_(matmul_precision(at::globalContext())),
      cuda_matmul_(at::globalContext().float32Precision(Float32Backend::CUDA, Float32Op::MATMUL)),
      cpu_matmul_(at::globalContext().float32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL)),
      cuda_conv_(at::globalContext().float32Precision(Float32Backend::CUDA, Float32Op::CONV)),
      cuda_rnn_(at::globalContext().float32Precision(Float32Backend::CUDA, Float32Op::RNN)) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  // Would fill every new tensor, for nothing: no operator of a graph reads what it has not written.
  context.setDeterministicFillUninitializedMemory(false);
  // Picks kernels by timing them, so by chance, and by how much memory is free.
  context.setBenchmarkCuDNN(false);
  // First the old interface, which sets the new one too, then the new one: a wider default must not shine
  // through.
  context.setFloat32MatmulPrecision("highest");
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, Float32Precision::IEEE);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, Float32Precision::IEEE);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::RNN, Float32Precision::IEEE);
}

JobSettings::~JobSettings() {
  at::Context& context = at::globalContext();
  context.setFloat32MatmulPrecision(name_of(matmul_));
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, cuda_matmul_);
  context.setFloat32Precision(Float32Backend::MKLDNN, Float32Op::MATMUL, cpu_matmul_);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, cuda_conv_);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::RNN, cuda_rnn_);
  context.setBenchmarkCuDNN(benchmark_cudnn_);
  context.setDeterministicFillUninitializedMemory(fill_uninitialized_);
  context.setDeterministicAlgorithms(deterministic_, warn_only_);
}

}  // namespace lowtide::device::cuda
