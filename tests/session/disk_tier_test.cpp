// Under a cap on host memory: weights that do not fit stay in the archive and are read once per pass. Same
// bits, exact counts, and back to the baseline when the file lets us down.
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/session.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using test::same_bits;
namespace fs = std::filesystem;

namespace {

std::string archive(const std::string& name) {
  return std::string(LOWTIDE_MODELS) + "/" + name + ".pt2";
}

std::vector<at::Tensor> inputs_of(const Model& model) {
  const fs::path path(model.path());
  return app::read_inputs(model,
                          app::JobInputs(fs::path(LOWTIDE_MODELS) / (model.name() + ".in.safetensors")));
}

InputShapes shapes_of(const std::vector<at::Tensor>& inputs) {
  InputShapes shapes;
  for (const at::Tensor& input : inputs) {
    std::optional<InputShape> shape;
    if (input.defined()) shape = InputShape{input.sizes().vec()};
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<at::Tensor> on_cpu(const Model& model, const std::vector<at::Tensor>& inputs) {
  Session session({.device = "cpu", .threads = 1});
  return session.run(session.add(model), inputs);
}

Bytes smallest_ram(const SessionOptions& options, const Model& model, const InputShapes& shapes) {
  SessionOptions none = options;
  none.ram_cap = 0;
  Session session(none);
  try {
    session.plan(session.add(model), shapes);
  } catch (const RamCapTooSmall& e) {
    return e.min_ram_cap();
  }
  FAIL("no cap at all was enough");
  return 0;
}

/// A copy of an archive that can be damaged and healed.
class BrittleFile {
 public:
  BrittleFile(const fs::path& folder, const std::string& name)
      : path_(folder / (name + ".pt2")), source_(archive(name)) {
    fs::copy_file(source_, path_);
    ::stat(path_.c_str(), &whole_);
  }
  const fs::path& path() const { return path_; }
  void shorten() const { fs::resize_file(path_, static_cast<std::uintmax_t>(whole_.st_size) / 3); }
  /// As it was, time included.
  void heal() const {
    fs::copy_file(source_, path_, fs::copy_options::overwrite_existing);
    const timespec times[2] = {whole_.st_atim, whole_.st_mtim};
    ::utimensat(AT_FDCWD, path_.c_str(), times, 0);
  }

 private:
  fs::path path_;
  std::string source_;
  struct stat whole_ {};
};

void check_baseline(const Session& session) {
  if (!session.last_job().used_after_bytes) return;
  CHECK(*session.last_job().used_after_bytes <= *session.stats().context_bytes + *session.stats().kept_bytes);
}

}  // namespace

TEST_CASE("on the card, the same bits at every RAM cap and VRAM cap, and each byte from disk once a job") {
  for (const char* name : {"blocks_12x64", "minilm_l6", "zoo_mutate_input"}) {
    CAPTURE(name);
    const Model model = Model::open(archive(name));
    const auto inputs = inputs_of(model);
    const InputShapes shapes = shapes_of(inputs);
    const auto expected = on_cpu(model, inputs);
    const Bytes least = smallest_ram({.device = "sim", .threads = 1}, model, shapes);
    for (const Bytes more : {Bytes{0}, model.weight_bytes() / 3, model.weight_bytes() + 4_MiB}) {
      CAPTURE(more);
      Session asking({.device = "sim", .ram_cap = least + more, .threads = 1});
      const Bytes smallest = *asking.plan(asking.add(model), shapes).min_cap_bytes;
      for (const Bytes vram : {smallest, smallest + model.weight_bytes() / 2, 8_GiB}) {
        CAPTURE(vram);
        Session session({.device = "sim", .vram_cap = vram, .ram_cap = least + more, .threads = 1});
        const ModelHandle handle = session.add(model);
        const PlanSummary plan = session.plan(handle, shapes);
        for (int i = 0; i < 2; ++i) {
          CHECK(same_bits(session.run(handle, inputs), expected));
          CHECK(*session.last_job().peak_bytes <= vram);
          check_baseline(session);
          // The first job also reads what then stays, in memory or on the card.
          if (i == 0) {
            CHECK(*session.last_job().disk_read_bytes <= model.weight_bytes());
          } else {
            CHECK(*session.last_job().disk_read_bytes == plan.disk_bytes_per_pass);
          }
        }
        if (more > model.weight_bytes()) CHECK(plan.disk_bytes_per_pass == 0);
        if (more == 0 && vram == smallest && model.weight_bytes() > 4_MiB)
          CHECK(plan.disk_bytes_per_pass > 0);
        CHECK(static_cast<double>(session.stats().pinned_bytes) <=
              1.03 * static_cast<double>(model.weight_bytes()) +
                  1_MiB);  // and buffers for inputs and results
      }
    }
  }
}

TEST_CASE("on the cpu, the same bits at every RAM cap, and each byte from disk once a job") {
  for (const char* name : {"blocks_12x64", "minilm_l6", "zoo_mutate_input", "zoo_dtypes"}) {
    CAPTURE(name);
    const Model model = Model::open(archive(name));
    const auto inputs = inputs_of(model);
    const InputShapes shapes = shapes_of(inputs);
    const auto expected = on_cpu(model, inputs);
    const Bytes least = smallest_ram({.device = "cpu", .threads = 1}, model, shapes);
    for (const Bytes more : {Bytes{0}, model.weight_bytes() / 3, 2 * model.weight_bytes() + 64_MiB}) {
      CAPTURE(more);
      Session session({.device = "cpu", .ram_cap = least + more, .threads = 1});
      const ModelHandle handle = session.add(model);
      const PlanSummary plan = session.plan(handle, shapes);
      for (int i = 0; i < 3; ++i) {
        CHECK(same_bits(session.run(handle, inputs), expected));
        if (i > 0) CHECK(*session.last_job().disk_read_bytes == plan.disk_bytes_per_pass);
      }
      CHECK(*session.stats().disk_read_bytes <= model.weight_bytes() + 2 * plan.disk_bytes_per_pass);
      if (more == 0 && model.weight_bytes() > 4_MiB) CHECK(plan.disk_bytes_per_pass > 0);
    }
  }
}

TEST_CASE("a wave reads its weights once for all its jobs") {
  const Model model = Model::open(archive("minilm_l6"));
  const auto inputs = inputs_of(model);
  const auto expected = on_cpu(model, inputs);
  const InputShapes shapes = shapes_of(inputs);
  const SessionOptions options{.device = "sim", .after_job = AfterJob::release, .wave = 4, .threads = 1};
  SessionOptions capped = options;
  {
    Session asking(options);
    const ModelHandle handle = asking.add(model);
    const auto plan = asking.plan_jobs(std::vector<PlannedJob>(4, {handle, shapes}));
    capped.vram_cap = *plan.front().min_cap_bytes + 4_MiB;
  }
  {
    SessionOptions none = options;
    none.ram_cap = 0;
    Session asking(none);
    const ModelHandle handle = asking.add(model);
    try {
      asking.plan_jobs(std::vector<PlannedJob>(4, {handle, shapes}));
    } catch (const RamCapTooSmall& e) {
      capped.ram_cap = e.min_ram_cap() + 8_MiB;
    }
  }
  REQUIRE(capped.ram_cap);
  Session session(capped);
  const ModelHandle handle = session.add(model);
  const PlanSummary plan = session.plan_jobs(std::vector<PlannedJob>(4, {handle, shapes})).front();
  CHECK(plan.wave == 4);
  CHECK(plan.disk_bytes_per_pass > 10_MiB);
  for (int i = 0; i < 2; ++i) {
    const Bytes before = *session.stats().disk_read_bytes;
    const auto outcomes = session.run_many(handle, std::vector<std::vector<at::Tensor>>(4, inputs));
    Bytes sum = 0;
    for (const JobOutcome& outcome : outcomes) {
      REQUIRE_FALSE(outcome.error);
      CHECK(same_bits(outcome.outputs, expected));
      sum += *outcome.stats.disk_read_bytes;
    }
    CHECK(sum == *session.stats().disk_read_bytes - before);
    if (i == 1) CHECK(sum == plan.disk_bytes_per_pass);
  }
}

TEST_CASE("a cap below the smallest is refused before anything is read, and the named one works") {
  const Model model = Model::open(archive("minilm_l6"));
  const auto inputs = inputs_of(model);
  for (const char* device : {"cpu", "sim"}) {
    CAPTURE(device);
    const Bytes least = smallest_ram({.device = device, .threads = 1}, model, shapes_of(inputs));
    Session session({.device = device, .ram_cap = least - 1, .threads = 1});
    const ModelHandle handle = session.add(model);
    CHECK_THROWS_WITH_AS(session.run(handle, inputs),
                         doctest::Contains(("the smallest that works is " + std::to_string(least)).c_str()),
                         RamCapTooSmall);
    CHECK(*session.stats().disk_read_bytes == 0);
    Session works({.device = device, .ram_cap = least, .threads = 1});
    CHECK_NOTHROW(works.run(works.add(model), inputs));
  }
}

TEST_CASE("a file that is cut off while it is used: a typed error, the baseline, and the session goes on") {
  const test::TempFolder folder;
  const BrittleFile file(folder.path(), "minilm_l6");
  const Model model = Model::open(file.path().string());
  const Model other = Model::open(archive("blocks_12x64"));
  const auto inputs = inputs_of(model), other_inputs = inputs_of(other);
  const auto expected = on_cpu(model, inputs), other_expected = on_cpu(other, other_inputs);
  for (const char* device : {"cpu", "sim"}) {
    CAPTURE(device);
    SessionOptions options{.device = device, .threads = 1};
    {
      SessionOptions none = options;
      none.ram_cap = 0;
      Session asking(none);
      const ModelHandle a = asking.add(model), b = asking.add(other);
      try {
        asking.plan_jobs({{a, shapes_of(inputs)}, {b, shapes_of(other_inputs)}});
      } catch (const RamCapTooSmall& e) {
        options.ram_cap = e.min_ram_cap() + 1_MiB;
      }
      if (std::string(device) == "sim") options.vram_cap = 40_MiB;
    }
    Session session(options);
    const ModelHandle handle = session.add(model), second = session.add(other);
    session.plan_jobs({{handle, shapes_of(inputs)}, {second, shapes_of(other_inputs)}});
    CHECK(same_bits(session.run(handle, inputs), expected));
    int failures = 0;
    for (int delay = 0; delay < 5; ++delay) {  // before, in the middle of, and after the job
      std::thread vandal([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10 * delay));
        file.shorten();
      });
      try {
        const auto results = session.run(handle, inputs);
        CHECK(same_bits(results, expected));
      } catch (const ArchiveError& e) {
        ++failures;
        CHECK(std::string(e.what()).find(file.path().string()) != std::string::npos);
        CHECK(std::string(e.what()).find("became shorter") != std::string::npos);
        check_baseline(session);
      }
      vandal.join();
      CHECK_THROWS_AS(session.run(handle, inputs), ArchiveError);
      check_baseline(session);
      CHECK(same_bits(session.run(second, other_inputs), other_expected));
      file.heal();
      CHECK(same_bits(session.run(handle, inputs), expected));
    }
    CHECK(failures > 0);
    file.heal();
  }
}

TEST_CASE(
    "a job that is cancelled while weights come from disk leaves nothing behind, and the next is right") {
  const Model model = Model::open(archive("minilm_l6"));
  const auto inputs = inputs_of(model);
  const auto expected = on_cpu(model, inputs);
  for (const char* device : {"cpu", "sim"}) {
    CAPTURE(device);
    const Bytes least = smallest_ram({.device = device, .threads = 1}, model, shapes_of(inputs));
    Session session({.device = device, .ram_cap = least, .threads = 1});
    const ModelHandle handle = session.add(model);
    for (int i = 0; i < 5; ++i) {
      std::thread impatient([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
        session.cancel();
      });
      try {
        session.run(handle, inputs);
      } catch (const Cancelled&) {
        check_baseline(session);
      }
      impatient.join();
      session.cancel(false);
      CHECK(same_bits(session.run(handle, inputs), expected));
    }
  }
}
