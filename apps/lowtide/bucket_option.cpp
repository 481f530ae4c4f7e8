#include "lowtide/bucket_option.hpp"

#include <charconv>
#include <string_view>

#include "lowtide/error.hpp"
#include "tensor_file/file_error.hpp"

namespace lowtide::app {
namespace {

constexpr std::string_view kPad = ":pad=";

template <class T>
bool read_all(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size() && !text.empty();
}

[[noreturn]] void refuse(const std::string& option, const std::string& reason) {
  throw UsageError("--shape-buckets " + tensor_file::printable(option) + ": " + reason);
}

}  // namespace

/// Names may hold dots, brackets and equals signs, sizes none of them: read from the end.
ShapeBuckets parse_shape_buckets(const std::string& text) {
  constexpr const char* kForm = "write NAME.DIM=1,4,8,16, or NAME.DIM=64,128:pad=0";
  ShapeBuckets buckets;
  std::string_view rest = text;
  if (const std::size_t pad = rest.rfind(kPad); pad != std::string_view::npos) {
    double value = 0;
    if (!read_all(rest.substr(pad + kPad.size()), value)) refuse(text, "pad must be a number");
    buckets.pad = value;
    rest = rest.substr(0, pad);
  }
  const std::size_t equals = rest.rfind('=');
  if (equals == std::string_view::npos) refuse(text, kForm);
  const std::string_view place = rest.substr(0, equals);
  const std::size_t dot = place.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || !read_all(place.substr(dot + 1), buckets.dim))
    refuse(text, kForm);
  buckets.input = place.substr(0, dot);
  const std::string_view sizes = rest.substr(equals + 1);
  for (std::size_t begin = 0; begin <= sizes.size();) {
    const std::size_t end = std::min(sizes.find(',', begin), sizes.size());
    std::int64_t size = 0;
    if (!read_all(sizes.substr(begin, end - begin), size))
      refuse(text, "'" + tensor_file::printable(std::string(sizes.substr(begin, end - begin))) +
                       "' is no size: " + kForm);
    buckets.sizes.push_back(size);
    begin = end + 1;
  }
  return buckets;
}

}  // namespace lowtide::app
