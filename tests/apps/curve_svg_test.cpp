#include "lowtide/curve_svg.hpp"

#include <doctest/doctest.h>

#include "../tensor_file/temp_dir.hpp"
#include "apps/xml_check.hpp"

using namespace lowtide;
using namespace lowtide::app;
using namespace lowtide::test;

namespace {

PlanPage page_with(const std::vector<CapPoint>& curve) {
  PlanPage page;
  page.plan.model = "layout";
  page.plan.shapes = "image f32[1, 3, 800, 608]";
  page.plan.peak_bytes = 90_MiB;
  page.plan.min_cap_bytes = 40_MiB;
  page.plan.predicted_s = 2e-3;
  page.device = {.name = "default", .kind = "sim", .total_bytes = 8_GiB};
  page.cap = 64_MiB;
  page.curve = curve;
  return page;
}

const std::vector<CapPoint> kCurve{{.cap_bytes = 40_MiB, .predicted_s = 4e-3, .wave = 4},
                                   {.cap_bytes = 60_MiB, .predicted_s = 2.5e-3, .wave = 4},
                                   {.cap_bytes = 80_MiB, .predicted_s = 1e-3, .wave = 1}};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// The number behind `name="` in each element that holds `mark`.
std::vector<double> places(const std::string& svg, const std::string& mark, const std::string& name) {
  std::vector<double> numbers;
  for (std::size_t at = svg.find(mark); at != std::string::npos; at = svg.find(mark, at + 1)) {
    const std::size_t tag = svg.rfind('<', at);
    numbers.push_back(std::stod(svg.substr(svg.find(name + "=\"", tag) + name.size() + 2)));
  }
  return numbers;
}

}  // namespace

TEST_CASE("the picture is well-formed and says whose curve it is") {
  const std::string svg = curve_svg(page_with(kCurve));
  CHECK(xml_problem(svg) == "");
  CHECK(contains(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(contains(svg, "layout: time of a job over the cap"));
  CHECK(contains(svg, "on the simulated card &apos;default&apos;"));
  CHECK(contains(svg, "[MiB]"));
  CHECK(contains(svg, "[ms]"));
}

TEST_CASE("every point of the curve is there, more memory to the right, less time further down") {
  const std::string svg = curve_svg(page_with(kCurve));
  const std::vector<double> x = places(svg, "class=\"point\"", "cx"),
                            y = places(svg, "class=\"point\"", "cy");
  REQUIRE(x.size() == kCurve.size());
  CHECK(x[0] < x[1]);
  CHECK(x[1] < x[2]);
  CHECK(y[0] < y[1]);  // downwards in a picture
  CHECK(y[1] < y[2]);
  CHECK(x[1] - x[0] == doctest::Approx(x[2] - x[1]).epsilon(0.01));
  CHECK(y[1] - y[0] == doctest::Approx(y[2] - y[1]).epsilon(0.01));
  CHECK(contains(svg, "40.0 MiB: 4.000 ms"));
  CHECK(count(svg, ">wave of 4</text>") == 1);  // said once, where it changes
  CHECK(count(svg, ">wave of 1</text>") == 1);
}

TEST_CASE("the cap in force is marked between its neighbours, and at the edge where it is far out") {
  PlanPage page = page_with(kCurve);
  const std::vector<double> points = places(curve_svg(page), "class=\"point\"", "cx");
  const std::vector<double> line = places(curve_svg(page), "class=\"cap\"", "x1");
  REQUIRE(line.size() == 1);
  CHECK(line[0] > points[1]);
  CHECK(line[0] < points[2]);
  CHECK(places(curve_svg(page), "class=\"plan\"", "cx") == line);
  CHECK(contains(curve_svg(page), ">cap 64.0 MiB: 2.000 ms</text>"));
  page.cap = 8_GiB;
  CHECK(contains(curve_svg(page), "cap 8.0 GiB: 2.000 ms (the cap is beyond the edge"));
  CHECK(places(curve_svg(page), "class=\"cap\"", "x1")[0] >= points[2]);
  page.cap.reset();
  CHECK(count(curve_svg(page), "class=\"cap\"") == 0);
}

TEST_CASE("names of strangers cannot break the picture") {
  PlanPage page = page_with(kCurve);
  for (const std::string& name :
       {std::string("</text><script>alert('x')</script>"), std::string("a & b \"c\" 'd' ]]>"),
        std::string("nul\0 bell\a esc\x1b", 14), std::string("broken \xff\xc3\x28 \xed\xa0\x80 \xf8"),
        std::string("cut \xe2\x82"), std::string("umlaut \xc3\xa4 \xe2\x82\xac"), std::string(5000, '<')}) {
    CAPTURE(name);
    page.plan.model = name;
    page.plan.shapes = name;
    page.device.name = name;
    CHECK(xml_problem(curve_svg(page)) == "");
    CHECK_FALSE(contains(curve_svg(page), "<script"));
  }
  CHECK(xml_text("\xc3\xa4\xff<", 90) == "\xc3\xa4\xef\xbf\xbd&lt;");
  CHECK(xml_text("\xf0\x9f\x98\x80!", 90) == "\xf0\x9f\x98\x80!");
  CHECK(xml_text("abcd", 3) == "abc...");
}

TEST_CASE("curves without extent can be drawn, and none gives no picture") {
  CHECK(curve_svg(page_with({})) == "");
  for (const std::vector<CapPoint>& curve :
       {std::vector<CapPoint>{{.cap_bytes = 40_MiB, .predicted_s = 1e-3}},
        std::vector<CapPoint>{{.cap_bytes = 0, .predicted_s = 0}, {.cap_bytes = 0, .predicted_s = 0}},
        std::vector<CapPoint>{{.cap_bytes = 40_MiB, .predicted_s = 1},
                              {.cap_bytes = 40_MiB + 1, .predicted_s = 1}},
        std::vector<CapPoint>{{.cap_bytes = 2_KiB, .predicted_s = 1e-9},
                              {.cap_bytes = 900_GiB, .predicted_s = 1e5}}}) {
    const std::string svg = curve_svg(page_with(curve));
    CHECK(xml_problem(svg) == "");
    CHECK(count(svg, "class=\"point\"") == curve.size());
    CHECK_FALSE(contains(svg, "nan"));
    CHECK_FALSE(contains(svg, "inf"));
    CHECK(svg.size() < 20'000);
  }
}
