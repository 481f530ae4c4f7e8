#include "lowtide/curve_svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lowtide/plan_text.hpp"

namespace lowtide::app {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 460;
constexpr double kLeft = 84;
constexpr double kRight = kWidth - 32;
constexpr double kTop = 96;
constexpr double kBottom = kHeight - 64;
constexpr int kTicks = 6;  // about
constexpr std::size_t kLongestLine = 90;
constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string number(double value, const char* format = "%.1f") {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// A range with round ends, in units of its own.
struct Axis {
  double from = 0;
  double step = 1;
  int steps = 1;
  double unit = 1;  // bytes or seconds
  const char* unit_name = "";

  double to() const { return from + step * steps; }
  double tick(int index) const { return from + step * index; }
  /// 0 at its beginning, 1 at its end; what lies outside is drawn at the edge.
  double share(double value) const { return std::clamp((value / unit - from) / (to() - from), 0.0, 1.0); }
  bool holds(double value) const { return value / unit >= from && value / unit <= to(); }
};

/// 1, 2 or 5 times a power of ten, so that about kTicks of them cover `range`.
double round_step(double range) {
  const double least = range / kTicks;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

/// Holds `low` to `high`, both in bytes or seconds. A curve of one point gets some room around it.
Axis make_axis(double low, double high, double unit, const char* unit_name) {
  Axis axis{.unit = unit, .unit_name = unit_name};
  low /= unit;
  high /= unit;
  const double range = high - low;
  axis.step = round_step(std::isfinite(range) && range > 0 ? range : std::max(1.0, std::abs(high)));
  axis.from = std::floor(low / axis.step) * axis.step;
  axis.steps = std::clamp(static_cast<int>(std::ceil((high - axis.from) / axis.step - 1e-9)), 1, 2 * kTicks);
  return axis;
}

Axis cap_axis(const std::vector<CapPoint>& curve) {
  const auto low = static_cast<double>(curve.front().cap_bytes);
  const auto high = static_cast<double>(curve.back().cap_bytes);
  if (high >= 2.0 * static_cast<double>(1_GiB))
    return make_axis(low, high, static_cast<double>(1_GiB), "GiB");
  if (high >= 2.0 * static_cast<double>(1_MiB))
    return make_axis(low, high, static_cast<double>(1_MiB), "MiB");
  return make_axis(low, high, static_cast<double>(1_KiB), "KiB");
}

Axis time_axis(const std::vector<CapPoint>& curve) {
  constexpr double kMilli = 1e-3;
  double high = 0;
  for (const CapPoint& point : curve) high = std::max(high, point.predicted_s);
  return high >= 2 ? make_axis(0, high, 1, "s") : make_axis(0, high, kMilli, "ms");
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" +
         number(y2) + "\" " + style + "/>\n";
}

/// `anchor`: start, middle or end. `more`: further attributes. `text` is escaped already.
std::string label(double x, double y, const char* anchor, const std::string& text,
                  const std::string& more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
         text + "</text>\n";
}

/// `title` is what a viewer shows when the pointer rests on it.
std::string circle(double x, double y, const std::string& style, const std::string& title) {
  return "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" " + style + "><title>" + title +
         "</title></circle>\n";
}

class Picture {
 public:
  explicit Picture(const PlanPage& page)
      : page_(page), caps_(cap_axis(page.curve)), times_(time_axis(page.curve)) {}

  std::string draw() const {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " +
           number(kWidth, "%.0f") + " " + number(kHeight, "%.0f") +
           "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
           heading() + grid() + chosen_cap() + steps() + points() + "</svg>\n";
  }

 private:
  double x(double bytes) const { return kLeft + caps_.share(bytes) * (kRight - kLeft); }
  double x(const CapPoint& point) const { return x(static_cast<double>(point.cap_bytes)); }
  double y(double seconds) const { return kBottom - times_.share(seconds) * (kBottom - kTop); }

  std::string heading() const {
    return label(kLeft, 28, "start",
                 xml_text(page_.plan.model + ": time of a job over the cap", kLongestLine),
                 " font-size=\"16\" font-weight=\"bold\"") +
           label(kLeft, 48, "start", xml_text(figures_of(page_.device), kLongestLine)) +
           label(kLeft, 66, "start", xml_text(page_.plan.shapes, kLongestLine), " fill=\"#666\"");
  }

  std::string grid() const {
    std::string text;
    for (int i = 0; i <= caps_.steps; ++i) {
      const double at = x(caps_.tick(i) * caps_.unit);
      text += line(at, kTop, at, kBottom + 5, "stroke=\"#e4e4e4\"");
      text += label(at, kBottom + 20, "middle", number(caps_.tick(i), "%.6g"));
    }
    for (int i = 0; i <= times_.steps; ++i) {
      const double at = y(times_.tick(i) * times_.unit);
      text += line(kLeft - 5, at, kRight, at, "stroke=\"#e4e4e4\"");
      text += label(kLeft - 10, at + 4, "end", number(times_.tick(i), "%.6g"));
    }
    text += line(kLeft, kBottom, kRight, kBottom, "stroke=\"#222\"");
    text += line(kLeft, kTop, kLeft, kBottom, "stroke=\"#222\"");
    text += label((kLeft + kRight) / 2, kHeight - 18, "middle",
                  std::string("device memory, all included [") + caps_.unit_name + "]");
    const std::string middle = number((kTop + kBottom) / 2);
    text += label(24, (kTop + kBottom) / 2, "middle",
                  std::string("predicted time of a job [") + times_.unit_name + "]",
                  " transform=\"rotate(-90 24 " + middle + ")\"");
    return text;
  }

  std::string chosen_cap() const {
    if (!page_.cap) return {};
    const auto cap = static_cast<double>(*page_.cap);
    const double at = x(cap);
    const bool outside = !caps_.holds(cap);
    std::string text = "cap " + format_bytes(*page_.cap);
    if (page_.plan.predicted_s) text += ": " + seconds_text(*page_.plan.predicted_s);
    if (outside) text += " (the cap is beyond the edge of the picture)";
    const bool left_half = at < (kLeft + kRight) / 2;
    std::string mark =
        line(at, kTop - 8, at, kBottom, "stroke=\"#c0392b\" stroke-dasharray=\"5 4\" class=\"cap\"") +
        label(at, kTop - 12, left_half ? "start" : "end", text, " fill=\"#c0392b\"");
    if (page_.plan.predicted_s)
      mark += circle(at, y(*page_.plan.predicted_s), "r=\"7\" fill=\"#c0392b\" class=\"plan\"",
                     "the plan: " + seconds_text(*page_.plan.predicted_s));
    return mark;
  }

  std::string steps() const {
    std::string path =
        "M " + number(x(page_.curve.front())) + " " + number(y(page_.curve.front().predicted_s));
    for (const CapPoint& point : page_.curve)
      path += " H " + number(x(point)) + " V " + number(y(point.predicted_s));
    path += " H " + number(kRight);  // more memory is never slower
    return "<path d=\"" + path + "\" fill=\"none\" stroke=\"#1f6f8b\" stroke-width=\"2\"/>\n";
  }

  std::string points() const {
    std::string text;
    int wave = 1;  // said where it changes
    for (const CapPoint& point : page_.curve) {
      const double at = x(point), above = y(point.predicted_s);
      text += circle(at, above, "r=\"4\" fill=\"#1f6f8b\" class=\"point\"", describe(point));
      if (point.wave != wave) {
        const bool at_the_edge = at > kRight - 60;  // the words would not fit beside it
        text += label(at_the_edge ? kRight : at + 6, at_the_edge ? above + 16 : above - 8,
                      at_the_edge ? "end" : "start", "wave of " + std::to_string(point.wave),
                      " font-size=\"10\" fill=\"#666\"");
      }
      wave = point.wave;
    }
    return text;
  }

  static std::string describe(const CapPoint& point) {
    std::string text = format_bytes(point.cap_bytes) + ": " + seconds_text(point.predicted_s) +
                       ", resident " + format_bytes(point.resident_bytes) + ", streamed " +
                       format_bytes(point.streamed_bytes);
    if (point.wave != 1) text += ", wave of " + std::to_string(point.wave);
    return text;
  }

  const PlanPage& page_;
  Axis caps_;
  Axis times_;
};

/// Length of the well-formed UTF-8 character that `text` begins with; 0 where it begins with none.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return overlong || surrogate || code > 0x10FFFF || (code & ~1U) == 0xFFFE ? 0 : length;
}

std::string escaped(std::string_view character) {
  if (character == "&") return "&amp;";
  if (character == "<") return "&lt;";
  if (character == ">") return "&gt;";
  if (character == "\"") return "&quot;";
  if (character == "'") return "&apos;";
  const auto first = static_cast<unsigned char>(character.front());
  return first < 0x20 || first == 0x7F ? kReplacement : std::string(character);
}

}  // namespace

std::string curve_svg(const PlanPage& page) {
  return page.curve.empty() ? std::string() : Picture(page).draw();
}

std::string xml_text(std::string_view text, std::size_t longest) {
  std::string result;
  for (std::size_t characters = 0; !text.empty(); ++characters) {
    if (characters == longest) return result + "...";
    const std::size_t length = character_length(text);
    result += length == 0 ? kReplacement : escaped(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

}  // namespace lowtide::app
