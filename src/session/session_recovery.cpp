// What a session does when memory of the device goes missing: other programs took it, or an allocation was
// refused although the plan foresaw it.
#include <ATen/ops/empty.h>

#include "lowtide/log.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

using memory::MemoryTag;

/// In the middle of a job: the slab is replaced by the smallest one. The caller holds no reference to it.
at::Tensor Session::Impl::shrink_slab(std::size_t index) {
  const Bytes smaller = plan->models.at(index).smallest.slab_bytes;
  log_message(
      LogLevel::warning,
      "the device refused memory that was planned: kept and prefetched weights are given back, the job "
      "goes on with " +
          format_bytes(smaller) + " for weights");
  for (const std::size_t other : on_slab) {
    if (other != index) entries[other].loaded->forget_device();
  }
  on_slab = {index};
  slab.reset();
  slab_charge.release();
  slab_charge = ledger->reserve(MemoryTag::weights, smaller, "the smallest weight slab");
  slab = at::empty({static_cast<std::int64_t>(smaller)},
                   at::TensorOptions().dtype(at::kByte).device(device->torch()));
  return slab;
}

/// Before a job: does the device still have what the plan needs? If not, plans for what is left; if it has
/// again, goes back to the plan that was put aside. Throws OutOfBudget when too little is left for any plan.
void Session::Impl::fit_to_memory() {
  const Bytes reachable = device->extras()->reachable_bytes();
  const auto peak = [](const detail::SessionPlan& p) {
    return p.context_bytes + p.state_bytes + p.slab_bytes + p.job_bytes;
  };
  if (reduced_cap && reachable >= unreduced_peak) {
    replan(plan->models);
    log_message(LogLevel::info, "other programs gave memory of the device back: the plan is as before");
    return;
  }
  if (peak(*plan) <= reachable) return;
  const Bytes wanted = reduced_cap ? unreduced_peak : peak(*plan);
  detail::PlanRequest request = plan_request();
  request.vram_cap = reachable;
  try {
    follow(detail::plan_session(request, plan->models));
  } catch (const RamCapTooSmall&) {
    throw;
  } catch (const PlanInfeasible& e) {
    throw OutOfBudget("other programs hold so much of the device's memory that " + format_bytes(reachable) +
                          " are left, and the smallest cap that works is " + std::to_string(e.min_cap()) +
                          " bytes: close them, or wait and run again",
                      e.min_cap(), reachable);
  }
  reduced_cap = reachable;
  unreduced_peak = wanted;
  log_message(LogLevel::warning, "other programs hold memory of the device: " + format_bytes(reachable) +
                                     " are left where the plan needs " + format_bytes(wanted) +
                                     "; going on with a smaller plan, peak " + format_bytes(peak(*plan)));
}

}  // namespace lowtide
