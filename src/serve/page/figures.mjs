// Drawings: the plot of tokens per second, and the lanes of devices.

import { svg } from "./dom.mjs";
import { duration, mergeBars, number } from "./measurements.mjs";

const WIDTH = 300;
const PLOT_HEIGHT = 84;
const LANE_HEIGHT = 30;
const LABEL_HEIGHT = 13;
const AXIS_HEIGHT = 14;
const MOST_BARS = 400;  // more could not be told apart

function drawing(height, label, ...children) {
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, ...children);
}

function text(x, y, words, attributes = {}) {
  return svg("text", { x, y, ...attributes }, words);
}

// A round number that the values stay below.
function ceilingOf(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most) ?? 10 * power;
}

export function ratePlot(points, clock) {
  const words = `Tokens per second over time, ${clock}`;
  const bottom = PLOT_HEIGHT - AXIS_HEIGHT, top = 12;
  if (points.length < 2) return drawing(PLOT_HEIGHT, words, svg("line", { x1: 0, x2: WIDTH, y1: bottom, y2: bottom, class: "axis" }));
  const from = points[0].ms, to = points.at(-1).ms;
  const most = ceilingOf(Math.max(...points.map((point) => point.rate)));
  const x = (ms) => (ms - from) / Math.max(to - from, 1e-6) * WIDTH;
  const y = (rate) => bottom - rate / most * (bottom - top);
  const corners = points.map(({ ms, rate }) => `${x(ms).toFixed(1)} ${y(rate).toFixed(1)}`);
  return drawing(PLOT_HEIGHT, words,
    svg("line", { x1: 0, x2: WIDTH, y1: top, y2: top, class: "grid" }),
    svg("path", { d: `M${corners.join("L")}L${WIDTH} ${bottom}L0 ${bottom}Z`, class: "area" }),
    svg("path", { d: `M${corners.join("L")}`, class: "curve" }),
    svg("line", { x1: 0, x2: WIDTH, y1: bottom, y2: bottom, class: "axis" }),
    text(0, top - 3, `${number(most)} tokens/s`),
    text(WIDTH, PLOT_HEIGHT - 3, `${duration(to)} of decoding`, { "text-anchor": "end" }));
}

export function laneDrawing({ span, lanes }, words) {
  const [from, to] = span;
  const scale = WIDTH / Math.max(to - from, 1e-9);
  const height = lanes.length * LANE_HEIGHT + AXIS_HEIGHT;
  const rows = lanes.map((lane, index) => {
    const top = index * LANE_HEIGHT + LABEL_HEIGHT;
    const bars = (lane.bars.length > MOST_BARS ? mergeBars(lane.bars, span, MOST_BARS) : lane.bars).map((bar) => svg("rect", {
      x: ((bar.from - from) * scale).toFixed(2), y: top, width: Math.max(0.4, (bar.to - bar.from) * scale).toFixed(2), height: 12,
    }, svg("title", {}, bar.count > 1 ? `${bar.count} dispatches` : `${bar.label}: ${duration(bar.to - bar.from)}`)));
    return svg("g", { class: `lane ${lane.tag.toLowerCase()}` },
      text(0, top - 3, `${lane.name} · ${lane.modelled ? "modelled" : "measured"} · ${lane.bars.length} dispatches`),
      svg("rect", { x: 0, y: top, width: WIDTH, height: 12, class: "track" }), ...bars);
  });
  return drawing(height, words, ...rows,
    text(0, height - 3, "0"), text(WIDTH, height - 3, duration(to - from), { "text-anchor": "end" }));
}
