// The layouts, sizes and element types that copies are checked with, and tensors of them on host and device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/conformance/device_under_test.hpp"

namespace lowtide::conformance {

/// How the elements of a tensor lie in its memory.
struct Layout {
  const char* name;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;

  std::string text() const { return name; }
  /// Elements of memory the layout needs, and a few behind it that a copy must leave alone.
  std::int64_t span() const;
  at::Tensor of(const at::Tensor& memory) const { return memory.as_strided(sizes, strides, offset); }
};

/// Odd and even layouts of the same sizes.
const std::vector<Layout>& layouts();
/// The same sizes with stride 0 somewhere: no layouts to copy to.
const std::vector<Layout>& expanded_layouts();
/// Contiguous: no dimension, no element, one, odd numbers.
const std::vector<Layout>& shapes();

/// Every element type of a weight file or an archive.
const std::vector<at::ScalarType>& element_types();

/// Host memory of any bits (of 0 and 1 for bool); equal seeds give equal memory.
at::Tensor any_bits(std::int64_t elements, at::ScalarType dtype, std::uint64_t seed);

/// Which way a copy goes.
struct Route {
  const char* name;
  bool from_device;
  bool to_device;
};
inline constexpr Route kRoutes[] = {
    {"host to device", false, true}, {"device to host", true, false}, {"device to device", true, true}};

/// What arrived: the memory of the target after the copy, on the host, and what it should be.
struct Arrival {
  at::Tensor memory;
  at::Tensor wanted;
};

/// Copies memory of any bits, laid out as `source`, over other memory laid out as `target`. What is wanted is
/// what the same copy does on the host.
Arrival send(DeviceUnderTest& device, const Route& route, const Layout& source, const Layout& target,
             at::ScalarType dtype);

}  // namespace lowtide::conformance
