#include "device/sim/kernels.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "device/sim/allocators.hpp"
#include "device/sim/copies.hpp"
#include "device/sim/device_errors.hpp"
#include "device/sim/op_traits.hpp"
#include "device/sim/streams.hpp"
#include "device/sim/tensor_alias.hpp"
#include "device/sim/touches.hpp"
#include "graph/op_cost.hpp"

namespace lowtide::device::sim {
namespace {

/// Calls `visit` for every tensor in a value, in lists as well; undefined ones are left out.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  const auto one = [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  };
  if (value.isTensor()) {
    one(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) one(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor) one(*tensor);
    }
  }
}

/// Replaces every tensor in a value, in lists as well.
template <class Map>
void map_tensors(c10::IValue& value, Map map) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = map(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector())
      mapped.push_back(tensor.defined() ? map(tensor) : tensor);
    value = std::move(mapped);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      mapped.push_back(tensor && tensor->defined() ? std::optional(map(*tensor)) : tensor);
    }
    value = std::move(mapped);
  }
}

/// The dispatch state of the CPU's kernel: blind to the CPU's autocast, since the card's operator has been
/// chosen already, and below autograd, which is quicker. But where an argument requires gradients, composite
/// operators look at what autograd knows of their views (matmul does), and on the CPU they would run above
/// it.
class KernelDispatch {
 public:
  explicit KernelDispatch(bool above_autograd) : guard_(keys(above_autograd)) {}

 private:
  static c10::impl::LocalDispatchKeySet keys(bool above_autograd) {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = keys.excluded_ | c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);
    if (!above_autograd) {
      keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    } else if (!c10::InferenceMode::is_enabled()) {
      keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    }
    return keys;
  }

  const c10::impl::ForceDispatchKeyGuard guard_;
  const c10::AutoGradMode no_graph_{false};
};

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

using Shapes = c10::SmallVector<graph::ShapeView, 16>;
using Touches = c10::SmallVector<Touch, 16>;

/// One operator call: arguments down, the CPU's kernel on the card's memory, results up.
class CardCall {
 public:
  CardCall(const OpTraits& traits, const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : traits_(traits), op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()) {}

  void run() {
    lower_arguments();
    sim_card().enter_stream(current_stream());
    {
      const KernelScope kernel;
      const KernelDispatch dispatch(scope_.requires_grad() && is_composite(op_));
      op_.callBoxed(stack_);
    }
    count();
    raise_results();
  }

 private:
  /// As on CUDA, operands are on one device, but for CPU scalars and host indices.
  void lower_arguments() {
    const char* stranger = nullptr;  // name of an argument that must not be on the CPU beside the card's
    bool any_card = false;
    for (std::size_t i = first_; i < stack_.size(); ++i) {
      c10::IValue& value = stack_[i];
      if (value.isDevice()) {
        value = c10::Device(c10::kCPU);
        continue;
      }
      const std::size_t argument = i - first_;
      map_tensors(value, [&](const at::Tensor& tensor) {
        const bool written = traits_.is_written(argument);
        Touch use = touch(tensor, op_.schema().arguments()[argument].name().c_str(), written);
        use.by_host = !on_card(tensor);
        touches_.push_back(use);
        if (!op_.schema().arguments()[argument].is_out()) inputs_.push_back(use.shape);
        if (written) written_.push_back(use.shape);
        if (!use.by_host) {
          any_card = true;
          return scope_.down(tensor);
        }
        if ((tensor.dim() > 0 || written) && !traits_.may_be_on_host(argument)) stranger = use.argument;
        host_operands_.push_back(tensor);
        return tensor;
      });
    }
    TORCH_CHECK(stranger == nullptr || !any_card,
                "Expected all tensors to be on the same device, but found at least two devices, sim:0 and "
                "cpu! (argument ",
                stranger, " of ", traits_.name, " is on the CPU; move it with .to(\"sim\"))");
  }

  /// Before raise_results(): the shapes of arguments are those from before the call.
  void count() {
    Shapes outputs;
    bool aliasing = !traits_.writes;
    for (std::size_t i = first_; i < stack_.size(); ++i) {
      for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        outputs.push_back(shape_of(tensor));
        if (scope_.shares_argument(tensor)) return;
        aliasing = false;
        touches_.push_back(touch(tensor, "", /*writes=*/true));
      });
    }
    if (outputs.empty()) {
      outputs = written_;
      aliasing = false;
    }
    const graph::OpCost cost = graph::op_cost(traits_.name, {inputs_.data(), inputs_.size()},
                                              {outputs.data(), outputs.size()}, aliasing);
    on_device([&] {
      sim_card().account_operator(current_stream(), traits_.name.c_str(), cost, traits_.synchronises,
                                  {touches_.data(), touches_.size()});
    });
  }

  void raise_results() {
    if (traits_.writes) scope_.write_back();
    for (std::size_t i = first_; i < stack_.size(); ++i) {
      map_tensors(stack_[i], [&](const at::Tensor& tensor) { return scope_.up(tensor); });
    }
  }

  const OpTraits& traits_;
  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const std::size_t first_;
  AliasScope scope_;
  Shapes inputs_, written_;
  Touches touches_;
  c10::SmallVector<at::Tensor, 4> host_operands_;  // kept, since inputs_ looks at their sizes
};

/// The kernel of one operator, which carries what is known about it.
class CardKernel final : public c10::OperatorKernel {
 public:
  explicit CardKernel(const c10::FunctionSchema& schema) : traits_(schema) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    CardCall(traits_, op, *stack).run();
  }

 private:
  const OpTraits traits_;
};

/// Operators of other libraries, whenever they are registered.
void run_foreign_operator(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static auto* const known =
      new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<const OpTraits>>;
  const OpTraits* traits = nullptr;
  {
    const std::lock_guard lock(mutex);
    auto& slot = (*known)[&op.schema()];
    if (!slot) slot = std::make_unique<const OpTraits>(op.schema());
    traits = slot.get();
  }
  CardCall(*traits, op, *stack).run();
}

/// Operators that concern the tensor object and not its content, or that exist to cross devices: PyTorch's
/// composite definitions are right for the card.
bool stays_composite(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string_view> kNames{
      "aten::to",           "aten::_to_copy",       "aten::_to_cpu",      "aten::type_as",
      "aten::copy",         "aten::set_data",       "aten::data",         "aten::_backward",
      "aten::retain_grad",  "aten::requires_grad_", "aten::_fw_primal",   "aten::_make_dual",
      "aten::_unpack_dual", "aten::rename",         "aten::rename_",      "aten::refine_names",
      "aten::align_to",     "aten::align_as",       "aten::align_tensors"};
  const c10::FunctionSchema& schema = op.schema();
  if (kNames.contains(schema.name()) || chooses_device(schema)) return true;
  return asks_about_tensors(schema) && is_composite(op);
}

}  // namespace

void register_kernels() {
  // Never destroyed: taking 3,000 registrations back would only slow the end of the process.
  auto* const fallback = new torch::Library(torch::Library::IMPL, "_", kSimKey, __FILE__, __LINE__);
  fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&run_foreign_operator>());

  auto* const library = new torch::Library(torch::Library::IMPL, "aten", kSimKey, __FILE__, __LINE__);
  const auto& own = register_own_kernels(*library);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (own.contains(full)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !touches_tensors(op->schema()) || stays_composite(*op)) continue;
    library->impl(full.c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CardKernel>(op->schema())));
  }
}

}  // namespace lowtide::device::sim
