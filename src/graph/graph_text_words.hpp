// What the printer and the parser of the graph text have to agree on.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph::text {

struct InputWord {
  std::string_view word;
  InputKind kind;
};
inline constexpr std::array<InputWord, 7> kInputWords{{{"inputs", InputKind::user},
                                                       {"weights", InputKind::parameter},
                                                       {"buffers", InputKind::buffer},
                                                       {"constants", InputKind::tensor_constant},
                                                       {"fixed", InputKind::constant},
                                                       {"objects", InputKind::custom_object},
                                                       {"tokens", InputKind::token}}};

struct OutputWord {
  std::string_view word;
  OutputKind kind;
};
inline constexpr std::array<OutputWord, 6> kOutputWords{
    {{"outputs", OutputKind::user},
     {"updates buffer", OutputKind::buffer_mutation},
     {"updates input", OutputKind::user_input_mutation},
     {"updates parameter", OutputKind::parameter_mutation},
     {"losses", OutputKind::loss},
     {"results token", OutputKind::token}}};

/// Words that begin a statement or an argument; values of these names are written in backticks.
inline bool is_reserved(std::string_view name) {
  static constexpr std::array<std::string_view, 36> kReserved{
      "program",       "ranges",   "hints",  "guard",   "inputs",  "weights", "buffers", "constants",
      "fixed",         "objects",  "tokens", "outputs", "updates", "losses",  "results", "graph",
      "None",          "true",     "false",  "inf",     "nan",     "dtype",   "device",  "layout",
      "memory_format", "operator", "object", "complex", "floats",  "bools",   "strings", "tensors",
      "tensor",        "strides",  "offset", "sym_int"};
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

/// The strides of a row-major tensor, as expressions.
inline std::vector<SymExpr> contiguous_strides(const std::vector<SymExpr>& sizes) {
  std::vector<SymExpr> strides(sizes.size(), SymExpr(1));
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = SymExpr::product(strides[i], sizes[i]);
  return strides;
}

/// The name of a user output that has no key of its own: its position.
inline std::string position_name(std::size_t position) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "%04zu", position);
  return text.data();
}

}  // namespace lowtide::graph::text
