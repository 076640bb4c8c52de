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
    section("Planner", "What tyto plan expects of machines with an NPU. Every number is modelled, none is measured.", plan));
}

async function models() {
  const [{ data }, props] = await Promise.all([getJson("v1/models"), getJson("props")]);
  const facts = [["Context", props.default_generation_settings?.n_ctx ?? props.n_ctx], ["Slots", props.total_slots], ["Build", props.build_info]]
    .filter(([, value]) => value !== undefined).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value))));
  const of = (model, name) => model.meta?.[name] ?? model[name];
  return [h("dl", { class: "facts" }, facts), table([
    { title: "Model", value: (model) => model.id },
    { title: "State", value: (model) => model.status?.value ?? model.state ?? "served" },
    { title: "Parameters", value: (model) => of(model, "n_params") ? number(of(model, "n_params") / 1e6) + " M" : "–", isNumber: true },
    { title: "Weights", value: (model) => of(model, "size") ? bytes(of(model, "size")) : "–", isNumber: true },
    { title: "Context", value: (model) => String(of(model, "n_ctx") ?? of(model, "n_ctx_train") ?? "–"), isNumber: true },
  ], data, "No model is served.")];
}

async function slots() {
  const all = await getJson("slots");
  const timeOf = (slot) => slot.seconds === undefined ? "–" : duration(slot.seconds * 1000);
  return table([
    { title: "Request", value: (slot) => String(slot.id) },
    { title: "Model", value: (slot) => slot.model ?? "" },
    { title: "State", value: (slot) => slot.is_processing ?? slot.is_running ? "running" : slot.model ? "waiting" : "free" },
    { title: "Prompt", value: (slot) => String(slot.prompt_tokens ?? "–"), isNumber: true },
    { title: "Cached", value: (slot) => String(slot.cached_tokens ?? "–"), isNumber: true },
    { title: "Answer", value: (slot) => String(slot.generated_tokens ?? "–"), isNumber: true },
    { title: "Since", value: timeOf, isNumber: true },
  ], all.slots ?? all, "Nothing is running.");
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
    { title: "TTFT, modelled", value: (row) => duration(row.ttft_ms), isNumber: true },
    { title: "Tokens/s, modelled", value: (row) => number(row.decode_tok_s), isNumber: true },
    { title: "± 90 %", value: (row) => `${Math.round(row.rel_error_p90 * 100)} %`, isNumber: true },
    { title: "Dispatches", value: (row) => String(row.dispatches_per_token), isNumber: true },
    { title: "Pinned", value: (row) => bytes(row.pinned_bytes), isNumber: true },
    { title: "Bottleneck", value: (row) => row.bottleneck },
    { title: "Note", value: (row) => row.note },
  ], rows, "Nothing can be planned for this model.");
}
