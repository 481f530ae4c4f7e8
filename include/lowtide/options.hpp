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

/// By how much the memory for what was not planned grows, where a device lets us choose (simulated card).
enum class ArenaGrowth {
  same_as_requested,  // by what is missing
  next_power_of_two,  // to the next power of two, as far as the cap allows: fewer calls of the driver
};

struct SessionOptions {
  /// "cpu", "cuda", "cuda:1", "sim", "sim:CARD". See docs/cuda.md for GPUs, configs/cards/ for cards.
  std::string device = "cpu";
  /// Upper limit for everything the process causes on the device, context included. Default: the card's
  /// memory.
  std::optional<Bytes> vram_cap;
  /// Upper limit for the anonymous host memory that the process takes beyond its own start (on the simulated
  /// card beyond the card's bytes, too): weights in memory, buffers, graphs, inputs and results, on the cpu
  /// also activations. Weights that do not fit stay in the archive file and are read once per pass, ahead of
  /// their use. Default: all weights in memory, on the cpu mapped from the file. docs/architecture.md has how
  /// it is divided.
  std::optional<Bytes> ram_cap;
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
  /// Memory patterns: what a job of a known shape asks for has its planned place in one region (simulated
  /// card; on CUDA LibTorch's allocator decides). Off: each request is answered by itself.
  bool pattern = true;
  /// For what has no planned place; simulated card only.
  ArenaGrowth arena = ArenaGrowth::same_as_requested;
  /// Threads of the operators; 0: one per physical core. Part of every claim about bits.
  int threads = 0;
  /// Remember measured peaks from one process to the next, and in the folder of this name with ".runs" behind
  /// it what jobs ask for. Both may be deleted at any time. Empty: do not.
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
  /// State (buffers and constants that the program writes) lives on from job to job, in the order of the
  /// calls, instead of starting from the archive's values each time. A job that fails leaves it as it was.
  /// See Session::reset_state().
  bool keep_state = false;
};

}  // namespace lowtide
