#include "tensor_file/tensor_data.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/checked_math.hpp"
#include "base_torch/dtype_convert.hpp"
#include "lowtide/bytes.hpp"

namespace lowtide::tensor_file {
namespace {

template <class T>
T read_value(ByteSource& source) {
  T value;
  source.read(&value, sizeof(value));
  return value;
}

/// u64 values beyond 63 bit are no symbolic integers: nothing.
std::optional<std::int64_t> read_integer(ByteSource& source, c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return read_value<std::uint8_t>(source) != 0;
    case c10::ScalarType::Byte:
      return read_value<std::uint8_t>(source);
    case c10::ScalarType::Char:
      return read_value<std::int8_t>(source);
    case c10::ScalarType::Short:
      return read_value<std::int16_t>(source);
    case c10::ScalarType::UInt16:
      return read_value<std::uint16_t>(source);
    case c10::ScalarType::Int:
      return read_value<std::int32_t>(source);
    case c10::ScalarType::UInt32:
      return read_value<std::uint32_t>(source);
    case c10::ScalarType::Long:
      return read_value<std::int64_t>(source);
    case c10::ScalarType::UInt64: {
      const auto value = read_value<std::uint64_t>(source);
      if (value > INT64_MAX) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::uint64_t> dense_bytes(std::span<const std::int64_t> sizes, c10::ScalarType type) {
  constexpr std::size_t kMostDimensions = 64;  // LibTorch's own limit for strided loops
  if (sizes.size() > kMostDimensions) return std::nullopt;
  std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(type));
  bool empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
      continue;
    }
    const auto product = checked_mul(bytes, size);
    if (!product) return std::nullopt;
    bytes = *product;
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

at::Tensor allocate(const InputFile& file, std::span<const std::int64_t> sizes, c10::ScalarType type) {
  const auto refuse = [&] {
    file.fail("not enough memory for a tensor of " + format_bytes(dense_bytes(sizes, type).value_or(0)),
              "use a smaller input or a machine with more memory");
  };
  try {
    return at::empty(c10::IntArrayRef(sizes.data(), sizes.size()), at::TensorOptions(type).device(at::kCPU));
  } catch (const c10::Error&) {
    refuse();
  } catch (const std::bad_alloc&) {
    refuse();
  }
  __builtin_unreachable();
}

void fill(at::Tensor& tensor, ByteSource& source) {
  const std::size_t bytes = tensor.nbytes();
  if (bytes == 0) return;
  auto* data = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  source.read(data, bytes);
  if (tensor.scalar_type() != c10::ScalarType::Bool) return;
  // A bool other than 0 and 1 is undefined behaviour in every kernel that reads it.
  for (std::size_t i = 0; i < bytes; ++i) data[i] = data[i] != 0;
}

at::Tensor read_dense(ByteSource& source, std::span<const std::int64_t> sizes, c10::ScalarType type) {
  // Before memory is taken: the claim must be backed by bytes.
  const auto bytes = dense_bytes(sizes, type);
  if (!bytes || *bytes > source.remaining()) {
    source.file().fail_damaged("it claims a tensor larger than the data it has");
  }
  at::Tensor tensor = allocate(source.file(), sizes, type);
  fill(tensor, source);
  return tensor;
}

bool has_integer(std::span<const std::int64_t> sizes, c10::ScalarType type) {
  return sizes.empty() && c10::isIntegralType(type, /*includeBool=*/true);
}

TensorEntry make_entry(std::string name, std::span<const std::int64_t> sizes, c10::ScalarType type,
                       ByteSource& source) {
  TensorEntry entry{std::move(name), from_scalar_type(type), {sizes.begin(), sizes.end()}, std::nullopt};
  if (has_integer(sizes, type)) entry.integer = read_integer(source, type);
  return entry;
}

std::string position_name(std::size_t position) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "%04zu", position);
  return text.data();
}

}  // namespace lowtide::tensor_file
