// An exhaustive planner for very small problems, written independently of the search: every resident set,
// every way to leave in pauses, every order of equal first uses, every issue step and every place.
#pragma once

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "plan/residency_problem.hpp"

namespace lowtide::plan::test {

class Exhaustive {
 public:
  Exhaustive(const ResidencyProblem& problem, Bytes slab, bool keeps)
      : p_(problem), slab_(slab), keeps_(keeps), steps_(static_cast<int>(problem.steps.size())) {}

  /// The shortest time of any plan that takes less than `limit`, or `limit` if there is none.
  double best_below(double limit) {
    best_ = limit;
    choose_resident(0, std::vector<bool>(p_.units.size()), 0);
    return best_;
  }
  /// Were all plans looked at?
  bool complete() const { return nodes_ <= kMostNodes; }

 private:
  static constexpr long kMostNodes = 1'000'000;

  struct Visit {
    UnitId unit;
    int first, last;
    Bytes bytes;  // in the region; 0: has a place of its own
    double copy_s;
  };
  struct Placed {
    Bytes begin, end;
    int last;
  };
  struct Clock {
    double host, compute, link;
  };

  void choose_resident(std::size_t unit, std::vector<bool> resident, Bytes taken) {
    if (taken > slab_) return;
    if (unit == p_.units.size()) return choose_pauses(resident, taken);
    const Bytes bytes = (p_.units[unit].bytes + kGranule - 1) / kGranule * kGranule;
    if (!p_.units[unit].state) choose_resident(unit + 1, resident, taken);
    if (p_.units[unit].state || keeps_) {
      resident[unit] = true;
      choose_resident(unit + 1, resident, taken + bytes);
    }
  }

  void choose_pauses(const std::vector<bool>& resident, Bytes taken) {
    region_ = slab_ - taken;
    visits_.clear();
    std::vector<std::size_t> streamed;
    for (std::size_t u = 0; u < p_.units.size(); ++u) {
      const Unit& unit = p_.units[u];
      const double copy_s = p_.link.latency_s + double(unit.bytes) / p_.link.bytes_per_s;
      if (!resident[u]) {
        streamed.push_back(u);
      } else if (unit.state || !keeps_) {
        visits_.push_back({UnitId(u), int(unit.uses.front()), int(unit.uses.back()), 0, copy_s});
      }
    }
    split(streamed, 0);
  }

  void split(const std::vector<std::size_t>& streamed, std::size_t i) {
    if (i == streamed.size()) return start();
    const Unit& unit = p_.units[streamed[i]];
    const Bytes bytes = (unit.bytes + kGranule - 1) / kGranule * kGranule;
    const double copy_s = p_.link.latency_s + double(unit.bytes) / p_.link.bytes_per_s;
    const std::size_t pauses = unit.packed ? 0 : unit.uses.size() - 1;
    for (unsigned mask = 0; mask < (1U << pauses); ++mask) {
      const std::size_t mark = visits_.size();
      visits_.push_back({UnitId(streamed[i]), int(unit.uses[0]), int(unit.uses[0]), bytes, copy_s});
      for (std::size_t k = 1; k < unit.uses.size(); ++k) {
        if (k <= pauses && (mask >> (k - 1) & 1U))
          visits_.push_back({UnitId(streamed[i]), int(unit.uses[k]), 0, bytes, copy_s});
        visits_.back().last = int(unit.uses[k]);
      }
      split(streamed, i + 1);
      visits_.resize(mark);
    }
  }

  void start() {
    order_ = visits_;
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Visit& a, const Visit& b) { return a.first < b.first; });
    // Memory at each step must suffice whatever the places.
    for (int s = 0; s < steps_; ++s) {
      Bytes sum = 0;
      for (const Visit& v : order_)
        if (v.first <= s && s <= v.last) sum += v.bytes;
      if (sum > region_) return;
    }
    std::set<Bytes> sums{0};
    for (const Visit& v : order_) {
      std::set<Bytes> more = sums;
      for (const Bytes s : sums)
        if (s + v.bytes < region_) more.insert(s + v.bytes);
      sums = more;
    }
    offsets_.assign(sums.begin(), sums.end());
    kernels_from_.assign(std::size_t(steps_) + 1, 0);
    host_from_.assign(std::size_t(steps_) + 1, 0);
    for (int s = steps_; s-- > 0;) {
      kernels_from_[s] = kernels_from_[s + 1] + p_.steps[s].kernel_s + p_.steps[s].upload_s;
      host_from_[s] = host_from_[s + 1] + p_.steps[s].host_s;
    }
    issued_.assign(order_.size(), false);
    arrival_.assign(order_.size(), 0);
    placed_.clear();
    after(-1, {p_.begin_host_s, p_.begin_s, p_.begin_s});
  }

  double bound(int step, const Clock& c) const {
    double link = std::max(c.link, c.host);
    double bound = std::max(c.compute + kernels_from_[step + 1], c.host + host_from_[step + 1]);
    std::size_t left = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (order_[i].first <= step) continue;
      if (issued_[i]) {
        bound = std::max(bound, arrival_[i] + kernels_from_[order_[i].first]);
      } else {
        ++left;
        link += order_[i].copy_s;
        bound = std::max(bound, link + kernels_from_[order_[i].first]);
      }
    }
    bound = std::max(bound, c.host + host_from_[step + 1] + double(left) * p_.link.launch_s);
    return std::max(bound, link) + p_.end_s;
  }

  void after(int step, const Clock& c) {
    if (++nodes_ > kMostNodes) return;
    if (bound(step, c) >= best_) return;
    int first = -1;  // first use of the next copies in order
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (issued_[i]) continue;
      if (first < 0) first = order_[i].first;
      if (order_[i].first == first) issue(step, c, i);
    }
    if (step + 1 == steps_) {
      if (first < 0) best_ = std::min(best_, std::max({c.host, c.compute, c.link}) + p_.end_s);
      return;
    }
    if (first == step + 1) return;  // it would come too late
    Clock next = c;
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (order_[i].first == step + 1) next.compute = std::max(next.compute, arrival_[i]);
    const StepCost& cost = p_.steps[std::size_t(step) + 1];
    next.host += cost.host_s;
    if (cost.upload_s > 0)
      next.compute = next.link = std::max({next.compute, next.host, next.link}) + cost.upload_s;
    next.compute = std::max(next.compute, next.host) + cost.kernel_s;
    after(step + 1, next);
  }

  void issue(int step, const Clock& c, std::size_t i) {
    const Visit& visit = order_[i];
    Clock next = c;
    next.host += p_.link.launch_s;
    next.link = std::max({next.link, next.host, step < 0 ? 0.0 : c.compute}) + visit.copy_s;
    issued_[i] = true;
    arrival_[i] = next.link;
    if (visit.bytes == 0) {
      after(step, next);
    } else {
      for (const Bytes offset : offsets_) {
        const Bytes end = offset + visit.bytes;
        if (end > region_) break;
        const bool free = std::none_of(placed_.begin(), placed_.end(), [&](const Placed& other) {
          return other.last > step && offset < other.end && other.begin < end;
        });
        if (!free) continue;
        placed_.push_back({offset, end, visit.last});
        after(step, next);
        placed_.pop_back();
      }
    }
    issued_[i] = false;
  }

  const ResidencyProblem& p_;
  Bytes slab_;
  bool keeps_;
  int steps_;
  double best_ = 0;
  Bytes region_ = 0;
  std::vector<Visit> visits_;
  std::vector<Visit> order_;
  std::vector<Bytes> offsets_;
  std::vector<double> kernels_from_;
  std::vector<double> host_from_;
  std::vector<bool> issued_;
  std::vector<double> arrival_;
  std::vector<Placed> placed_;
  long nodes_ = 0;
};

}  // namespace lowtide::plan::test
