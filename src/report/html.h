#pragma once

#include <string>
#include <vector>

#include "report/summary.h"
#include "report/tables.h"

namespace tyto {

// Pieces of a page that several reports use. Inside src/report only.

std::string badge(bool modelled);
std::string table_html(const Table& table);
std::string notes_html(const Table& table);
std::string folded(const std::string& summary, const std::string& content);
std::string section(const Table& table, const std::string& drawings);  // long tables are folded
std::string tile(const std::string& value, const std::string& label, bool alarm = false);

// The look of the HTML report. Colours are variables, so that light and dark differ in one place.

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--paper:#faf9f6;--card:#ffffff;--ink:#1f1d1a;--muted:#6b665e;--line:#e2ded6;
--cpu:#3d6fa5;--cpu-bg:#edf3fa;--npu:#c8641b;--npu-bg:#fdf1e7;--other:#7a4fb5;--other-bg:#f4eefc;
--host:#8fb8e0;--copies:#1f8a7a;--scheduling:#9c968b;--unattributed:#c0262d;--track:#efece6;--result:#26231f;--inverse:#faf9f6;
--onbar:#ffffff;--bar:#6f6a62;--setup:#6e4a2c;
--p0:#5b8f3a;--p1:#d4b13f;--p2:#b5516f;--p3:#a9c46c;--p4:#6d4c6f;--p5:#dba0b9;--p6:#8a7f3a}
@media (prefers-color-scheme:dark){:root{--paper:#141517;--card:#1c1e21;--ink:#ebe8e2;--muted:#a09a90;--line:#34363a;
--cpu:#7fb0e6;--cpu-bg:#1c2733;--npu:#f2995a;--npu-bg:#33241a;--other:#bb97ee;--other-bg:#2a2236;
--host:#3f6d9e;--copies:#56c2b0;--scheduling:#8b867d;--unattributed:#ff6b6b;--track:#292b2f;--result:#ebe8e2;--inverse:#17181a;
--onbar:#17181a;--bar:#b3ada3;--setup:#d0a884;
--p0:#86bd62;--p1:#ead27a;--p2:#e08aa5;--p3:#5f7a34;--p4:#b394b6;--p5:#8a5870;--p6:#bfb26a}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main,header{max-width:1120px;margin:0 auto;padding:0 16px}
header{padding-top:28px;padding-bottom:4px}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 6px}
h2{font-size:1.15rem;margin:0 0 12px}
h3{font-size:.95rem;margin:0 0 8px;color:var(--muted);font-weight:600}
p{margin:.35em 0}
.lead{font-size:1.08rem;margin:12px 0 4px}
.muted,.notes{color:var(--muted);font-size:.86rem}
.badge{display:inline-block;font-size:.72rem;font-weight:700;letter-spacing:.04em;text-transform:uppercase;
color:var(--ink);border:1.5px dashed var(--muted);border-radius:99px;padding:1px 9px;vertical-align:.12em;margin-left:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(148px,1fr));gap:10px;margin:18px 0 6px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.tile b{display:block;font-size:1.35rem;line-height:1.25;font-weight:650}
.tile span{color:var(--muted);font-size:.8rem}
.tile.alarm{border-color:var(--unattributed)}.tile.alarm b{color:var(--unattributed)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px;margin:16px 0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:22px;align-items:start}
.pair>div{min-width:0}
svg{display:block;width:100%;max-width:520px;height:auto;margin:0 auto}
.wide svg{max-width:none}.left svg{margin-left:0}
section>div>h3{margin-top:14px}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.82rem;color:var(--muted);margin:8px 0 12px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px;vertical-align:-1px}
.scroll{overflow-x:auto;margin-top:12px;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.84rem}
th,td{padding:4px 9px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}
th{color:var(--muted);font-weight:600}
table.dense th,table.dense td{padding-left:5px;padding-right:5px}
td.n,th.n{text-align:right}
td.w{white-space:normal;min-width:11rem}
th:first-child,td:first-child{position:sticky;left:0;background:var(--card)}
tr.inner td:first-child{padding-left:24px}
tr.total td{font-weight:650;border-top:1.5px solid var(--muted)}
tr.alarm td{color:var(--unattributed);font-weight:650}
footer{max-width:1120px;margin:0 auto;padding:6px 16px 36px}
summary{cursor:pointer;color:var(--muted);font-size:.88rem;margin-top:12px}
text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--muted)}
text.strong{font-size:12.5px;font-weight:650}text.small{font-size:10.5px}text.tick{font-size:10px}
text.ink{fill:var(--ink)}text.muted{fill:var(--muted)}text.inverse{fill:var(--inverse)}text.alarmtext{fill:var(--unattributed);font-weight:700}
text.onbar{fill:var(--onbar);font-weight:650;font-size:10.5px}
.box{stroke-width:1.2;fill:var(--other-bg);stroke:var(--other)}
.box.cpu{fill:var(--cpu-bg);stroke:var(--cpu)}.box.npu{fill:var(--npu-bg);stroke:var(--npu)}
.fill{fill:var(--other)}.fill.cpu{fill:var(--cpu)}.fill.npu{fill:var(--npu)}.fill.none{fill:var(--scheduling)}
.pill{fill:var(--track);stroke:none}.pill.alarm{stroke:var(--unattributed);stroke-width:1.5}
.frame{fill:none;stroke:var(--muted);stroke-width:1.2;stroke-dasharray:5 4}
.flow,.loop{stroke:var(--muted);stroke-width:1.4;fill:none}.flowhead{fill:var(--muted)}
.result{fill:var(--result)}
.axis{stroke:var(--muted);stroke-width:1}.grid{stroke:var(--line);stroke-width:1}.track{fill:var(--track)}
.curve{fill:none;stroke:var(--bar);stroke-width:2}.dot,.bar{fill:var(--bar)}.spread{stroke:var(--bar);stroke-width:1.2;opacity:.6}
[class^="s-"]{fill:var(--other);background:var(--other)}
.s-cpu{fill:var(--cpu);background:var(--cpu)}.s-npu{fill:var(--npu);background:var(--npu)}
.s-host{fill:var(--host);background:var(--host)}
.s-copies{fill:var(--copies);background:var(--copies)}.s-scheduling{fill:var(--scheduling);background:var(--scheduling)}
.s-unattributed{fill:var(--unattributed);background:var(--unattributed)}
.p0{fill:var(--p0);background:var(--p0)}.p1{fill:var(--p1);background:var(--p1)}.p2{fill:var(--p2);background:var(--p2)}
.p3{fill:var(--p3);background:var(--p3)}.p4{fill:var(--p4);background:var(--p4)}.p5{fill:var(--p5);background:var(--p5)}
.p6{fill:var(--p6);background:var(--p6)}
.u0,.u1,.u2,.u3,.u4,.u5,.u6,.u7,.u8,.u9{fill:var(--setup);background:var(--setup);stroke:var(--card);stroke-width:.8}
.u1{opacity:.95}.u2{opacity:.9}.u3{opacity:.85}.u4{opacity:.8}.u5{opacity:.75}.u6{opacity:.7}.u7{opacity:.65}.u8{opacity:.6}.u9{opacity:.55}
@media (max-width:560px){body{font-size:14px}section{padding:14px 12px;border-radius:10px}h1{font-size:1.3rem}
main,header,footer{padding-left:8px;padding-right:8px}.tile b{font-size:1.25rem}}
@media print{section{break-inside:avoid}}
)css";

// Drawing with text: a little SVG, coloured by the classes of kStyle.

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
