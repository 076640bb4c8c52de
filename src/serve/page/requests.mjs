// The last requests, each with its receipt, and the picture of its dataflow where it was recorded.

import { address, getJson, getText, hasKey } from "./api.mjs";
import { button, download, h } from "./dom.mjs";
import { number, tokenWord } from "./measurements.mjs";
import { badgeElements } from "./profile_panel.mjs";
import { section, table } from "./sections.mjs";

const path = (id, file = "") => `v1/receipts/${encodeURIComponent(id)}${file}`;

export function requestsView(id) {
  return id ? oneRequest(id) : h("div", { class: "reading" }, h("h1", {}, "Requests"), section("The last ones", "", lastOnes));
}

async function lastOnes() {
  const { receipts } = await getJson("v1/receipts");
  if (receipts.length === 0) return h("p", { class: "muted" }, "There was no request yet.");
  return h("ul", { class: "requests" }, receipts.map((receipt) => h("li", {},
    h("a", { href: `#requests/${encodeURIComponent(receipt.id)}` },
      h("span", { class: "when" }, timeOf(receipt.time)), h("strong", {}, receipt.model), badge(receipt.badge),
      h("span", { class: "line" }, receipt.line)))));
}

const BADGES = {
  real: "real hardware", virtual: "virtual device: modelled", "fell-back": "fell back", refused: "refused", failed: "failed",
};

function badge(word) {
  const kind = String(word ?? "").replaceAll(/[ _]/g, "-");
  return word ? h("span", { class: `badge ${kind in BADGES ? kind : ""}` }, BADGES[kind] ?? word) : null;
}

function timeOf(time) {
  const date = new Date(typeof time === "number" ? time * 1000 : time);
  return Number.isNaN(date.getTime()) ? String(time) : date.toLocaleString();
}

function oneRequest(id) {
  return h("div", { class: "reading" }, h("p", {}, h("a", { href: "#requests" }, "← All requests")), h("h1", {}, "Request ", h("code", {}, id)),
    section("Receipt", "", () => receiptOf(id)),
    section("Dataflow", "Each step in the order of the architecture, and where it ran.", () => dataflowOf(id)));
}

async function receiptOf(id) {
  const receipt = await getJson(path(id));
  const counted = table([
    { title: "Device", value: (device) => device.name + (device.virtual ? " (virtual)" : "") },
    { title: "Completed", value: (device) => `${device.completions} of ${device.submissions}`, isNumber: true },
    { title: "Launches", value: (device) => String(device.launches), isNumber: true },
    { title: "Busy", value: busy, isNumber: true },
  ], receipt.devices, "No device did any work.");
  const facts = [["Time", timeOf(receipt.time)], ["Prompt", `${receipt.prompt_tokens} ${tokenWord(receipt.prompt_tokens)} run, ${receipt.cached_tokens} cached`],
    ["Answer", `${receipt.generated_tokens} ${tokenWord(receipt.generated_tokens)}`], ["Fusion", receipt.fusion], ["Plausibility", receipt.plausibility.verdict],
    ["Weights", receipt.hashes?.weights ?? ""]];
  return [h("p", { class: "badges" }, badgeElements(receipt)),
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))), counted,
    receipt.plausibility.reasons?.length ? h("p", { class: "failure" }, receipt.plausibility.reasons.join("; ")) : null,
    receipt.fallbacks.length ? h("div", {}, h("h3", {}, "Fallbacks"), h("ul", {}, receipt.fallbacks.map((line) => h("li", {}, line)))) : null,
    receipt.on_host?.length ? h("p", {}, `On the host by design: ${receipt.on_host.join(", ")}.`) : null,
    h("details", {}, h("summary", {}, "All of it, as JSON"), h("pre", { tabindex: "0" }, JSON.stringify(receipt, null, 2))),
  ].filter(Boolean);
}

function busy(device) {
  return device.virtual ? `${number(device.modelled_busy_ns / 1e6)} ms modelled` : `${number(device.busy_ns / 1e6)} ms`;
}

// Fetched rather than linked: a picture's address cannot carry the key, and neither can a new tab's.
async function dataflowOf(id) {
  let picture;
  try {
    picture = await getText(path(id, "/dataflow.svg"));
  } catch (error) {
    if (error.status !== 404) throw error;
    return h("p", { class: "muted" }, `There is no picture: ${error.message}`);
  }
  const saved = (words, type, file) =>
    button(words, async () => download(`${id}-${file}`, type, await getText(path(id, `/${file}`))), { class: "quiet small" });
  return [h("img", { class: "dataflow", alt: "Dataflow of the request", src: `data:image/svg+xml,${encodeURIComponent(picture)}` }),
    h("p", {}, hasKey() ? saved("Save the full profile", "text/html", "profile.html")
      : h("a", { href: address(path(id, "/profile.html")), target: "_blank", rel: "noopener" }, "The full profile"),
    saved("Save it as JSON", "application/json", "profile.json"))];
}
