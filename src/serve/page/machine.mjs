// Models & devices: what is served, who is busy, what doctor says of the machine, and what the planner expects of others.

import { getJson } from "./api.mjs";
import { h } from "./dom.mjs";
import { bytes, duration, number } from "./measurements.mjs";
import { section, table } from "./sections.mjs";

const MARKS = { ok: "✓", warn: "!", fail: "✕", skipped: "–" };

export function machineView() {
  return h("div", { class: "reading" }, h("h1", {}, "Models & devices"),
    section("Models", "", models),
    section("Slots", "Requests that run or wait now.", slots),
    section("Doctor", "The checks of tyto doctor, on this machine.", doctor),
    section("Planner", "What tyto plan expects of machines with an NPU. The numbers are estimates; ± is the range that held nine out of ten measurements the model had not seen.", plan));
}

async function models() {
  const [{ data }, props] = await Promise.all([getJson("v1/models"), getJson("props")]);
  const statusOf = (model) => props.models?.find((status) => status.name === model.id) ?? {};
  const shown = (count, unit = (value) => String(value)) => count === undefined ? "–" : unit(count);
  return [h("p", { class: "muted" }, props.build_info ?? ""), table([
    { title: "Model", value: (model) => model.id },
    { title: "State", value: (model) => stateOf(statusOf(model)) },
    { title: "Devices", value: (model) => (statusOf(model).devices ?? []).map(deviceWords).join(", ") || "–" },
    { title: "Weights", value: (model) => [model.meta?.weight_type, shown(model.meta?.size, bytes)].filter(Boolean).join(", "), isNumber: true },
    { title: "Parameters", value: (model) => shown(model.meta?.n_params, (count) => `${number(count / 1e6)} M`), isNumber: true },
    { title: "Context", value: (model) => shown(model.meta?.n_ctx), isNumber: true },
    { title: "Slots", value: (model) => shown(statusOf(model).slots), isNumber: true },
    { title: "KV pages", value: (model) => shown(statusOf(model).kv_pages_in_use, (used) => `${used} of ${statusOf(model).kv_pages}`), isNumber: true },
  ], data, "No model is served.")];
}

function stateOf({ loaded, failure }) {
  return failure || (loaded ? "loaded" : "not loaded");
}

function deviceWords(device) {
  return device.virtual ? `${device.name} (virtual)` : device.name;
}

async function slots() {
  return table([
    { title: "Request", value: (slot) => String(slot.id) },
    { title: "Model", value: (slot) => slot.model },
    { title: "State", value: (slot) => slot.is_processing ? "running" : "waiting" },
    { title: "Prompt", value: (slot) => String(slot.prompt_tokens), isNumber: true },
    { title: "Cached", value: (slot) => String(slot.cached_tokens), isNumber: true },
    { title: "Answer", value: (slot) => String(slot.generated_tokens), isNumber: true },
    { title: "Since", value: (slot) => duration(slot.seconds * 1000), isNumber: true },
  ], await getJson("slots"), "Nothing is running.");
}

// It measures the devices, which takes a while.
async function doctor() {
  const { checks } = await getJson("doctor", 120_000);
  return h("ul", { class: "checks" }, checks.map(({ check, state, detail, fix }) => h("li", { class: `check ${state}` },
    h("span", { class: "mark", "aria-label": state }, MARKS[state] ?? "?"),
    h("div", {}, h("strong", {}, check), h("span", { class: "detail" }, detail), fix ? h("p", { class: "fix" }, `→ ${fix}`) : null))));
}

async function plan() {
  const rows = await getJson("plan", 60_000);
  return table([
    { title: "Machine", value: (row) => row.machine },
    { title: "Model", value: (row) => row.shape },
    { title: "Kernels", value: (row) => row.kernels },
    { title: "Fusion", value: (row) => row.fusion },
    { title: "Runs today", value: (row) => row.runs },
    { title: "TTFT, modelled", value: (row) => duration(row.ttft_ms), isNumber: true },
    { title: "Tokens/s, modelled", value: (row) => number(row.decode_tok_s), isNumber: true },
    { title: "Error", value: (row) => `${Math.round(row.rel_error_p90 * 100)} %`, isNumber: true },
    { title: "Dispatches", value: (row) => String(row.dispatches_per_token), isNumber: true },
    { title: "Pinned", value: (row) => bytes(row.pinned_bytes), isNumber: true },
    { title: "Bottleneck", value: (row) => row.bottleneck, isLong: true },
    { title: "Note", value: (row) => [row.needs, row.note].filter(Boolean).join("; "), isLong: true },
  ], rows, "Nothing can be planned for this model.");
}
