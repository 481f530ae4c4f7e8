// The one-argument functions that guards may call.
#pragma once

#include <array>
#include <cmath>
#include <string_view>

namespace lowtide::graph {

struct GuardFunction {
  std::string_view name;
  double (*call)(double);
};

inline constexpr std::array<GuardFunction, 14> kGuardFunctions{{
    {"math.sqrt", [](double x) { return std::sqrt(x); }},
    {"torch.sym_sqrt", [](double x) { return std::sqrt(x); }},
    {"math.log2", [](double x) { return std::log2(x); }},
    {"math.log", [](double x) { return std::log(x); }},
    {"math.exp", [](double x) { return std::exp(x); }},
    {"math.sin", [](double x) { return std::sin(x); }},
    {"math.cos", [](double x) { return std::cos(x); }},
    {"math.tan", [](double x) { return std::tan(x); }},
    {"math.asin", [](double x) { return std::asin(x); }},
    {"math.acos", [](double x) { return std::acos(x); }},
    {"math.atan", [](double x) { return std::atan(x); }},
    {"math.sinh", [](double x) { return std::sinh(x); }},
    {"math.cosh", [](double x) { return std::cosh(x); }},
    {"math.tanh", [](double x) { return std::tanh(x); }},
}};

}  // namespace lowtide::graph
