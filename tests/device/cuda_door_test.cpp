// The GPU's library as the program loads it. On machines without a GPU: it loads, says why it cannot open,
// and does not crash.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>

#include "device/cuda/cuda_entry.hpp"
#include "device/cuda_driver.hpp"
#include "device/device.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;

namespace {

decltype(&lowtide_cuda_open) door() {
  static void* const library = ::dlopen(LOWTIDE_CUDA_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE_MESSAGE(library != nullptr, ::dlerror());
  return reinterpret_cast<decltype(&lowtide_cuda_open)>(::dlsym(library, "lowtide_cuda_open"));
}

}  // namespace

TEST_CASE("the driver has devices, or says in one line why not") {
  const device::CudaDriver& driver = device::cuda_driver();
  CHECK((driver.devices > 0) == driver.problem.empty());
  CHECK(driver.problem.find('\n') == std::string::npos);
  CHECK(device::cuda_available() == (driver.devices > 0));
}

TEST_CASE("the CUDA library gives a device or one line of text, whatever the buffer") {
  REQUIRE((door() != nullptr));
  std::array<char, 512> text{};
  const device::DeviceExtras* extras = door()(0, text.data(), text.size());
  CHECK((extras == nullptr) == (text[0] != '\0'));
  CHECK(std::strchr(text.data(), '\n') == nullptr);
  CHECK((extras != nullptr) == (device::cuda_driver().devices > 0));

  std::array<char, 8> small;
  small.fill('x');
  CHECK(door()(100, small.data(), small.size()) == nullptr);
  CHECK(std::strlen(small.data()) == 7);
  CHECK(door()(100, nullptr, 0) == nullptr);
  CHECK(door()(-1, nullptr, 0) == nullptr);
}

TEST_CASE("a device that is not there is an error that names the reason") {
  const int beyond = device::cuda_driver().devices;
  const device::DeviceSpec spec{.kind = device::DeviceKind::cuda, .index = beyond, .card_json = {}};
  CHECK_THROWS_WITH_AS(device::Device::open(spec), doctest::Contains("NVIDIA driver"), DeviceError);
}
