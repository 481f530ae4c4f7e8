#include "device/conformance/copy_cases.hpp"

#include <ATen/ops/empty.h>

namespace lowtide::conformance {

std::int64_t Layout::span() const {
  constexpr std::int64_t kBehind = 9;
  std::int64_t last = offset;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return offset + kBehind;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1 + kBehind;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {"contiguous", {2, 3, 4, 5}, {60, 20, 5, 1}},
      {"contiguous, with an offset", {2, 3, 4, 5}, {60, 20, 5, 1}, 7},
      {"transposed", {2, 3, 4, 5}, {1, 2, 6, 24}},
      {"last two dimensions swapped, with an offset", {2, 3, 4, 5}, {60, 20, 1, 4}, 3},
      {"channels last", {2, 3, 4, 5}, {60, 1, 15, 3}},
      {"rows with gaps, with an offset", {2, 3, 4, 5}, {105, 32, 8, 1}, 5},
      {"every third element", {2, 3, 4, 5}, {180, 60, 15, 3}},
  };
  return all;
}

const std::vector<Layout>& expanded_layouts() {
  static const std::vector<Layout> all{
      {"one row for all", {2, 3, 4, 5}, {0, 0, 0, 1}, 2},
      {"expanded in the middle", {2, 3, 4, 5}, {20, 0, 5, 1}},
      {"one element for all", {2, 3, 4, 5}, {0, 0, 0, 0}, 1},
  };
  return all;
}

const std::vector<Layout>& shapes() {
  static const std::vector<Layout> all{
      {"no dimensions", {}, {}, 4},
      {"no elements", {0}, {1}},
      {"no elements in the middle", {3, 0, 2}, {2, 2, 1}},
      {"one element", {1}, {1}},
      {"seven elements", {7}, {1}, 1},
      {"1023 elements", {1023}, {1}},
      {"1025 elements", {1025}, {1}},
      {"13 x 17", {13, 17}, {17, 1}},
      {"10,007 elements", {10007}, {1}},
  };
  return all;
}

const std::vector<at::ScalarType>& element_types() {
  using at::ScalarType;
  static const std::vector<ScalarType> all{
      ScalarType::Byte,
      ScalarType::Char,
      ScalarType::Short,
      ScalarType::Int,
      ScalarType::Long,
      ScalarType::UInt16,
      ScalarType::UInt32,
      ScalarType::UInt64,
      ScalarType::Bool,
      ScalarType::Half,
      ScalarType::BFloat16,
      ScalarType::Float,
      ScalarType::Double,
      ScalarType::ComplexHalf,
      ScalarType::ComplexFloat,
      ScalarType::ComplexDouble,
      ScalarType::Float8_e4m3fn,
      ScalarType::Float8_e5m2,
      ScalarType::Float8_e4m3fnuz,
      ScalarType::Float8_e5m2fnuz,
      ScalarType::Float8_e8m0fnu,
  };
  return all;
}

at::Tensor any_bits(std::int64_t elements, at::ScalarType dtype, std::uint64_t seed) {
  at::Tensor memory = at::empty({elements}, at::TensorOptions().dtype(dtype));
  auto* bytes = static_cast<unsigned char*>(memory.mutable_data_ptr());
  std::uint64_t state = seed * 2 + 1;
  for (std::size_t i = 0; i < memory.nbytes(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX generator
    bytes[i] = static_cast<unsigned char>(state >> 56);
    if (dtype == at::kBool) bytes[i] &= 1;
  }
  return memory;
}

Arrival send(DeviceUnderTest& device, const Route& route, const Layout& source, const Layout& target,
             at::ScalarType dtype) {
  const at::Tensor source_memory = any_bits(source.span(), dtype, 1);
  const at::Tensor before = any_bits(target.span(), dtype, 2);
  Arrival arrival{.memory = {}, .wanted = before.clone()};
  target.of(arrival.wanted).copy_(source.of(source_memory));

  const at::Tensor from = route.from_device ? device.to_device(source_memory) : source_memory;
  const at::Tensor to = route.to_device ? device.to_device(before) : before;
  device.copy(target.of(to), source.of(from), /*non_blocking=*/false);
  arrival.memory = route.to_device ? device.to_host(to) : to;
  return arrival;
}

}  // namespace lowtide::conformance
