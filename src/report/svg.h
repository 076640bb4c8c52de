// Drawing with text: a little SVG, coloured by the classes of html.h.
#pragma once

#include <string>
#include <vector>

#include "report/summary.h"

namespace tyto {

std::string escaped(const std::string& text);  // for HTML and SVG

class Svg {
 public:
  // Every drawing is this wide in its own units, so that its letters have one size on a page.
  static constexpr double kWidth = 360;

  void rect(double x, double y, double width, double height, const std::string& classes,
            double radius = 0, const std::string& tooltip = "");
  void line(double x1, double y1, double x2, double y2, const std::string& classes);
  void path(const std::string& d, const std::string& classes);
  void circle(double x, double y, double radius, const std::string& classes,
              const std::string& tooltip);
  // `anchor`: "start", "middle" or "end".
  void text(double x, double y, const std::string& content, const std::string& classes,
            const char* anchor = "start");
  void append(const Svg& other) { out_ += other.out_; }
  std::string take(double height, const std::string& label) const;

 private:
  std::string out_;
};

// The class of a device's colours, by its tag: "npu", or "none" for what no device does. The style
// has one colour for all tags that it does not know.
std::string tag_class(const std::string& tag);
std::string tag_series(const std::string& tag);  // the same for parts of a bar and for legends

// The classes of what a phase's device waits for take, and of the host's own work beside it.
std::string device_class(const PhaseSummary& phase);
std::string host_class(const PhaseSummary& phase);

// One part of a stacked bar.
struct Series {
  std::string label;
  std::string classes;
};

// The way of a request through the network, in order, with times.
std::string flow_drawing(const PhaseSummary& phase, bool prefill, bool modelled);

// Bars side by side, each a stack: values[bar][series]. `x_labels` has one text per bar, some
// empty.
std::string stacked_bars(const std::string& label, const std::string& unit,
                         const std::vector<Series>& series,
                         const std::vector<std::vector<double>>& values,
                         const std::vector<std::string>& x_labels, const std::string& x_title);
// One bar from end to end, its parts in proportion.
std::string share_bar(const std::string& label, const std::vector<Series>& series,
                      const std::vector<double>& values);
// Rows with a label, a bar and a value; a bar of 1 fills its track.
struct BarRow {
  std::string label;
  double value = 0;
  std::string text;
  std::string classes;
};
std::string row_bars(const std::string& label, const std::vector<BarRow>& rows);

// Points joined by a line, x on a logarithmic scale, with a bar for the spread.
struct Point {
  double x = 0, y = 0, low = 0, high = 0;
};
std::string line_plot(const std::string& label, const std::string& unit,
                      const std::vector<Point>& points, const std::string& x_title);

}  // namespace tyto
