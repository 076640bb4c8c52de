// The dataflow as a drawing: one box per step from top to bottom, the layers in a frame with their
// loop, and at the end what it came to.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/svg.h"
#include "report/table.h"

namespace tyto {
namespace {

constexpr double kArrow = 12;
constexpr double kMiddle = Svg::kWidth / 2;
constexpr double kOuterLeft = 14, kOuterRight = 346;
constexpr double kInnerLeft = 30, kInnerRight = 318;
constexpr double kSmallShare = 0.002;  // below it a step is one line without a frame

std::string subtitle(const FlowRow& row) {
  std::string text = row.tag == "-" ? "" : row.tag + (row.modelled ? ", modelled" : "");
  if (row.is_dispatch && row.launches > 1) text += fmt::format(" · {:.4g} launches", row.launches);
  if (!row.is_dispatch && !row.note.empty()) text += " · " + row.note;
  return text;
}

std::string copies(const FlowRow& row) {
  if (!row.is_dispatch || row.write_ms + row.read_ms <= 0) return "";
  return fmt::format("write {} / run {} / read {}", milliseconds(row.write_ms),
                     milliseconds(row.run_ms), milliseconds(row.read_ms));
}

class FlowDrawing {
 public:
  FlowDrawing(const PhaseSummary& phase, bool prefill)
      : phase_(phase), flow_(phase.flow), prefill_(prefill) {}

  std::string draw(const Attribution& wall, bool modelled) {
    start(prefill_ ? "prompt" : "last token");
    for (size_t i = 0; i < flow_.rows.size();) {
      if (flow_.rows[i].in_layer) {
        size_t end = i;
        while (end < flow_.rows.size() && flow_.rows[end].in_layer) ++end;
        layers(i, end);
        i = end;
      } else {
        step(flow_.rows[i++], kOuterLeft, kOuterRight);
      }
    }
    result(wall, modelled);
    return svg_.take(y_ + 4,
                     prefill_ ? "Dataflow of the prefill" : "Dataflow of one decoded token");
  }

 private:
  void start(const std::string& what) {
    svg_.rect(kMiddle - 46, y_, 92, 22, "pill", 11);
    svg_.text(kMiddle, y_ + 15, what, "small ink", "middle");
    y_ += 22;
  }

  void arrow() {
    svg_.line(kMiddle, y_, kMiddle, y_ + kArrow - 4, "flow");
    svg_.path(fmt::format("M{} {:.2f}l4 -5h-8z", kMiddle, y_ + kArrow), "flowhead");
    y_ += kArrow;
  }

  void step(const FlowRow& row, double left, double right) {
    if (row.tag == "-" || row.share < kSmallShare) return small_step(row, left, right);
    arrow();
    const std::string tag = tag_class(row.tag);
    const std::string third = copies(row);
    const double height =
        (third.empty() ? 38 : 50) + 40 * std::sqrt(std::clamp(row.share, 0.0, 1.0));
    const std::string tooltip =
        fmt::format("{}: {} ms, {}", row.label, milliseconds(row.total_ms), percent(row.share));
    svg_.rect(left, y_, right - left, height, "box " + tag, 6, tooltip);
    svg_.rect(left, y_, 5, height, "fill " + tag, 2);
    const double text_y = y_ + height / 2 - (third.empty() ? 4 : 10);
    svg_.text(left + 14, text_y, row.label, "strong ink");
    svg_.text(right - 10, text_y, milliseconds(row.ms) + " ms", "strong ink", "end");
    svg_.text(left + 14, text_y + 14, subtitle(row), "small muted");
    svg_.text(right - 10, text_y + 14, percent(row.share), "small muted", "end");
    svg_.text(left + 14, text_y + 27, third, "small muted");
    svg_.rect(left + 5, y_ + height - 3, row.share * (right - left - 5), 3, "fill " + tag);
    y_ += height;
  }

  void small_step(const FlowRow& row, double left, double right) {
    const bool alarm = row.label == "unattributed" && row.share > 0.01;
    y_ += 5;
    svg_.line(kMiddle, y_ - 5, kMiddle, y_, "flow");
    svg_.rect(left, y_, right - left, 19, alarm ? "pill alarm" : "pill", 5);
    svg_.text(left + 14, y_ + 13.5, row.label + (row.tag == "-" ? "" : " · " + subtitle(row)),
              "small muted");
    svg_.text(right - 10, y_ + 13.5,
              row.ms < 5e-7 ? (row.label == "pad" ? "none" : "0 ms") : milliseconds(row.ms) + " ms",
              alarm ? "small alarmtext" : "small muted", "end");
    y_ += 19;
  }

  void layers(size_t begin, size_t end) {
    arrow();
    const double top = y_;
    Svg inner;
    std::swap(inner, svg_);  // the frame's height is known after its contents
    y_ += 26;
    for (size_t i = begin; i < end; ++i) step(flow_.rows[i], kInnerLeft, kInnerRight);
    y_ += 10;
    std::swap(inner, svg_);
    const double bottom = y_;
    svg_.rect(kOuterLeft, top, kOuterRight - kOuterLeft, bottom - top, "frame", 9);
    svg_.text(kInnerLeft, top + 17,
              fmt::format("× {} layer{}", flow_.layers, flow_.layers == 1 ? "" : "s"),
              "strong ink");
    svg_.text(kInnerRight, top + 17,
              fmt::format("{} ms each, {} ms", milliseconds(flow_.layer_ms),
                          milliseconds(flow_.layer_ms * flow_.layers)),
              "small muted", "end");
    svg_.append(inner);
    svg_.path(
        fmt::format("M{} {:.2f}h16v{:.2f}h-10", kInnerRight, bottom - 22, -(bottom - top - 50)),
        "loop");
    svg_.path(fmt::format("M{} {:.2f}l6 -4v8z", kInnerRight + 1, top + 28.0), "flowhead");
  }

  void result(const Attribution& wall, bool modelled) {
    arrow();
    const double width = kOuterRight - kOuterLeft;
    svg_.rect(kOuterLeft, y_, width, 54, "result", 8);
    svg_.text(kOuterLeft + 14, y_ + 22, prefill_ ? "first token" : "next token", "strong inverse");
    svg_.text(kOuterRight - 12, y_ + 22,
              fmt::format("{} {} ms{}", prefill_ ? "TTFT" : "TPOT", milliseconds(flow_.total_ms),
                          modelled ? ", modelled" : ""),
              "strong inverse", "end");
    double x = kOuterLeft + 14;
    const double bar = width - 26;
    const std::pair<double, std::string> parts[] = {{wall.device, device_class(phase_)},
                                                    {wall.host, host_class(phase_)},
                                                    {wall.copies, "s-copies"},
                                                    {wall.scheduling, "s-scheduling"},
                                                    {wall.unattributed, "s-unattributed"}};
    for (const auto& [value, classes] : parts) {
      const double part = wall.wall > 0 ? std::max(0.0, value) / wall.wall * bar : 0;
      svg_.rect(x, y_ + 34, part, 9, classes);
      x += part;
    }
    y_ += 54;
  }

  const PhaseSummary& phase_;
  const Flow& flow_;
  bool prefill_;
  Svg svg_;
  double y_ = 4;
};

}  // namespace

std::string flow_drawing(const PhaseSummary& phase, bool prefill, bool modelled) {
  return FlowDrawing(phase, prefill).draw(phase.wall, modelled);
}

}  // namespace tyto
