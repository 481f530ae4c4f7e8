// Buckets over real archives: which dimensions are batches, and that padding them changes nothing.
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <map>

#include "graph/batch_independence.hpp"
#include "lowtide/lowtide.hpp"
#include "session/bucket_ladders.hpp"
#include "session/model_data.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;

namespace {

Model open_model(const std::string& name) {
  return Model::open(std::string(LOWTIDE_MODELS) + "/" + name + ".pt2");
}

/// "independent", or why not, for each free dimension "NAME.DIM" of the inputs.
std::map<std::string, std::string> verdicts(const Model& model) {
  const detail::ModelData& data = model.data();
  std::map<std::string, std::string> found;
  for (std::size_t i = 0; i < data.user_inputs().size(); ++i) {
    const graph::GraphInput& input = data.program().graph.inputs[data.user_inputs()[i]];
    if (input.kind != graph::InputKind::user) continue;
    const auto& sizes = data.program().graph.values[input.value].meta.sizes;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto symbol = sizes[d].as_symbol();
      if (!symbol) continue;
      const auto batch = graph::find_batch_independence(data.program(), *symbol);
      found[model.input_names()[i] + "." + std::to_string(d)] =
          batch.independent() ? "independent" : batch.obstacle;
    }
  }
  return found;
}

std::string refusal(const Model& model, const std::vector<ShapeBuckets>& buckets) {
  Session session({.device = "cpu"});
  try {
    session.add(model, {.shape_buckets = buckets});
  } catch (const UsageError& e) {
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    return e.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

std::vector<at::Tensor> run(const Model& model, const std::vector<at::Tensor>& inputs,
                            const std::vector<ShapeBuckets>& buckets = {},
                            const std::string& device = "cpu") {
  Session session({.device = device, .threads = 1});
  return session.run(session.add(model, {.shape_buckets = buckets}), inputs);
}

/// The first `rows` of the batch.
std::vector<at::Tensor> rows_of(const std::vector<at::Tensor>& tensors, const std::vector<std::int64_t>& dims,
                                std::int64_t rows) {
  std::vector<at::Tensor> cut;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    cut.push_back(tensors[i].narrow(dims[i], 0, rows).contiguous());
  return cut;
}

bool close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  constexpr double kTolerance = 1e-5;
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes() || a[i].scalar_type() != b[i].scalar_type()) return false;
    if (!at::allclose(a[i], b[i], kTolerance, kTolerance)) return false;
  }
  return true;
}

at::Tensor words(std::int64_t rows, std::int64_t length) {
  return at::randint(500, {rows, length}, at::kLong);
}

/// The most bytes of the heap that are in use when an operator begins, while it lives. One at a time.
class HeapPeak {
 public:
  HeapPeak() : before_(in_use()) {
    most_ = before_;
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}));
  }
  ~HeapPeak() { at::removeCallback(handle_); }
  HeapPeak(const HeapPeak&) = delete;
  HeapPeak& operator=(const HeapPeak&) = delete;

  std::size_t growth() const { return most_ - before_; }

 private:
  static std::size_t in_use() {
    const auto heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  }
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& /*unused*/) {
    most_ = std::max(most_, in_use());
    return nullptr;
  }

  static inline std::size_t most_ = 0;
  std::size_t before_;
  at::CallbackHandle handle_ = 0;
};

}  // namespace

TEST_CASE("the batch of every archive is found, and what is no batch is refused with the node that mixes") {
  const std::map<std::string, std::map<std::string, std::string>> kExpected{
      {"blocks_12x64", {{"ids.0", ""}, {"ids.1", "scaled_dot_product_attention"}}},
      {"minilm_l6", {{"ids.0", ""}, {"mask.0", ""}, {"ids.1", "__and__"}, {"mask.1", "__and__"}}},
      {"giant_linear", {{"x.0", ""}}},
      {"giant_convolution", {{"x.0", ""}}},
      {"mixed_00", {{"ids.0", ""}, {"ids.1", "conv1d"}}},
      {"mixed_01", {{"ids.0", ""}, {"ids.1", "aten::mean.dim"}}},
      {"mixed_14", {{"ids.0", ""}, {"ids.1", "conv1d"}}},
      {"ocr_v6_det", {{"args_0.0", ""}, {"args_0.2", "conv2d"}, {"args_0.3", "conv2d"}}},
      {"ocr_v6_rec", {{"args_0.0", ""}, {"args_0.3", "conv2d"}}},
      {"ocr_cls", {{"args_0.0", ""}}},
      {"page_orientation", {{"args_0.0", ""}}},
      {"resnet50", {{"x.0", ""}}},
      {"silero_vad", {{"x.0", ""}, {"state.1", ""}}},
      {"zoo_complex", {{"x.0", ""}}},
      {"zoo_dtypes", {{"x.0", ""}}},
      {"zoo_args", {{"xs[0].0", "aten::cat"}, {"xs[1].0", "aten::cat"}}},
      {"zoo_nonzero", {{"x.0", "aten::nonzero"}}},
      {"zoo_symint_input", {{"x.0", "aten::narrow"}}},
      {"qwen3_static", {{"ids.1", "aten::add_"}, {"pos.0", "aten::select"}}},
      {"layout_cdla", {}},
  };
  for (const auto& [name, dims] : kExpected) {
    CAPTURE(name);
    const auto found = verdicts(open_model(name));
    CHECK(found.size() == dims.size());
    for (const auto& [dim, obstacle] : dims) {
      CAPTURE(dim);
      REQUIRE(found.count(dim) == 1);
      if (obstacle.empty()) {
        CHECK(found.at(dim) == "independent");
      } else {
        CHECK(says(found.at(dim), obstacle));
        CHECK(says(found.at(dim), " in forward) "));  // the source line
      }
    }
  }
}

TEST_CASE("a padded job has the results of the job alone, whatever is in the padding") {
  struct Case {
    const char* name;
    std::vector<at::Tensor> inputs;  // of the bucket
    std::vector<std::int64_t> in_dims, out_dims;
    std::string input;
  };
  const std::vector<Case> kCases{
      {"blocks_12x64", {words(4, 9)}, {0}, {0, 0}, "ids"},
      {"minilm_l6", {words(4, 7), at::ones({4, 7}, at::kLong)}, {0, 0}, {0}, "ids"},
      {"mixed_00", {words(4, 9)}, {0}, {0, 0}, "ids"},
      {"mixed_05", {words(4, 9)}, {0}, {0, 0}, "ids"},
      {"giant_linear", {at::randn({4, 256})}, {0}, {0}, "x"},
      {"giant_convolution", {at::randn({4, 256})}, {0}, {0}, "x"},
      {"silero_vad", {at::randn({4, 576}), at::randn({2, 4, 128})}, {0, 1}, {0, 1}, "x"},
      {"ocr_cls", {at::randn({4, 3, 48, 192})}, {0}, {0}, "args_0"},
      {"ocr_v6_rec", {at::randn({4, 3, 48, 64})}, {0}, {0}, "args_0"},
      {"zoo_complex", {at::randn({4, 6, 8})}, {0}, {0, 0, 0}, "x"},
  };
  for (const Case& one : kCases) {
    CAPTURE(one.name);
    const Model model = open_model(one.name);
    const std::vector<ShapeBuckets> buckets{{.input = one.input, .dim = 0, .sizes = {2, 4}}};
    const auto job = rows_of(one.inputs, one.in_dims, 3);
    const auto alone = run(model, job);
    const auto padded = run(model, job, buckets);
    CHECK(close(padded, alone));
    // Other rows in the padding: the same operators at the same shape, so the same bits.
    const auto whole = run(model, one.inputs);
    const bool same = test::same_bits(padded, rows_of(whole, one.out_dims, 3));
    CHECK(same);
    // A job of a bucket's size is not touched.
    const bool exact = test::same_bits(run(model, one.inputs, buckets), whole);
    CHECK(exact);
  }
}

TEST_CASE("ten sizes are four shapes, on the cpu and on the card, and no plan promises exact bits") {
  const Model model = open_model("blocks_12x64");
  const std::vector<ShapeBuckets> buckets{{.input = "ids", .dim = 0, .sizes = {1, 4, 8, 16}}};
  for (const std::string device : {"cpu", "sim"}) {
    CAPTURE(device);
    Session session({.device = device, .threads = 1});
    const ModelHandle handle = session.add(model, {.shape_buckets = buckets});
    const ModelHandle plain = session.add(model);
    std::vector<PlannedJob> jobs;
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 9, 12, 16})
      jobs.push_back({handle, {InputShape{{rows, 6}}}});
    const auto plans = session.plan_jobs(jobs);
    REQUIRE(plans.size() == 4);
    for (const PlanSummary& plan : plans) {
      CHECK_FALSE(plan.exact);
      CHECK(plan.padded);
    }
    CHECK(plans[1].shapes == "ids i64[4, 6]");
    CHECK(session.plan(plain, {InputShape{{3, 6}}}).exact);
    CHECK(session.padded_shapes(handle, {InputShape{{5, 6}}})[0]->sizes == std::vector<std::int64_t>{8, 6});
    CHECK(session.bucket_shapes(handle, {InputShape{{5, 6}}}).size() == 4);
    CHECK_THROWS_AS(session.padded_shapes(handle, {InputShape{{17, 6}}}), InputError);
  }
}

TEST_CASE("a job that no bucket holds fails alone, and so does one that the model does not take") {
  const Model model = open_model("blocks_12x64");
  for (const std::string device : {"cpu", "sim"}) {
    CAPTURE(device);
    Session session({.device = device});
    const ModelHandle handle =
        session.add(model, {.shape_buckets = {{.input = "ids", .dim = 0, .sizes = {1, 4}}}});
    const auto outcomes =
        session.run_many(handle, {{words(3, 5)}, {words(5, 5)}, {at::randn({2, 5})}, {words(1, 5)}});
    REQUIRE(outcomes.size() == 4);
    CHECK(outcomes[0].outputs[0].size(0) == 3);
    CHECK(outcomes[3].outputs[0].size(0) == 1);
    try {
      std::rethrow_exception(outcomes[1].error);
    } catch (const InputError& e) {
      CHECK(says(e.what(), "5 at ids.0"));
      CHECK(says(e.what(), "largest bucket, 4"));
    }
    CHECK_THROWS_AS(std::rethrow_exception(outcomes[2].error), InputError);
  }
}

TEST_CASE("of many jobs those of one wave are padded at a time, and each has its own results") {
  constexpr std::int64_t kRows = 8192;
  constexpr std::size_t kJobs = 64, kPadded = kRows * 6 * 8 * sizeof(float);
  const Model model = open_model("zoo_complex");
  std::vector<std::vector<at::Tensor>> jobs;
  for (std::size_t i = 0; i < kJobs; ++i)
    jobs.push_back({at::randn({i % 7 == 3 ? kRows + 1 : 1 + static_cast<std::int64_t>(i % 5), 6, 8})});
  for (const std::string device : {"cpu", "sim"}) {
    CAPTURE(device);
    Session session({.device = device, .wave = device == "sim" ? 4 : 1, .threads = 1});
    const ModelHandle handle =
        session.add(model, {.shape_buckets = {{.input = "x", .dim = 0, .sizes = {1, kRows}}}});
    const ModelHandle plain = session.add(model);
    session.run_many(handle, {{at::randn({3, 6, 8})}});  // opens the device
    const HeapPeak heap;
    const auto outcomes = session.run_many(handle, jobs);
    CHECK(heap.growth() < kJobs * kPadded / 2);  // the simulated card's memory is the heap, too
    for (std::size_t i = 0; i < kJobs; ++i) {
      CAPTURE(i);
      CHECK((outcomes[i].error != nullptr) == (i % 7 == 3));
      if (!outcomes[i].error) CHECK(close(outcomes[i].outputs, session.run(plain, jobs[i])));
    }
  }
}

TEST_CASE("a batch of none gives results without rows") {
  const Model model = open_model("blocks_12x64");
  const auto results = run(model, {words(0, 5)}, {{.input = "ids", .dim = 0, .sizes = {2}}});
  CHECK(results[0].sizes() == at::IntArrayRef({0, 5, 1000}));
}

TEST_CASE("a declared dimension is padded with the value, and results of this very size are cut") {
  const Model model = open_model("minilm_l6");
  const at::Tensor ids = words(2, 5), mask = at::ones({2, 5}, at::kLong);
  const std::vector<ShapeBuckets> buckets{{.input = "ids", .dim = 1, .sizes = {8, 16}, .pad = 0}};
  CHECK(close(run(model, {ids, mask}, buckets), run(model, {ids, mask})));  // the mask is padded with 0, too
  // With a mask of ones the padding takes part, which shows that the value arrives.
  std::vector<ShapeBuckets> wrong = buckets;
  wrong.push_back({.input = "mask", .dim = 1, .sizes = {8, 16}, .pad = 1});
  CHECK_FALSE(close(run(model, {ids, mask}, wrong), run(model, {ids, mask})));
  // Both results of blocks have the dimension: cut, although what is in them depends on the padding.
  const auto blocks =
      run(open_model("blocks_12x64"), {ids}, {{.input = "ids", .dim = 1, .sizes = {8}, .pad = 3}});
  CHECK(blocks[0].sizes() == at::IntArrayRef({2, 5, 1000}));
  const auto as_padded = run(open_model("blocks_12x64"), {at::cat({ids, at::full({2, 3}, 3, at::kLong)}, 1)});
  const bool same = test::same_bits({blocks[0]}, {as_padded[0].narrow(1, 0, 5).contiguous()});
  CHECK(same);
}

TEST_CASE("a batch and a declared dimension are padded together") {
  const Model model = open_model("minilm_l6");
  const at::Tensor ids = words(3, 5), mask = at::ones({3, 5}, at::kLong);
  const std::vector<ShapeBuckets> both{{.input = "ids", .dim = 0, .sizes = {4}},
                                       {.input = "ids", .dim = 1, .sizes = {8, 16}, .pad = 0}};
  CHECK(close(run(model, {ids, mask}, both), run(model, {ids, mask})));
  Session session({.device = "cpu"});
  const ModelHandle handle = session.add(model, {.shape_buckets = both});
  const auto shapes = session.bucket_shapes(handle, {InputShape{{3, 5}}, InputShape{{3, 5}}});
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[1][1]->sizes == std::vector<std::int64_t>{4, 16});
}

TEST_CASE("results on the card are those of the cpu, and the device is back at its baseline") {
  const Model model = open_model("blocks_12x64");
  const std::vector<ShapeBuckets> buckets{{.input = "ids", .dim = 0, .sizes = {4, 8}}};
  const at::Tensor ids = words(3, 20);
  const bool same = test::same_bits(run(model, {ids}, buckets, "sim"), run(model, {ids}, buckets));
  CHECK(same);
}

TEST_CASE("buckets that do not suit the model are refused in one line") {
  const Model model = open_model("minilm_l6");
  const auto ids = [](std::size_t dim, std::vector<std::int64_t> sizes, std::optional<double> pad = {}) {
    return std::vector<ShapeBuckets>{{.input = "ids", .dim = dim, .sizes = std::move(sizes), .pad = pad}};
  };
  CHECK(refusal(model, ids(0, {1, 4})) == "");
  CHECK(says(refusal(model, {{.input = "words", .dim = 0, .sizes = {1}}}), "only ids, mask"));
  CHECK(says(refusal(model, ids(2, {1})), "has 2 dimensions"));
  CHECK(says(refusal(model, ids(0, {})), "no sizes"));
  CHECK(says(refusal(model, ids(0, {4, 1})), "smallest first"));
  CHECK(says(refusal(model, ids(0, {4, 4})), "once"));
  CHECK(says(refusal(model, ids(0, {0, 4})), "between 1 and"));
  CHECK(says(refusal(model, ids(0, {-4})), "between 1 and"));
  CHECK(says(refusal(model, ids(0, {std::int64_t{1} << 60})), "between 1 and"));
  CHECK(says(refusal(model, ids(1, {64, 1024}, 0)), "sizes up to 512"));
  CHECK(says(refusal(open_model("ocr_v6_rec"), {{.input = "args_0", .dim = 3, .sizes = {8, 64}, .pad = 0}}),
             "sizes from 13"));
  // A guard of the export, which jobs of this size would all break.
  const std::string guarded =
      refusal(open_model("ocr_v6_rec"), {{.input = "args_0", .dim = 3, .sizes = {16, 18}, .pad = 0}});
  CHECK(says(guarded, "args_0.3: the bucket 18 cannot be used: input 'args_0', dimension 3 is 18"));
  CHECK(says(guarded, "% 2) == 0); nearest allowed: 16"));
  CHECK(
      says(refusal(open_model("layout_cdla"), {{.input = "args_0", .dim = 0, .sizes = {1}}}), "fixed as 1"));
  CHECK(says(refusal(model, ids(1, {64})), "no batch: aten::__and__"));
  CHECK(says(refusal(model, ids(1, {64})), "pad=VALUE"));
  CHECK(says(refusal(model, ids(1, {64}, 0.5)), "i64"));
  CHECK(says(refusal(open_model("zoo_symint_input"), {{.input = "n", .dim = 0, .sizes = {1}}}), "no tensor"));
  CHECK(says(
      refusal(model, {{.input = "ids", .dim = 0, .sizes = {4}}, {.input = "mask", .dim = 0, .sizes = {4}}}),
      "has the buckets of ids.0"));
  CHECK(says(refusal(model, {{.input = "ids", .dim = 1, .sizes = {4}, .pad = 0},
                             {.input = "mask", .dim = 1, .sizes = {8}, .pad = 0}}),
             "the same sizes"));
}

TEST_CASE("a bucket beyond all memory fails its job and nothing else") {
  Session session({.device = "cpu"});
  const ModelHandle handle = session.add(
      open_model("giant_linear"), {.shape_buckets = {{.input = "x", .dim = 0, .sizes = {2, INT32_MAX}}}});
  const auto outcomes = session.run_many(handle, {{at::randn({3, 256})}, {at::randn({1, 256})}});
  CHECK_THROWS_AS(std::rethrow_exception(outcomes[0].error), InputError);
  CHECK(outcomes[1].outputs[0].size(0) == 1);
}
