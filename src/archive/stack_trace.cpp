#include "archive/stack_trace.hpp"

namespace lowtide::archive {
namespace {

/// `  File "path/model.py", line 12, in forward` -> `model.py:12 in forward`; empty when it is no such line.
std::string describe_frame(std::string_view line) {
  static constexpr std::string_view kFile = "File \"", kLine = "\", line ", kFunction = ", in ";
  const std::size_t file = line.find(kFile);
  if (file == std::string_view::npos) return {};
  line.remove_prefix(file + kFile.size());
  const std::size_t number = line.find(kLine);
  if (number == std::string_view::npos || line.starts_with('<')) return {};  // <eval_with_key>: no file
  std::string_view path = line.substr(0, number);
  path.remove_prefix(path.find_last_of("/\\") + 1);
  line.remove_prefix(number + kLine.size());
  const std::size_t function = line.find(kFunction);
  std::string text = std::string(path) + ":" + std::string(line.substr(0, function));
  if (function != std::string_view::npos)
    text += " in " + std::string(line.substr(function + kFunction.size()));
  return text;
}

}  // namespace

std::string innermost_frame(std::string_view trace) {
  while (!trace.empty()) {
    const std::size_t newline = trace.rfind('\n');
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if (std::string frame = describe_frame(trace.substr(start)); !frame.empty()) return frame;
    trace = trace.substr(0, newline == std::string_view::npos ? 0 : newline);
  }
  return {};
}

}  // namespace lowtide::archive
