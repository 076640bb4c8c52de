// Beside an answer: where its time went, live while it streams, and what the receipt says once it is there.

import { getJson } from "./api.mjs";
import { button, h, onceAFrame } from "./dom.mjs";
import { laneDrawing, ratePlot } from "./figures.mjs";
import { RateSeries, badgesOf, clockOf, figuresOf, isRefused, lanesOf, middleToken, recordedPart } from "./measurements.mjs";

export function badgeElements(receipt) {
  return badgesOf(receipt).map(({ kind, text, why }) => h("span", { class: `badge ${kind}`, title: why }, text));
}

export class ProfilePanel {
  constructor() {
    this.measured = { id: null, ttftMs: null, timings: null, points: [], receipt: null };
    this.series = new RateSeries();
    this.badges = h("p", { class: "badges" });
    this.figures = h("dl", { class: "figures" });
    this.plot = h("div", { class: "plot" });
    this.notes = h("div", { class: "notes" });
    this.lanes = h("div", { class: "lanes" });
    this.element = h("aside", { class: "profile", "aria-label": "Where the time went", "aria-live": "off" },
      this.badges, this.figures, this.plot, this.lanes, this.notes);
    this.drawSoon = onceAFrame(() => this.draw());
  }

  // One that was measured earlier and kept with the conversation.
  static of(measured) {
    const panel = new ProfilePanel();
    Object.assign(panel.measured, measured);
    panel.draw();
    panel.offerLanes();
    return panel;
  }

  firstToken(ttftMs) {
    this.measured.ttftMs = ttftMs;
    this.drawSoon();
  }

  timings(timings) {
    this.measured.timings = timings;
    this.series.add(timings);
    this.measured.points = this.series.points;
    this.drawSoon();
  }

  // The hashes of loaded images are long, and are in the receipt that the server keeps. The command line is the server's
  // alone: conversations are exported.
  receipt(id, receipt) {
    this.measured.id = id;
    this.measured.receipt = { ...receipt, hashes: undefined, command: undefined };
    this.draw();
  }

  draw() {
    const { receipt, points, timings } = this.measured;
    const clock = clockOf(receipt, timings);
    this.badges.replaceChildren(...(receipt ? badgeElements(receipt) : []));
    this.figures.replaceChildren(...figuresOf(this.measured, receipt).map(({ name, value, clock: whose }) =>
      h("div", { class: whose === "modelled" ? "modelled" : null }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "whose" }, whose))));
    this.plot.replaceChildren(...(isRefused(receipt) || points.length < 2 ? [] : [ratePlot(points, clock), h("p", { class: "caption" }, `Tokens/s, ${clock}`)]));
    this.notes.replaceChildren(...(receipt ? this.notesOf(receipt) : []));
  }

  notesOf(receipt) {
    const notes = [];
    if (isRefused(receipt))
      notes.push(h("p", { class: "alarm" }, `No speed is shown: ${receipt.plausibility.reasons.join("; ")}.`));
    if (receipt.timing.clock === "simulation")
      notes.push(h("p", {}, "The virtual device is simulated here: wall time is that of the simulation, and says nothing about a real device."));
    if (receipt.fallbacks.length)
      notes.push(h("details", {}, h("summary", {}, receipt.fallbacks.length === 1 ? "1 fallback" : `${receipt.fallbacks.length} fallbacks`),
        h("ul", {}, receipt.fallbacks.map((line) => h("li", {}, line)))));
    if (receipt.on_host?.length) notes.push(h("p", {}, `On the host by design: ${receipt.on_host.join(", ")}.`));
    if (this.measured.id) notes.push(h("p", {}, h("a", { href: `#requests/${encodeURIComponent(this.measured.id)}` }, "Receipt and dataflow")));
    return notes;
  }

  hasLanes() {
    return this.measured.id !== null && !isRefused(this.measured.receipt);
  }

  // Lanes come with the recording, which the server keeps for a while. It records one request at a time.
  async loadLanes() {
    if (!this.hasLanes()) return;
    try {
      const profile = await getJson(`v1/receipts/${encodeURIComponent(this.measured.id)}/profile.json`);
      this.drawLanes(profile);
    } catch (error) {
      this.lanes.replaceChildren(h("p", { class: "caption" }, `No device lanes: ${error.message}`));
    }
  }

  offerLanes() {
    if (this.hasLanes()) this.lanes.replaceChildren(button("Show device lanes", () => this.loadLanes(), { class: "quiet small" }));
  }

  drawLanes(profile) {
    const token = middleToken(profile);
    const drawings = [[recordedPart(profile), lanesOf(profile)]];
    if (token !== null) drawings.push([`Token ${token}, alone`, lanesOf(profile, token)]);
    this.lanes.replaceChildren(...drawings.filter(([, lanes]) => lanes.lanes.length > 0).flatMap(([title, lanes]) =>
      [h("h3", {}, title), laneDrawing(lanes, `${title}: what each device did over time`)]));
  }
}
