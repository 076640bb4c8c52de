// What the page says of receipts, timings and profiles, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { RateSeries, badgesOf, bytes, clockOf, duration, figuresOf, lanesOf, mergeBars, middleToken, number, recordedPart } from "../../src/serve/page/measurements.mjs";

const CPU = { name: "cpu", tag: "CPU", virtual: false, host: true, submissions: 4, completions: 4 };
const VNPU = { name: "vnpu", tag: "NPU", virtual: true, host: false, submissions: 6, completions: 6 };

function receipt(changes = {}) {
  return {
    virtual: false, devices: [CPU], submissions: 4, completions: 4, recoveries: 0, fallbacks: [], prompt_tokens: 8, cached_tokens: 6,
    generated_tokens: 11, decoded_tokens: 10, dispatches_per_token: 18, timing: { clock: "wall", decode_tok_s: 250 },
    plausibility: { verdict: "plausible", reasons: [] }, ...changes,
  };
}

const simulated = (changes = {}) => receipt({
  virtual: true, devices: [VNPU, CPU], fallbacks: [], on_host: ["embedding"],
  timing: { clock: "simulation", modelled_prefill_s: 0.05, modelled_decode_s: 0.05 }, ...changes,
});

const kinds = (of) => badgesOf(of).map((badge) => badge.kind);

test("badges", () => {
  assert.deepEqual(kinds(receipt()), ["real"]);
  assert.deepEqual(kinds(simulated()), ["virtual"]);
  assert.deepEqual(kinds(simulated({ recoveries: 1 })), ["virtual", "fell-back"]);
  assert.deepEqual(kinds(receipt({ completions: 3 })), ["real", "fell-back"]);
  assert.deepEqual(kinds(receipt({ fallbacks: ["matmul not on npu: no image"] })), ["real", "fell-back"]);
  assert.deepEqual(kinds(receipt({ plausibility: { verdict: "refused", reasons: ["too fast"] } })), ["real", "refused"]);
});

test("no number of a simulation is called measured", () => {
  const seen = { ttftMs: 300, timings: { cache_n: 6, prompt_n: 8, predicted_n: 11, predicted_ms: 10, predicted_per_second: 1100 } };
  const whose = (rows, name) => rows.filter((row) => row.name === name).map((row) => `${row.value} ${row.clock}`);
  const rows = figuresOf(seen, simulated());
  assert.deepEqual(whose(rows, "TTFT"), ["300 ms simulation's wall time", "50 ms modelled"]);
  assert.deepEqual(whose(rows, "Tokens/s"), ["1,100 simulation's wall time", "200 modelled"]);
  assert.ok(rows.every((row) => row.clock !== "measured"));
  assert.deepEqual(whose(figuresOf(seen, receipt()), "Tokens/s"), ["250 measured"]);
  assert.deepEqual(whose(figuresOf(seen, null), "Tokens/s"), ["1,100 wall time so far"]);
  assert.equal(clockOf(null), "wall time so far");
  const simulation = { ttftMs: null, timings: { predicted_n: 11, simulation_predicted_ms: 10 } };
  assert.deepEqual(whose(figuresOf(simulation, null), "Tokens/s"), ["1,000 simulation's wall time"]);
});

test("one token is not several", () => {
  const words = (changes) => figuresOf({ ttftMs: null, timings: null }, receipt(changes)).filter((row) => row.name !== "Dispatches").map((row) => row.clock).slice(-2);
  assert.deepEqual(words({ prompt_tokens: 1, cached_tokens: 0, generated_tokens: 1 }), ["token, 0 cached", "token"]);
  assert.deepEqual(words({}), ["tokens, 6 cached", "tokens"]);
});

test("a refused speed is nowhere", () => {
  const rows = figuresOf({ ttftMs: 1, timings: null }, receipt({ plausibility: { verdict: "refused", reasons: ["too fast"] } }));
  assert.deepEqual(rows.map((row) => row.name), ["Prompt", "Answer", "Dispatches"]);
});

test("rates are of what came since the last point, and stay few", () => {
  const series = new RateSeries(16);
  for (let tokens = 1; tokens <= 1000; ++tokens) series.add({ predicted_n: tokens, predicted_ms: tokens <= 500 ? tokens : 500 + (tokens - 500) * 4 });
  assert.ok(series.points.length < 16 && series.points.length >= 6);
  assert.equal(series.points[0].rate, 1000);
  assert.equal(series.points.at(-1).rate, 250);
  series.add({ predicted_n: 2000, predicted_ms: 1 });  // a clock that went back
  assert.ok(series.points.every((point) => Number.isFinite(point.rate) && point.rate > 0));
});

const PROFILE = {
  facts: { devices: [VNPU, CPU] },
  event_kinds: ["token", "run", "host", "upload", "submit", "wait", "download", "launch"],
  event_columns: ["kind", "name", "device", "dispatch", "token", "start_ns", "end_ns"],
  names: [["embed", -1], ["o_ffn", 3]],
  runs: [{ events: [
    [7, 1, 0, 1, 0, 0, 1e6], [3, 1, 0, 1, 0, 1e6, 2e6], [5, 1, 0, 1, 0, 3e6, 5e6], [2, 0, 1, 0, 0, 0, 9e6],
    [4, 0, 1, 2, 1, 5e6, 6e6], [5, 1, 0, 3, 2, 6e6, 8e6], [5, 1, 0, 4, 3, 8e6, 9e6],
  ] }],
};

test("lanes are the dispatches of each device", () => {
  const { span, lanes } = lanesOf(PROFILE);
  assert.deepEqual(span, [1, 9]);
  assert.deepEqual(lanes.map((lane) => [lane.name, lane.tag, lane.modelled, lane.bars.length]), [["vnpu", "NPU", true, 3], ["cpu", "CPU", false, 1]]);
  assert.deepEqual(lanes[0].bars[0], { from: 1, to: 5, label: "o_ffn, layer 3" });
  assert.equal(middleToken(PROFILE), 2);
  assert.deepEqual(lanesOf(PROFILE, 2).lanes.map((lane) => lane.bars), [[{ from: 6, to: 8, label: "o_ffn, layer 3" }]]);
  assert.deepEqual(mergeBars(lanes[0].bars, span, 4), [{ from: 1, to: 9, label: "o_ffn, layer 3", count: 3 }]);
  assert.equal(middleToken({ ...PROFILE, runs: [{ events: [] }] }), null);
  assert.deepEqual(lanesOf({ ...PROFILE, runs: [{ events: [] }] }), { span: [0, 0], lanes: [] });
});

test("numbers have three digits and a unit", () => {
  assert.deepEqual([0.0123, 1.5, 12.345, 1234.5, 61_000, 150_000].map(duration), ["12.3 µs", "1.5 ms", "12.3 ms", "1.23 s", "1.02 min", "2.5 min"]);
  assert.deepEqual([0.5, 99.94, 1234].map(number), ["0.5", "99.9", "1,234"]);
  assert.deepEqual([512, 22555648].map(bytes), ["512 B", "22.6 MB"]);
});

test("a recording that lost events is not called the whole request", () => {
  const run = { events: PROFILE.runs[0].events, lost: 94782 };
  assert.equal(recordedPart({ ...PROFILE, runs: [{ ...run, lost: 0 }] }), "The whole request");
  assert.match(recordedPart({ ...PROFILE, runs: [run] }), /^The beginning of the request: [0-9,]+ of 9[0-9],[0-9]{3} events/);
});
