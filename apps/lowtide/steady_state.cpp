#include "lowtide/steady_state.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>

#include "lowtide/report.hpp"

namespace lowtide::app {
namespace {

/// Resident memory moves by pages and by what an allocator keeps; slower growth than this is no leak.
constexpr double kHostNoise = 4096;
constexpr double kFragmentation = 0.05;
/// A later run that is slower than the first by more than this is worth a word.
constexpr double kSlower = 1.1;
/// A share of the time that is worth a larger cap or a wave.
constexpr double kStallShare = 0.2;
/// "About as fast as resident".
constexpr double kNearResident = 1.05;

std::string number(double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3f%s", value, unit);
  return text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", 100 * share);
  return text;
}

std::string trend_text(const Trend& trend) {
  char text[96];
  std::snprintf(text, sizeof(text), "%.1f +- %.1f B a run", trend.per_run, trend.half_width);
  return text;
}

std::vector<double> of_jobs(const Measured& measured,
                            const std::function<std::optional<double>(const JobStats&)>& value) {
  std::vector<double> values;
  for (const JobStats& job : measured.jobs) {
    if (const std::optional<double> v = value(job)) values.push_back(*v);
  }
  return values;
}

std::optional<double> as_double(const std::optional<Bytes>& bytes) {
  return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// Of all requests for memory in the measured runs; nothing where there were none.
std::optional<double> planned_share(const Measured& measured) {
  std::uint64_t hits = 0, all = 0;
  for (const JobStats& job : measured.jobs) {
    hits += job.plan_hits.value_or(0);
    all += job.plan_hits.value_or(0) + job.plan_misses.value_or(0);
  }
  if (all == 0) return std::nullopt;
  return static_cast<double>(hits) / static_cast<double>(all);
}

std::optional<double> later_s(const Measured& measured) {
  const std::vector<double> wall = of_jobs(measured, [](const JobStats& job) { return job.wall_s; });
  return wall.empty() ? std::nullopt : std::optional(median(wall));
}

std::optional<double> modelled_s(const Measured& measured) {
  return measured.jobs.empty() ? std::nullopt : measured.jobs.back().modelled_s;
}

std::optional<double> stable_peak(const Measured& measured) {
  const std::vector<double> peaks =
      of_jobs(measured, [](const JobStats& job) { return as_double(job.peak_bytes); });
  return peaks.empty() ? std::nullopt : std::optional(largest(peaks));
}

Trend device_trend(const Measured& measured) {
  return fit_trend(of_jobs(measured, [](const JobStats& job) { return as_double(job.used_after_bytes); }));
}

double steady_allocs(const Measured& measured) {
  return largest(of_jobs(
      measured, [](const JobStats& job) { return std::optional(static_cast<double>(job.driver_allocs)); }));
}

/// Collects the rows; a quantity that no setting has is left out.
class Page {
 public:
  explicit Page(const std::vector<Measured>& settings) : settings_(settings) {}

  using Quantity = std::function<std::optional<double>(const Measured&)>;
  using Text = std::function<std::string(double)>;
  void add(const std::string& name, const Quantity& quantity, const Text& text) {
    MeasuredRow row{.name = name, .values = {}};
    std::vector<std::optional<double>> values;
    for (const Measured& setting : settings_) {
      values.push_back(quantity(setting));
      row.values.push_back(values.back() ? text(*values.back()) : "-");
    }
    if (std::none_of(values.begin(), values.end(), [](const auto& v) { return v.has_value(); })) return;
    if (values.size() == 2) row.values.push_back(ratio(values[0], values[1]));
    rows_.push_back(std::move(row));
  }
  void add_trend(const std::string& name, const std::function<Trend(const Measured&)>& trend) {
    MeasuredRow row{.name = name, .values = {}};
    for (const Measured& setting : settings_) row.values.push_back(trend_text(trend(setting)));
    if (settings_.size() == 2) row.values.emplace_back();
    rows_.push_back(std::move(row));
  }
  std::vector<MeasuredRow> take() { return std::move(rows_); }

 private:
  static std::string ratio(const std::optional<double>& a, const std::optional<double>& b) {
    return a && b && *a > 0 ? number(*b / *a, " x") : std::string();
  }

  const std::vector<Measured>& settings_;
  std::vector<MeasuredRow> rows_;
};

std::string milliseconds(double seconds) {
  return number(seconds * 1e3, " ms");
}

std::string bytes(double value) {
  return format_bytes(static_cast<Bytes>(value));
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Trend fit_trend(const std::vector<double>& values) {
  if (values.size() < 3) return {};
  const auto n = static_cast<double>(values.size());
  const double mean_x = (n - 1) / 2;
  const double mean_y = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double dx = static_cast<double>(i) - mean_x;
    xy += dx * (values[i] - mean_y);
    xx += dx * dx;
  }
  Trend trend{.per_run = xy / xx};
  double rest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = values[i] - mean_y - trend.per_run * (static_cast<double>(i) - mean_x);
    rest += error * error;
  }
  // Student's t for 95 %, within 2 % from 3 degrees of freedom on: 1.96 + 2.4 / df + 2.8 / df^2 + 6 / df^4.
  const double df = n - 2;
  const double t = 1.96 + 2.4 / df + 2.8 / (df * df) + 6 / (df * df * df * df);
  trend.half_width = t * std::sqrt(rest / df / xx);
  return trend;
}

std::vector<MeasuredRow> measured_rows(const std::vector<Measured>& settings) {
  Page page(settings);
  page.add(
      "first run", [](const Measured& m) { return std::optional(m.first.wall_s); }, milliseconds);
  page.add("later runs, median", later_s, milliseconds);
  page.add("modelled, simulated card", modelled_s, milliseconds);
  page.add("stable peak of the device", stable_peak, bytes);
  page.add(
      "proved peak", [](const Measured& m) { return m.plan ? as_double(m.plan->peak_bytes) : std::nullopt; },
      bytes);
  page.add(
      "kept between runs", [](const Measured& m) { return as_double(m.stats.kept_bytes); }, bytes);
  if (std::any_of(settings.begin(), settings.end(), [](const Measured& m) { return m.plan.has_value(); })) {
    page.add_trend("slope of device memory", device_trend);
    page.add(
        "fragmentation at the peak", [](const Measured& m) { return fragmentation(m.stats); }, percent);
    page.add("driver allocations a run", steady_allocs,
             [](double v) { return std::to_string(std::lround(v)); });
    page.add("requests in planned places", planned_share, percent);
    page.add(
        "copied to the device a run",
        [](const Measured& m) { return std::optional(static_cast<double>(m.jobs.back().h2d_bytes)); }, bytes);
  }
  page.add_trend("slope of host memory", [](const Measured& m) { return fit_trend(m.host_bytes); });
  return page.take();
}

std::vector<std::string> advice(const Measured& measured) {
  std::vector<std::string> lines;
  if (const Trend trend = device_trend(measured); trend.rises())
    lines.push_back("device memory rises by " + trend_text(trend) +
                    ": please report this as an error of lowtide");
  if (const Trend trend = fit_trend(measured.host_bytes); trend.rises(kHostNoise))
    lines.push_back("host memory rises by " + trend_text(trend) +
                    ": run more (--runs 200) to tell a leak from an allocator that still settles");
  if (const double allocs = steady_allocs(measured); allocs > 0)
    lines.push_back(std::to_string(std::lround(allocs)) +
                    " allocations a run reach the driver: with --after-job keep the slab stays");
  if (const auto share = planned_share(measured); share && *share < 1)
    lines.push_back(
        percent(1 - *share) +
        " of the requests for memory have no planned place: --pattern on (the default) gives them one "
        "where sizes do not depend on data");
  if (const auto share = fragmentation(measured.stats); share && *share > kFragmentation)
    lines.push_back(percent(*share) + " of what is reserved at the peak is not in use");
  const std::optional<double> later = later_s(measured);
  if (later && *later > measured.first.wall_s * kSlower)
    lines.push_back("later runs are slower than the first: other programs use this machine, measure again");
  if (!measured.plan || !measured.plan->predicted_s) return lines;
  const PlanSummary& plan = *measured.plan;
  if (plan.workspace_state == WorkspaceState::bound && plan.workspace_bytes > 0)
    lines.push_back(
        "the proof rests on upper bounds; this run has measured the shape, the next plan will need less");
  if (plan.stall_s <= kStallShare * *plan.predicted_s || measured.curve.empty()) return lines;
  const double resident_s = measured.curve.back().predicted_s;
  const auto near = std::find_if(measured.curve.begin(), measured.curve.end(), [&](const CapPoint& point) {
    return point.predicted_s <= kNearResident * resident_s;
  });
  std::string line =
      percent(plan.stall_s / *plan.predicted_s) +
      " of the time the device waits for weights: --wave auto lets several jobs share each copy";
  if (near != measured.curve.end() && measured.cap_bytes && near->cap_bytes > *measured.cap_bytes &&
      measured.after_job == AfterJob::keep)
    line += ", a cap of " + format_bytes(near->cap_bytes) + " would take " + milliseconds(near->predicted_s);
  lines.push_back(line);
  return lines;
}

}  // namespace lowtide::app
