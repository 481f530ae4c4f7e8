#include "exec/bind_arguments.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/error.hpp"

namespace lowtide::exec {
namespace {

using c10::IValue;
using c10::TypeKind;
using Kind = BoundArgument::Kind;

/// The type without its Optional.
c10::TypePtr plain_type(const c10::Argument& formal) {
  c10::TypePtr type = formal.type();
  while (type->kind() == TypeKind::OptionalType) type = type->containedType(0);
  return type;
}

bool is_list_of(const c10::TypePtr& type, TypeKind element) {
  return type->kind() == TypeKind::ListType && type->containedType(0)->kind() == element;
}

BoundArgument constant(IValue value) {
  BoundArgument bound;
  bound.constant = std::move(value);
  return bound;
}

/// Visits the exported forms; each makes the bound form for the formal type.
class Binder {
 public:
  Binder(const c10::Argument& formal, c10::Device device)
      : formal_(formal), type_(plain_type(formal)), device_(device) {}

  BoundArgument operator()(const graph::None&) const { return constant({}); }

  BoundArgument operator()(const graph::Ref& ref) const {
    BoundArgument bound;
    if (type_->kind() == TypeKind::ListType) {  // one value where a list is wanted
      bound.kind = is_list_of(type_, TypeKind::TensorType) ? Kind::tensor_list : Kind::int_list;
      bound.items.push_back({.value = ref.value});
      return bound;
    }
    bound.kind = Kind::value;
    bound.value = ref.value;
    if (type_->kind() == TypeKind::TensorType) bound.convert = BoundArgument::Convert::number_to_tensor;
    if (type_->kind() == TypeKind::FloatType) bound.convert = BoundArgument::Convert::to_double;
    return bound;
  }

  BoundArgument operator()(const graph::TensorList& list) const {
    BoundArgument bound;
    bound.kind = is_list_of(type_, TypeKind::TensorType) ? Kind::tensor_list : Kind::optional_tensor_list;
    for (const auto& item : list.values) bound.items.push_back({.value = item.value_or(graph::kNoValue)});
    return bound;
  }

  BoundArgument operator()(std::int64_t v) const {
    switch (type_->kind()) {
      case TypeKind::TensorType:
        return constant(number_tensor(v));
      case TypeKind::FloatType:
        return constant(static_cast<double>(v));
      case TypeKind::BoolType:
        return constant(v != 0);
      case TypeKind::ListType: {
        const auto n = static_cast<std::size_t>(formal_.N().value_or(1));
        if (type_->containedType(0)->kind() == TypeKind::FloatType)
          return constant(std::vector<double>(n, static_cast<double>(v)));
        return constant(std::vector<std::int64_t>(n, v));
      }
      default:
        return constant(v);
    }
  }

  BoundArgument operator()(double v) const {
    if (type_->kind() == TypeKind::TensorType) return constant(number_tensor(v));
    if (type_->kind() == TypeKind::ListType)
      return constant(std::vector<double>(static_cast<std::size_t>(formal_.N().value_or(1)), v));
    return constant(v);
  }

  BoundArgument operator()(bool v) const {
    if (type_->kind() == TypeKind::TensorType) return constant(number_tensor(v));
    return constant(v);
  }

  BoundArgument operator()(const std::string& v) const { return constant(v); }
  BoundArgument operator()(const std::complex<double>& v) const {
    const c10::complex<double> z(v.real(), v.imag());
    if (type_->kind() == TypeKind::TensorType) return constant(number_tensor(IValue(z)));
    return constant(IValue(z));
  }

  BoundArgument operator()(const std::vector<std::int64_t>& v) const {
    if (is_list_of(type_, TypeKind::FloatType)) return constant(std::vector<double>(v.begin(), v.end()));
    if (v.empty() && is_list_of(type_, TypeKind::TensorType)) return constant(c10::List<at::Tensor>());
    return constant(v);
  }
  BoundArgument operator()(const std::vector<double>& v) const { return constant(v); }
  BoundArgument operator()(const std::vector<bool>& v) const {
    c10::List<bool> list;
    for (const bool item : v) list.push_back(item);
    return constant(IValue(list));
  }
  BoundArgument operator()(const std::vector<std::string>& v) const { return constant(IValue(v)); }

  template <class T>
  BoundArgument operator()(const graph::MixedList<T>& list) const {
    BoundArgument bound;
    bound.kind = std::is_same_v<T, double> ? Kind::double_list
                 : std::is_same_v<T, bool> ? Kind::bool_list
                                           : Kind::int_list;
    for (const auto& item : list.items) {
      if (const T* number = std::get_if<T>(&item)) {
        bound.items.push_back(
            {.number = static_cast<double>(*number), .integer = static_cast<std::int64_t>(*number)});
      } else {
        bound.items.push_back({.value = std::get<graph::ValueId>(item)});
      }
    }
    return bound;
  }

  BoundArgument operator()(const graph::ScalarTypeArg& v) const { return constant(to_scalar_type(v.dtype)); }
  BoundArgument operator()(const graph::DeviceArg&) const { return constant(device_); }
  BoundArgument operator()(const graph::LayoutArg& v) const { return constant(layout_from_schema(v.code)); }
  BoundArgument operator()(const graph::MemoryFormatArg& v) const {
    return constant(memory_format_from_schema(v.code));
  }

  BoundArgument operator()(const graph::GraphArg&) const { return refuse("a subgraph"); }
  BoundArgument operator()(const graph::OperatorArg&) const { return refuse("an operator"); }
  BoundArgument operator()(const graph::CustomObjectArg&) const { return refuse("a custom object"); }

 private:
  BoundArgument refuse(const char* what) const {
    throw ArchiveError("argument '" + formal_.name() + "' is " + what +
                       ", which operators of the dispatcher do not take");
  }

  const c10::Argument& formal_;
  c10::TypePtr type_;
  c10::Device device_;
};

}  // namespace

at::Tensor number_tensor(const IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

BoundArgument bind_argument(const c10::Argument& formal, const graph::Argument* actual, c10::Device device) {
  if (actual != nullptr) return std::visit(Binder(formal, device), actual->value);
  if (!formal.default_value())
    throw ArchiveError("argument '" + formal.name() + "' is missing and has no default");
  return constant(*formal.default_value());
}

BoundArgument bind_symbolic_argument(const graph::Argument& actual) {
  if (const auto* ref = std::get_if<graph::Ref>(&actual.value)) {
    BoundArgument bound;
    bound.kind = Kind::value;
    bound.value = ref->value;
    return bound;
  }
  if (const auto* i = std::get_if<std::int64_t>(&actual.value)) return constant(*i);
  if (const auto* d = std::get_if<double>(&actual.value)) return constant(*d);
  if (const auto* b = std::get_if<bool>(&actual.value)) return constant(*b);
  if (const auto* s = std::get_if<std::string>(&actual.value)) return constant(*s);
  if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&actual.value)) return constant(*ints);
  if (const auto* mixed = std::get_if<graph::MixedList<std::int64_t>>(&actual.value)) {
    BoundArgument bound;
    bound.kind = Kind::int_list;
    for (const auto& item : mixed->items) {
      const auto* number = std::get_if<std::int64_t>(&item);
      bound.items.push_back(number ? BoundArgument::Item{.integer = *number}
                                   : BoundArgument::Item{.value = std::get<graph::ValueId>(item)});
    }
    return bound;
  }
  throw ArchiveError("argument '" + actual.name + "' of a symbolic operation is neither number nor value");
}

}  // namespace lowtide::exec
