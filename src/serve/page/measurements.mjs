// What a receipt, a stream's timings and a profile say, as values to show. Nothing modelled is ever called measured.

// Where the answer came from, the most important last. `kind` is a class of the style.
export function badgesOf(receipt) {
  const badges = [receipt.virtual
    ? { kind: "virtual", text: "virtual device: modelled" }
    : { kind: "real", text: "real hardware" }];
  const fallen = fallOf(receipt);
  if (fallen) badges.push({ kind: "fell-back", text: "fell back", why: fallen });
  if (isRefused(receipt)) badges.push({ kind: "refused", text: "refused", why: receipt.plausibility.reasons.join("; ") });
  return badges;
}

// Whether the speed was refused: neither it is shown nor what it could be computed from.
export function isRefused(receipt) {
  return receipt?.plausibility?.verdict === "refused";
}

// A fallback beside a device that did its work is no fall: a device that failed is, and one that did nothing.
function fallOf(receipt) {
  if (receipt.recoveries > 0) return `work was run again ${receipt.recoveries === 1 ? "once" : `${receipt.recoveries} times`} after a device failed`;
  const failed = receipt.submissions - receipt.completions;
  if (failed > 0) return `${failed} of ${receipt.submissions} submissions were not completed`;
  const others = receipt.devices.filter((device) => !device.host && device.completions > 0);
  if (receipt.fallbacks.length > 0 && others.length === 0) return "no device but the host did any of the work";
  return "";
}

// What wall time means for this answer. Before the receipt is there the stream's timings may tell.
export function clockOf(receipt, timings = null) {
  if (!receipt) return timings?.simulation_predicted_ms === undefined ? "wall time so far" : "simulation's wall time";
  if (isRefused(receipt)) return "refused";
  return receipt.timing.clock === "simulation" ? "simulation's wall time" : "measured";
}

// Rows of name, value and whose time it is. `seen` is what this browser saw: ttftMs and the last timings.
export function figuresOf(seen, receipt) {
  if (isRefused(receipt)) return countsOf(seen, receipt);
  const clock = clockOf(receipt, seen.timings);
  const rows = [];
  if (seen.ttftMs !== null) rows.push({ name: "TTFT", value: duration(seen.ttftMs), clock });
  const rate = receipt?.timing.decode_tok_s ?? rateOf(seen.timings);
  if (rate > 0) {
    rows.push({ name: "Per token", value: duration(1000 / rate), clock });
    rows.push({ name: "Tokens/s", value: number(rate), clock });
  }
  rows.push(...modelledOf(receipt));
  return [...rows, ...countsOf(seen, receipt)];
}

function rateOf(timings) {
  if (!timings || timings.predicted_n < 2 || !(decodeMs(timings) > 0)) return 0;
  return timings.predicted_per_second ?? (timings.predicted_n - 1) * 1000 / decodeMs(timings);
}

// Since the first token, which comes out of the prefill. A simulation's time has a name of its own.
function decodeMs(timings) {
  return timings.predicted_ms ?? timings.simulation_predicted_ms;
}

function modelledOf(receipt) {
  const { modelled_prefill_s: prefill, modelled_decode_s: decode } = receipt?.timing ?? {};
  const rows = [];
  if (prefill !== undefined) rows.push({ name: "TTFT", value: duration(prefill * 1000), clock: "modelled" });
  if (decode !== undefined && receipt.decoded_tokens > 0) {
    const tokenMs = decode * 1000 / receipt.decoded_tokens;
    rows.push({ name: "Per token", value: duration(tokenMs), clock: "modelled" });
    rows.push({ name: "Tokens/s", value: number(1000 / tokenMs), clock: "modelled" });
  }
  return rows;
}

function countsOf({ timings }, receipt) {
  const rows = [];
  const cached = receipt?.cached_tokens ?? timings?.cache_n;
  const run = receipt?.prompt_tokens ?? timings?.prompt_n;
  const generated = receipt?.generated_tokens ?? timings?.predicted_n;
  if (run !== undefined) rows.push({ name: "Prompt", value: `${run + (cached ?? 0)}`, clock: `${tokenWord(run + (cached ?? 0))}, ${cached ?? 0} cached` });
  if (generated !== undefined) rows.push({ name: "Answer", value: `${generated}`, clock: tokenWord(generated) });
  const dispatches = receipt?.dispatches_per_token;
  if (typeof dispatches === "number") rows.push({ name: "Dispatches", value: number(dispatches), clock: "per token, counted" });
  return rows;
}

// Tokens per second over time, from the timings of each piece; at most `most` points, of which half are dropped when
// it is full.
export class RateSeries {
  constructor(most = 240) {
    this.most = most;
    this.points = [];  // {ms, rate}
    this.last = null;
    this.stride = 1;   // tokens from point to point
  }

  add(timings) {
    const tokens = timings.predicted_n, ms = decodeMs(timings);
    this.last ??= { tokens, ms };
    if (tokens - this.last.tokens < this.stride || ms <= this.last.ms) return;
    this.points.push({ ms, rate: (tokens - this.last.tokens) * 1000 / (ms - this.last.ms) });
    this.last = { tokens, ms };
    if (this.points.length < this.most) return;
    this.points = this.points.filter((_, index) => index % 2 === 1);
    this.stride *= 2;
  }
}

// A profile's first run: a lane per device, with what it did as bars in ms, and where tokens end.
//   {span: [from, to], lanes: [{name, tag, modelled, bars: [{from, to, label}]}]}
export function lanesOf(profile, token = null) {
  const column = Object.fromEntries(profile.event_columns.map((name, index) => [name, index]));
  const kind = (event) => profile.event_kinds[event[column.kind]];
  const parts = new Set(["upload", "submit", "wait", "download"]);
  const lanes = profile.facts.devices.map(({ name, tag, virtual }) => ({ name, tag, modelled: virtual, bars: new Map() }));
  for (const event of profile.runs[0].events) {
    if (!parts.has(kind(event)) || (token !== null && event[column.token] !== token)) continue;
    const bars = lanes[event[column.device]].bars;
    const from = event[column.start_ns] / 1e6, to = event[column.end_ns] / 1e6;
    const bar = bars.get(event[column.dispatch]);
    if (bar) {
      bar.from = Math.min(bar.from, from);
      bar.to = Math.max(bar.to, to);
    } else {
      bars.set(event[column.dispatch], { from, to, label: nameOf(profile.names[event[column.name]]) });
    }
  }
  const ended = lanes.map((lane) => ({ ...lane, bars: [...lane.bars.values()].sort((a, b) => a.from - b.from) }))
    .filter((lane) => lane.bars.length > 0);
  const all = ended.flatMap((lane) => lane.bars);
  const span = all.reduce(([from, to], bar) => [Math.min(from, bar.from), Math.max(to, bar.to)], [Infinity, 0]);
  return { span: all.length ? span : [0, 0], lanes: ended };
}

function nameOf([label, layer]) {
  return layer >= 0 ? `${label}, layer ${layer}` : label;
}

// What the recording holds: a long answer outgrows it, and the rest is not drawn as if there were none.
export function recordedPart(profile) {
  const { lost, events } = profile.runs[0];
  if (!lost) return "The whole request";
  return `The beginning of the request: ${events.length.toLocaleString("en")} of ${(events.length + lost).toLocaleString("en")} events were recorded`;
}

// A decoded token from the middle of the recording: neither the first, which wakes things up, nor the last. Null: none was decoded.
export function middleToken(profile) {
  const at = profile.event_columns.indexOf("token");
  const last = profile.runs[0].events.reduce((most, event) => Math.max(most, event[at]), 0);
  return last === 0 ? null : Math.ceil(last / 2);
}

// Bars that would touch on a drawing of this many columns become one.
export function mergeBars(bars, [from, to], columns) {
  const gap = (to - from) / columns;
  const merged = [];
  for (const bar of bars) {
    const last = merged.at(-1);
    if (last && bar.from - last.to < gap) {
      last.to = Math.max(last.to, bar.to);
      last.count += 1;
    } else {
      merged.push({ ...bar, count: 1 });
    }
  }
  return merged;
}

export function duration(ms) {
  if (ms >= 60_000) return `${number(ms / 60_000)} min`;
  if (ms >= 1000) return `${number(ms / 1000)} s`;
  return ms >= 0.1 ? `${number(ms)} ms` : `${number(ms * 1000)} µs`;
}

// Three digits, and no more than are known.
export function number(value) {
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function tokenWord(count) {
  return count === 1 ? "token" : "tokens";
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0, value = count;
  for (; value >= 1000 && unit < units.length - 1; ++unit) value /= 1000;
  return `${number(value)} ${units[unit]}`;
}
