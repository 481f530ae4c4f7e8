// A driver for tests: what libcuda.so.1 answers is in the environment.
#include <cstdlib>

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

}  // namespace

extern "C" int cuInit(unsigned int) {
  return number("FAKE_CUDA_STATUS");
}

extern "C" int cuDeviceGetCount(int* count) {
  *count = number("FAKE_CUDA_DEVICES");
  return 0;
}
