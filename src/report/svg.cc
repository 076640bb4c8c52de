#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "report/table.h"

namespace tyto {
namespace {

constexpr double kLeft = 44, kRight = 352, kTop = 26;  // of a plot's area

// A round number not below `value`, and how many steps to draw up to it.
struct Scale {
  double top = 1;
  int steps = 4;
};
Scale nice_scale(double value) {
  if (value <= 0) return {};
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const auto& [factor, steps] : {std::pair{1.0, 4},
                                      {1.5, 3},
                                      {2.0, 4},
                                      {3.0, 3},
                                      {4.0, 4},
                                      {5.0, 5},
                                      {6.0, 3},
                                      {8.0, 4},
                                      {10.0, 5}})
    if (value <= factor * power) return {factor * power, steps};
  return {10 * power, 5};
}

void axes(Svg& svg, const Scale& scale, double bottom, const std::string& unit,
          const std::string& x_title) {
  for (int i = 0; i <= scale.steps; ++i) {
    const double y = bottom - (bottom - kTop) * i / scale.steps;
    svg.line(kLeft, y, kRight, y, i == 0 ? "axis" : "grid");
    svg.text(kLeft - 5, y + 3.5, fmt::format("{:.4g}", scale.top * i / scale.steps), "tick", "end");
  }
  svg.text(2, kTop - 13, unit, "tick");
  svg.text((kLeft + kRight) / 2, bottom + 28, x_title, "tick", "middle");
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string tag_class(const std::string& tag) {
  if (tag == "-") return "none";
  std::string letters;  // a tag may come from a file
  for (const char c : tag)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

std::string tag_series(const std::string& tag) {
  return "s-" + tag_class(tag);
}

std::string device_class(const PhaseSummary& phase) {
  return tag_series(phase.calls.empty() ? kHostTag : phase.calls.front().tag);
}

// Where the processor itself is the device, the host's work has a colour of its own.
std::string host_class(const PhaseSummary& phase) {
  const std::string processor = tag_series(kHostTag);
  return device_class(phase) == processor ? "s-host" : processor;
}

void Svg::rect(double x, double y, double width, double height, const std::string& classes,
               double radius, const std::string& tooltip) {
  out_ += fmt::format(
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" rx="{}" class="{}")", x, y,
      std::max(0.0, width), std::max(0.0, height), radius, classes);
  out_ += tooltip.empty() ? "/>" : "><title>" + escaped(tooltip) + "</title></rect>";
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& classes) {
  out_ += fmt::format(R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}" class="{}"/>)", x1,
                      y1, x2, y2, classes);
}

void Svg::path(const std::string& d, const std::string& classes) {
  out_ += fmt::format(R"(<path d="{}" class="{}"/>)", d, classes);
}

void Svg::circle(double x, double y, double radius, const std::string& classes,
                 const std::string& tooltip) {
  out_ +=
      fmt::format(R"(<circle cx="{:.2f}" cy="{:.2f}" r="{}" class="{}"><title>{}</title></circle>)",
                  x, y, radius, classes, escaped(tooltip));
}

void Svg::text(double x, double y, const std::string& content, const std::string& classes,
               const char* anchor) {
  if (content.empty()) return;
  out_ += fmt::format(R"(<text x="{:.2f}" y="{:.2f}" class="{}" text-anchor="{}">{}</text>)", x, y,
                      classes, anchor, escaped(content));
}

std::string Svg::take(double height, const std::string& label) const {
  return fmt::format(R"(<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>)", kWidth,
                     height, escaped(label), out_);
}

std::string stacked_bars(const std::string& label, const std::string& unit,
                         const std::vector<Series>& series,
                         const std::vector<std::vector<double>>& values,
                         const std::vector<std::string>& x_labels, const std::string& x_title) {
  constexpr double kBottom = 186;
  double highest = 0;
  for (const auto& bar : values) {
    double sum = 0;
    for (const double value : bar) sum += std::max(0.0, value);
    highest = std::max(highest, sum);
  }
  const Scale scale = nice_scale(highest);
  Svg svg;
  axes(svg, scale, kBottom, unit, x_title);
  const double step = (kRight - kLeft) / std::max<double>(1, static_cast<double>(values.size()));
  const double gap = step > 6 ? step * 0.18 : step > 3 ? 0.6 : 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    double y = kBottom;
    for (size_t s = 0; s < values[i].size(); ++s) {
      const double height = std::max(0.0, values[i][s]) / scale.top * (kBottom - kTop);
      y -= height;
      if (height > 0.05)
        svg.rect(x + gap / 2, y, step - gap, height, series[s].classes, 0,
                 fmt::format("{}: {} {} {}", x_labels[i], series[s].label,
                             milliseconds(values[i][s]), unit));
    }
    // As many labels as fit, evenly.
    const size_t every = std::max<size_t>(1, (values.size() + 9) / 10);
    if (i % every == 0) svg.text(x + step / 2, kBottom + 13, x_labels[i], "tick", "middle");
  }
  return svg.take(kBottom + 34, label);
}

std::string share_bar(const std::string& label, const std::vector<Series>& series,
                      const std::vector<double>& values) {
  constexpr double kHeight = 22;
  double total = 0;
  for (const double value : values) total += std::max(0.0, value);
  Svg svg;
  double x = 0;
  for (size_t i = 0; i < values.size() && total > 0; ++i) {
    const double share = std::max(0.0, values[i]) / total;
    const double width = share * Svg::kWidth;
    svg.rect(x, 0, width, kHeight, series[i].classes, 0,
             fmt::format("{} {}", series[i].label, percent(share)));
    if (width > 44)
      svg.text(x + width / 2, 15, fmt::format("{:.0f} %", share * 100), "onbar", "middle");
    x += width;
  }
  return svg.take(kHeight, label);
}

std::string row_bars(const std::string& label, const std::vector<BarRow>& rows) {
  constexpr double kStep = 22, kBarLeft = 108, kBarRight = 296;
  Svg svg;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = kStep * static_cast<double>(i);
    svg.text(kBarLeft - 6, y + 14.5, rows[i].label, "tick ink", "end");
    svg.rect(kBarLeft, y + 3, kBarRight - kBarLeft, kStep - 7, "track", 2);
    const double width = std::clamp(rows[i].value, 0.0, 1.0) * (kBarRight - kBarLeft);
    svg.rect(kBarLeft, y + 3, width, kStep - 7, rows[i].classes, 2, rows[i].text);
    svg.text(kBarRight + 6, y + 14.5, rows[i].text, "tick ink");
  }
  return svg.take(kStep * static_cast<double>(std::max<size_t>(1, rows.size())), label);
}

std::string line_plot(const std::string& label, const std::string& unit,
                      const std::vector<Point>& points, const std::string& x_title) {
  constexpr double kBottom = 186;
  double highest = 0, first = 0, last = 0;
  for (const Point& point : points) {
    highest = std::max(highest, point.high);
    first = first == 0 ? std::log2(point.x) : std::min(first, std::log2(point.x));
    last = std::max(last, std::log2(point.x));
  }
  const Scale scale = nice_scale(highest);
  const auto x_of = [&](double x) {
    const double part = last > first ? (std::log2(x) - first) / (last - first) : 0.5;
    return kLeft + 14 + part * (kRight - kLeft - 28);
  };
  const auto y_of = [&](double y) { return kBottom - y / scale.top * (kBottom - kTop); };
  Svg svg;
  axes(svg, scale, kBottom, unit, x_title);
  std::string path;
  for (const Point& point : points) {
    path += fmt::format("{}{:.2f} {:.2f}", path.empty() ? "M" : "L", x_of(point.x), y_of(point.y));
    svg.line(x_of(point.x), y_of(point.low), x_of(point.x), y_of(point.high), "spread");
    svg.text(x_of(point.x), kBottom + 13, fmt::format("{:g}", point.x), "tick", "middle");
  }
  svg.path(path, "curve");
  for (const Point& point : points)
    svg.circle(x_of(point.x), y_of(point.y), 3.5, "dot",
               fmt::format("{:g}: {:.4g} {}", point.x, point.y, unit));
  return svg.take(kBottom + 34, label);
}

}  // namespace tyto
