// Settings of a session. Plain structs, filled by designated initialisers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/bytes.hpp"

namespace lowtide {

/// What stays on the device between jobs.
enum class AfterJob {
  keep,     // weights that fit under the cap
  release,  // nothing but the device's own context
};

/// How a model is used beside others in one session.
enum class Role {
  main,       // weights preferred resident
  auxiliary,  // shares memory with the others, runs between them
  cold,       // host memory only until it is called
};

struct SessionOptions {
  /// "cpu", "cuda", "cuda:1", "sim", "sim:CARD". See docs/cuda.md for GPUs, configs/cards/ for cards.
  std::string device = "cpu";
  /// Upper limit for everything the process causes on the device, context included. Default: the card's
  /// memory.
  std::optional<Bytes> vram_cap;
  /// Pick the cap: as little memory as costs no more than 20 % of resident time, at most 40 % of the resident
  /// peak. Implies AfterJob::release. `vram_cap` overrides the choice.
  bool low_vram = false;
  AfterJob after_job = AfterJob::keep;
  /// Layer-major waves: so many jobs of a model pass a group of layers before the next group's weights
  /// arrive. 0: as many as the planner finds best. Models with state, with random operators, or with sizes
  /// that depend on data run one job at a time; where that holds for all models of a plan, a number above 1
  /// is a UsageError.
  int wave = 1;
  /// Weights of `linear` that are larger than the cap allows may be cut into chunks of rows. Results then may
  /// differ in the last bits, and the plan says so (PlanSummary::exact).
  bool allow_split = false;
  /// Threads of the operators; 0: one per physical core. Part of every claim about bits.
  int threads = 0;
  /// Remember measured peaks from one process to the next. The file may be deleted at any time. Empty: do
  /// not.
  std::string learned_file;
};

/// The sizes that one dimension of a model's inputs is padded to, so that many sizes become few shapes, plans
/// and patterns. A job is padded up to the next of them, and its results are cut back. Plans of such a model
/// are not exact: an operator may add up in another order where it has more rows.
struct ShapeBuckets {
  std::string input;    // name of a user input, or its position where it is all digits
  std::size_t dim = 0;  // which must be a free size of the export; other inputs that share it are padded, too
  std::vector<std::int64_t> sizes;  // ascending, from 1; larger inputs are refused with InputError
  /// Left out: the dimension must be a batch, that is, the graph must show that no index of it influences
  /// another. Given: the caller's word that the model accepts this value behind the input's end (other inputs
  /// that share the dimension get 0, unless they have buckets of their own with another value). Results are
  /// then cut where a dimension has exactly this size, and left whole where it was computed from it.
  std::optional<double> pad = {};
};

struct ModelOptions {
  Role role = Role::main;
  std::vector<ShapeBuckets> shape_buckets = {};
};

}  // namespace lowtide
