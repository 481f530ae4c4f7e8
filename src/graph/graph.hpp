// The exported program as plain data: what will be computed, on what, in which order. No LibTorch here.
//
// Ownership: a Program owns one root Graph; a Graph owns its values and nodes; ids are indices into them and
// are only meaningful together with their graph. Immutable after loading, so safe to share between threads.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "graph/dtype.hpp"
#include "graph/guard.hpp"
#include "graph/sym_expr.hpp"

namespace lowtide::graph {

using ValueId = std::uint32_t;
using NodeId = std::uint32_t;
inline constexpr ValueId kNoValue = UINT32_MAX;

/// What torch.export recorded about a tensor. Sizes and strides count elements.
struct TensorMeta {
  DType dtype = DType::unknown;
  std::vector<SymExpr> sizes;
  std::vector<SymExpr> strides;
  SymExpr storage_offset;
  std::string device;  // where it was exported; mapped to the run device
};

/// The same with all numbers known.
struct ConcreteMeta {
  DType dtype = DType::unknown;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t storage_offset = 0;
};

enum class ValueKind : std::uint8_t { tensor, sym_int, sym_float, sym_bool, custom_object };

struct Value {
  std::string name;
  ValueKind kind = ValueKind::tensor;
  TensorMeta meta;  // tensors
  SymExpr expr;     // sym_int: what it stands for in size expressions
};

// --- arguments of a node
// ---------------------------------------------------------------------------------------

struct None {
  bool operator==(const None&) const = default;
};
/// One value: a tensor, or a symbolic int, float or bool.
struct Ref {
  ValueId value = kNoValue;
};
/// Tensor[] or Tensor?[]; nothing where None was passed.
struct TensorList {
  std::vector<std::optional<ValueId>> values;
};
/// A list of which each item is a number or a symbolic value: SymInt[], SymFloat[], SymBool[].
template <class T>
struct MixedList {
  std::vector<std::variant<T, ValueId>> items;
};
struct ScalarTypeArg {
  DType dtype;
};
struct DeviceArg {
  std::string type;
  std::optional<int> index;
};
/// Codes of the export schema (Layout, MemoryFormat).
struct LayoutArg {
  int code;
};
struct MemoryFormatArg {
  int code;
};
struct Graph;
/// The body of a higher-order operator.
struct GraphArg {
  std::string name;
  std::shared_ptr<const Graph> graph;
};
/// An operator passed by name.
struct OperatorArg {
  std::string name;
};
struct CustomObjectArg {
  std::string name;
};

using ArgumentValue =
    std::variant<None, Ref, TensorList, std::int64_t, double, bool, std::string, std::complex<double>,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>,
                 MixedList<std::int64_t>, MixedList<double>, MixedList<bool>, ScalarTypeArg, DeviceArg,
                 LayoutArg, MemoryFormatArg, GraphArg, OperatorArg, CustomObjectArg>;

/// Appends the values that an argument reads, lists in their order. Nested graphs have their own values and
/// count as none.
void append_read_values(const ArgumentValue& argument, std::vector<ValueId>& values);

struct Argument {
  std::string name;  // as in the operator's schema; empty for the operands of higher-order operators
  ArgumentValue value;
};

/// One result of a node: a single value, a list of tensors (split, unbind), or None (an unused slot).
struct OutputNone {};
using NodeOutput = std::variant<OutputNone, ValueId, std::vector<ValueId>>;

// --- what the operator's schema says; filled when operators are resolved (exec), read by aliasing and
// lifetimes --

/// Per produced value, in the order of Node::produced().
struct AliasTraits {
  /// Arguments' values that the result shares memory with for certain (views, in-place operators).
  std::vector<ValueId> aliases;
  /// Arguments' values that the result *may* share memory with, decided by strides and dtypes where known
  /// (reshape, contiguous, to, flatten).
  std::vector<ValueId> may_alias;
};

struct NodeTraits {
  std::vector<AliasTraits> outputs;
  /// Values written in place.
  std::vector<ValueId> writes;
};

struct Node {
  std::string target;  // "torch.ops.aten.linear.default", "_operator.mul", "torch.sym_min"
  std::string name;
  std::vector<Argument> arguments;
  std::vector<NodeOutput> outputs;
  std::string source;  // innermost source line of the model, "file.py:12 in forward", empty if not recorded
  NodeTraits traits;

  /// "aten::linear" for torch.ops targets ("aten.linear.default" -> "aten::linear"), else the target.
  std::string op_name() const;
  /// Overload without the "default": "" or "Tensor"; empty for non-operators.
  std::string overload() const;
  /// Is this a torch.ops operator (as against _operator.*, torch.sym_*, math.*)?
  bool is_operator() const;
  /// All values it reads (each occurrence), in argument order.
  std::vector<ValueId> read_values() const;
  /// All values it produces, lists flattened, in output order.
  std::vector<ValueId> produced() const;
  const Argument* find_argument(std::string_view name) const;
};

// --- the signature
// ---------------------------------------------------------------------------------------------

enum class InputKind : std::uint8_t {
  user,
  parameter,
  buffer,
  tensor_constant,
  constant,
  custom_object,
  token
};

/// A value fixed at export: int, float, bool, str or None inputs.
using ConstantInput = std::variant<None, std::int64_t, double, bool, std::string>;

struct GraphInput {
  InputKind kind = InputKind::user;
  ValueId value = kNoValue;  // kNoValue for constant inputs
  std::string target;  // name of parameter, buffer, constant in the weight table; name of a constant input
  ConstantInput constant;  // InputKind::constant: what the caller must pass
};

enum class OutputKind : std::uint8_t {
  user,
  buffer_mutation,
  user_input_mutation,
  parameter_mutation,
  loss,
  token
};

/// Constant results: None, 3.5, True...
struct GraphOutput {
  OutputKind kind = OutputKind::user;
  ArgumentValue value;  // Ref, None, int64, double, bool, string
  std::string target;   // buffer or input that is mutated
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;           // in execution order
  std::vector<GraphInput> inputs;    // in signature order; user inputs keep the caller's flattened order
  std::vector<GraphOutput> outputs;  // in signature order

  ValueId add_value(Value value);  // throws ArchiveError when the name exists
  /// Throws ArchiveError when there is no such value.
  ValueId value_named(std::string_view name) const;
  std::optional<ValueId> find_value(std::string_view name) const;

 private:
  std::unordered_map<std::string, ValueId> by_name_;
};

/// A recorded range of a symbol; nothing where it is unbounded.
struct SymbolRange {
  std::optional<std::int64_t> min;
  std::optional<std::int64_t> max;
};

/// One exported program: graph, symbols and what the caller sees of it.
struct Program {
  std::string name;  // "model" unless several programs were saved
  Graph graph;
  SymbolTable symbols;
  std::unordered_map<SymbolId, SymbolRange> ranges;
  /// What the symbols of the user inputs were when the program was exported, where that is recorded.
  std::unordered_map<SymbolId, std::int64_t> hints;
  std::vector<Guard> guards;  // conditions on the inputs under which the export is valid
  /// Names of the flattened user inputs (forward's argument names with paths: "ids", "xs[0]", "d['idx']"), in
  /// order, constant inputs included.
  std::vector<std::string> user_input_names;
  /// Names of the flattened user outputs: keys of the output spec where it has any, else 4-digit positions.
  std::vector<std::string> user_output_names;
};

}  // namespace lowtide::graph
