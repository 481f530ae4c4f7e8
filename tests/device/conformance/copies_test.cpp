// Promise: copies carry every element type, whatever way its elements lie, and touch nothing else.
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "device/conformance/copy_cases.hpp"
#include "device/conformance/promise.hpp"

using namespace lowtide::conformance;

namespace {

std::string describe(const Route& route, const Layout& source, const Layout& target, at::ScalarType dtype) {
  return std::string(c10::toString(dtype)) + ", " + route.name + ", from " + source.name + " to " +
         target.name;
}

// --- elements and their layouts ---

void check_layouts(DeviceUnderTest& device, Checks& checks) {
  std::vector<Layout> sources = layouts();
  sources.insert(sources.end(), expanded_layouts().begin(), expanded_layouts().end());
  for (const at::ScalarType dtype : element_types()) {
    // All pairs of layouts for small, common and large elements; for the rest each layout once is enough.
    const bool all_pairs = dtype == at::kByte || dtype == at::kFloat || dtype == at::kComplexDouble;
    for (const Route& route : kRoutes) {
      for (std::size_t s = 0; s < sources.size(); ++s) {
        for (std::size_t t = 0; t < layouts().size(); ++t) {
          if (!all_pairs && t != s % layouts().size()) continue;
          const Layout &source = sources[s], &target = layouts()[t];
          const std::string detail = describe(route, source, target, dtype);
          Arrival arrival;
          checks.that("every element arrives, bit for bit", detail, [&] {
            arrival = send(device, route, source, target, dtype);
            return bits(target.of(arrival.memory)) == bits(target.of(arrival.wanted));
          });
          checks.that("memory between and beside the target's elements stays as it was", detail, [&] {
            target.of(arrival.memory).copy_(target.of(arrival.wanted));  // leaves the rest to compare
            return bits(arrival.memory) == bits(arrival.wanted);
          });
        }
      }
    }
  }
}
constexpr Promise kLayouts{"copies carry all element types between all layouts", Needs::nothing,
                           &check_layouts};
LOWTIDE_PROMISE(kLayouts);

/// Copies the true tensors after changing what it was asked.
struct Miscopier : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void truly(const at::Tensor& target, const at::Tensor& source) {
    DeviceUnderTest::copy(target, source, /*non_blocking=*/false);
  }
};

at::Tensor as_if_contiguous(const at::Tensor& tensor) {
  std::vector<std::int64_t> strides(tensor.dim());
  std::int64_t stride = 1;
  for (std::int64_t d = tensor.dim(); d-- > 0; stride *= tensor.size(d)) strides[d] = stride;
  return tensor.as_strided(tensor.sizes(), strides, tensor.storage_offset());
}

struct LosesStrides : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    // An expanded source has less memory than that.
    const bool fits = source.storage().nbytes() / source.itemsize() >=
                      static_cast<std::size_t>(source.storage_offset() + source.numel());
    truly(target, fits ? as_if_contiguous(source) : source);
  }
};
LOWTIDE_SEEN_TO_FAIL("loses strides in copies", LosesStrides, kLayouts, "every element arrives, bit for bit");

struct ExpandsTheWrongWay : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    at::Tensor taken = source;
    for (std::int64_t d = 0; d < source.dim(); ++d) {
      if (source.stride(d) == 0) taken = source.flatten()[0].expand(source.sizes());
    }
    truly(target, taken);
  }
};
LOWTIDE_SEEN_TO_FAIL("repeats the first element of what is expanded", ExpandsTheWrongWay, kLayouts,
                     "every element arrives, bit for bit");

struct IgnoresOffsets : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    truly(target, source.as_strided(source.sizes(), source.strides(), 0));
  }
};
LOWTIDE_SEEN_TO_FAIL("ignores storage offsets", IgnoresOffsets, kLayouts,
                     "every element arrives, bit for bit");

struct QuietsBytes : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    if (source.scalar_type() == at::ScalarType::Float8_e5m2 && source.numel() > 0) {
      truly(target, source.to(at::kFloat).clamp(-100, 100).to(source.scalar_type()));
    } else {
      truly(target, source);
    }
  }
};
LOWTIDE_SEEN_TO_FAIL("carries some element type by its value and not by its bits", QuietsBytes, kLayouts,
                     "every element arrives, bit for bit");

struct FillsTheGaps : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    const auto elements = static_cast<std::int64_t>(target.storage().nbytes() / target.itemsize());
    const at::Tensor kept = source.clone();
    if (elements > target.numel()) {
      const at::Tensor all = target.as_strided({elements}, {1}, 0);
      truly(all, at::zeros({elements}, all.options()));
    }
    truly(target, kept);
  }
};
LOWTIDE_SEEN_TO_FAIL("writes over the gaps of a strided target", FillsTheGaps, kLayouts,
                     "memory between and beside the target's elements stays as it was");

// --- sizes ---

void check_sizes(DeviceUnderTest& device, Checks& checks) {
  for (const at::ScalarType dtype : element_types()) {
    for (const Route& route : kRoutes) {
      for (const Layout& shape : shapes()) {
        checks.that("copies of every size are whole", describe(route, shape, shape, dtype), [&] {
          const Arrival arrival = send(device, route, shape, shape, dtype);
          return bits(arrival.memory) == bits(arrival.wanted);
        });
      }
      checks.that("a source of fewer dimensions is repeated over the target", route.name, [&] {
        const Layout source{"3 x 1", {3, 1}, {1, 1}}, target{"2 x 3 x 4", {2, 3, 4}, {12, 4, 1}};
        const Arrival arrival = send(device, route, source, target, dtype);
        return bits(arrival.memory) == bits(arrival.wanted);
      });
    }
  }
  checks.that("sizes that do not fit together are refused", [&] {
    const at::Tensor target = device.to_device(at::zeros({3}));
    return throws<c10::Error>([&] { device.copy(target, at::zeros({4}), /*non_blocking=*/false); });
  });
}
constexpr Promise kSizes{"copies of every size are whole, from none to many elements", Needs::nothing,
                         &check_sizes};
LOWTIDE_PROMISE(kSizes);

struct DropsTheLastElement : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    if (target.dim() != 1 || source.dim() != 1 || source.size(0) != target.size(0) || target.numel() % 2 == 0)
      return truly(target, source);
    truly(target.narrow(0, 0, target.numel() - 1), source.narrow(0, 0, target.numel() - 1));
  }
};
LOWTIDE_SEEN_TO_FAIL("drops the last of an odd number of elements", DropsTheLastElement, kSizes,
                     "copies of every size are whole");

struct SkipsScalars : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    if (target.dim() != 0) truly(target, source);
  }
};
LOWTIDE_SEEN_TO_FAIL("forgets tensors without dimensions", SkipsScalars, kSizes,
                     "copies of every size are whole");

struct FailsOnEmptyTensors : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    TORCH_CHECK(target.numel() != 0, "nothing to copy");
    truly(target, source);
  }
};
LOWTIDE_SEEN_TO_FAIL("fails on tensors without elements", FailsOnEmptyTensors, kSizes,
                     "copies of every size are whole");

struct RepeatsTheWrongDimension : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    const bool repeats = source.numel() < target.numel() && source.dim() > 0;
    truly(target, repeats ? source.flatten()[0].expand(target.sizes()) : source);
  }
};
LOWTIDE_SEEN_TO_FAIL("repeats the first element of a source with fewer", RepeatsTheWrongDimension, kSizes,
                     "a source of fewer dimensions is repeated over the target");

struct CutsToFit : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    const bool longer = source.dim() == 1 && target.dim() == 1 && source.size(0) > target.size(0);
    truly(target, longer ? source.narrow(0, 0, target.size(0)) : source);
  }
};
LOWTIDE_SEEN_TO_FAIL("cuts a source that is too long", CutsToFit, kSizes,
                     "sizes that do not fit together are refused");

// --- other element types, conjugates ---

bool can_cast(at::ScalarType from, at::ScalarType to) {
  // e8m0 holds powers of two only; dropping imaginary parts is refused or warned about.
  const auto is_odd = [](at::ScalarType dtype) { return dtype == at::ScalarType::Float8_e8m0fnu; };
  return from != to && !is_odd(from) && !is_odd(to) && (at::isComplexType(to) || !at::isComplexType(from));
}

void check_conversions(DeviceUnderTest& device, Checks& checks) {
  const at::Tensor values = at::tensor({0.0, 1.0, 2.5, 3.0, 1.5, 0.25, 7.0}, at::kDouble);
  for (const at::ScalarType from : element_types()) {
    for (const at::ScalarType to : element_types()) {
      if (!can_cast(from, to)) continue;
      for (const Route& route : kRoutes) {
        const std::string detail =
            std::string(c10::toString(from)) + " to " + c10::toString(to) + ", " + route.name;
        checks.that("a copy to another element type converts as on the cpu", detail, [&] {
          const at::Tensor source = values.to(from);
          const at::Tensor wanted = source.to(to);
          at::Tensor target = at::zeros(source.sizes(), at::TensorOptions().dtype(to));
          if (route.to_device) target = device.to_device(target);
          device.copy(target, route.from_device ? device.to_device(source) : source, /*non_blocking=*/false);
          return bits(device.to_host(target)) == bits(wanted);
        });
      }
    }
  }
  for (const Route& route : kRoutes) {
    const at::Tensor host = any_bits(15, at::kComplexFloat, 3).nan_to_num();
    const auto arrives = [&](const std::function<at::Tensor(const at::Tensor&)>& view) {
      const at::Tensor wanted = view(host);
      const at::Tensor source = view(route.from_device ? device.to_device(host) : host);
      at::Tensor target = at::zeros(wanted.sizes(), at::TensorOptions().dtype(wanted.scalar_type()));
      if (route.to_device) target = device.to_device(target);
      device.copy(target, source, /*non_blocking=*/false);
      return bits(device.to_host(target)) == bits(wanted);
    };
    checks.that("a conjugate view arrives conjugated", route.name,
                [&] { return arrives([](const at::Tensor& t) { return at::_conj(t); }); });
    checks.that("a negated view arrives negated", route.name,
                [&] { return arrives([](const at::Tensor& t) { return at::imag(at::_conj(t)); }); });
  }
}
constexpr Promise kConversions{"copies convert between element types, and resolve conjugates", Needs::nothing,
                               &check_conversions};
LOWTIDE_PROMISE(kConversions);

struct ConvertsThroughIntegers : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    const bool converts = target.scalar_type() != source.scalar_type() && !source.is_complex();
    truly(target, converts ? source.to(at::kInt) : source);
  }
};
LOWTIDE_SEEN_TO_FAIL("converts through integers", ConvertsThroughIntegers, kConversions,
                     "a copy to another element type converts as on the cpu");

struct ForgetsConjugates : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    truly(target, source.is_conj() ? at::_conj(source) : source);
  }
};
LOWTIDE_SEEN_TO_FAIL("forgets that a view is conjugated", ForgetsConjugates, kConversions,
                     "a conjugate view arrives conjugated");

struct ForgetsNegation : Miscopier {
  using Miscopier::Miscopier;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    truly(target, source.is_neg() ? at::_neg_view(source) : source);
  }
};
LOWTIDE_SEEN_TO_FAIL("forgets that a view is negated", ForgetsNegation, kConversions,
                     "a negated view arrives negated");

// --- moving whole tensors ---

void check_moves(DeviceUnderTest& device, Checks& checks) {
  for (const Layout& layout : layouts()) {
    const at::Tensor host = layout.of(any_bits(layout.span(), at::kFloat, 4));
    at::Tensor there, back;
    checks.that("a moved tensor has the same elements", layout.name, [&] {
      there = device.move(host, device.torch());
      back = device.move(there, c10::Device(c10::kCPU));
      return there.device() == device.torch() && bits(back) == bits(host);
    });
    checks.that("a dense tensor keeps its strides when it moves", layout.name, [&] {
      return !host.is_non_overlapping_and_dense() ||
             (there.strides() == host.strides() && back.strides() == host.strides());
    });
  }
}
constexpr Promise kMoves{"tensors keep elements and strides when they move between host and device",
                         Needs::nothing, &check_moves};
LOWTIDE_PROMISE(kMoves);

struct StraightensTensors : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor move(const at::Tensor& tensor, c10::Device to) override { return tensor.contiguous().to(to); }
};
LOWTIDE_SEEN_TO_FAIL("makes tensors contiguous when they move", StraightensTensors, kMoves,
                     "a dense tensor keeps its strides when it moves");

struct MovesMemoryAsItLies : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor move(const at::Tensor& tensor, c10::Device to) override {
    return as_if_contiguous(tensor).to(to).as_strided(tensor.sizes(), as_if_contiguous(tensor).strides());
  }
};
LOWTIDE_SEEN_TO_FAIL("moves memory as it lies and forgets the strides", MovesMemoryAsItLies, kMoves,
                     "a moved tensor has the same elements");

}  // namespace
