// What a job changes in LibTorch's settings is put back. Settings exist without a GPU.
#include <ATen/Context.h>
#include <doctest/doctest.h>

#include "device/cuda/job_settings.hpp"

using at::Float32Backend;
using at::Float32MatmulPrecision;
using at::Float32Op;
using at::Float32Precision;
using lowtide::device::cuda::JobSettings;

namespace {

void check_job_has_exact_settings() {
  const at::Context& context = at::globalContext();
  CHECK(context.deterministicAlgorithms());
  CHECK(context.deterministicAlgorithmsWarnOnly());
  CHECK_FALSE(context.deterministicFillUninitializedMemory());
  CHECK_FALSE(context.benchmarkCuDNN());
  CHECK(context.float32MatmulPrecision() == Float32MatmulPrecision::HIGHEST);
  CHECK_FALSE(context.allowTF32CuBLAS());
  for (const Float32Op op : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN})
    CHECK(context.float32Precision(Float32Backend::CUDA, op) == Float32Precision::IEEE);
  CHECK(at::NoTF32Guard::should_disable_tf32());
}

}  // namespace

TEST_CASE("a job runs with exact settings, and LibTorch's defaults come back") {
  const at::Context& context = at::globalContext();
  const bool fill = context.deterministicFillUninitializedMemory();
  const auto conv = context.float32Precision(Float32Backend::CUDA, Float32Op::CONV);
  const auto matmul = context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL);
  {
    const JobSettings settings;
    check_job_has_exact_settings();
  }
  CHECK_FALSE(context.deterministicAlgorithms());
  CHECK(context.deterministicFillUninitializedMemory() == fill);
  CHECK(context.float32Precision(Float32Backend::CUDA, Float32Op::CONV) == conv);
  CHECK(context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == matmul);
  CHECK_FALSE(at::NoTF32Guard::should_disable_tf32());
}

TEST_CASE("a host program's own settings come back") {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setBenchmarkCuDNN(true);
  context.setFloat32MatmulPrecision("medium");
  {
    const JobSettings settings;
    check_job_has_exact_settings();
  }
  CHECK(context.deterministicAlgorithms());
  CHECK_FALSE(context.deterministicAlgorithmsWarnOnly());
  CHECK(context.benchmarkCuDNN());
  CHECK(context.float32MatmulPrecision() == Float32MatmulPrecision::MEDIUM);
  CHECK(context.allowTF32CuBLAS());
  context.setDeterministicAlgorithms(false, false);
  context.setBenchmarkCuDNN(false);
  context.setFloat32MatmulPrecision("highest");
}

TEST_CASE("settings made by LibTorch's new interface alone, which the old one cannot tell, come back") {
  at::Context& context = at::globalContext();
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, Float32Precision::TF32);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, Float32Precision::IEEE);
  {
    const JobSettings settings;
    check_job_has_exact_settings();
  }
  CHECK(context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == Float32Precision::TF32);
  CHECK(context.float32Precision(Float32Backend::CUDA, Float32Op::CONV) == Float32Precision::IEEE);
  context.setFloat32MatmulPrecision("highest");
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, Float32Precision::TF32);
}
