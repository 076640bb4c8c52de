// The system prompt and the sampling. What is left empty is the server's to choose; its choice is shown.

import { h } from "./dom.mjs";
import { recall, remember } from "./preferences.mjs";

const KEY = "tyto.sampling";
const MOST = 2 ** 31 - 1;
// The server's own limits.
const FIELDS = [
  { name: "temperature", label: "Temperature", min: 0, max: 1000 },
  { name: "top_k", label: "Top-k", min: -1, max: MOST, isWhole: true },
  { name: "top_p", label: "Top-p", min: 0, max: 1 },
  { name: "min_p", label: "Min-p", min: 0, max: 1 },
  { name: "repeat_penalty", label: "Repeat penalty", min: 1e-6, max: 1000 },
  { name: "seed", label: "Seed", min: -1, max: Number.MAX_SAFE_INTEGER, isWhole: true, placeholder: "random" },
  { name: "max_tokens", label: "Most tokens", min: 1, max: MOST, isWhole: true, placeholder: "no limit" },
];

export class Settings {
  constructor(onSystem) {
    this.values = read();
    this.inputs = new Map(FIELDS.map((field) => [field.name, this.input(field)]));
    this.wrong = h("p", { class: "wrong", id: "sampling-problem", role: "alert", hidden: true });
    this.system = h("textarea", {
      id: "system", rows: "3", placeholder: "You are a helpful assistant.",
      input: () => onSystem(this.system.value),
    });
    this.element = h("details", { class: "settings" },
      h("summary", {}, "Settings"),
      h("div", { class: "settings-body" },
        h("label", { for: "system" }, "System prompt of this conversation"), this.system,
        h("div", { class: "sampling" }, FIELDS.map(({ name, label }) => h("label", {}, label, this.inputs.get(name)))), this.wrong));
    this.check();
  }

  input({ name, min, max, isWhole, placeholder = "default" }) {
    const input = h("input", {
      type: "number", name, inputmode: isWhole ? "numeric" : "decimal", min, max, step: "any", placeholder, "aria-describedby": "sampling-problem",
      input: () => {
        this.values = { ...read(), [name]: input.value };
        remember(KEY, JSON.stringify(this.values));
        this.check();
      },
    });
    input.value = this.values[name] ?? "";
    return input;
  }

  // Says what is wrong, for which nothing is sent. Empty: nothing is.
  check() {
    const problems = FIELDS.map((field) => [this.inputs.get(field.name), problemOf(field, this.inputs.get(field.name))]);
    for (const [input, words] of problems) input.setCustomValidity(words);
    this.wrong.textContent = problems.map(([, words]) => words).filter(Boolean).join(" ");
    this.wrong.hidden = this.wrong.textContent === "";
    return this.wrong.textContent;
  }

  // Takes the reader to the first value that is wrong.
  point() {
    this.element.open = true;
    [...this.inputs.values()].find((input) => !input.validity.valid)?.focus();
  }

  // The server's own settings, in llama-server's form.
  showDefaults(props) {
    const defaults = props.default_generation_settings?.params ?? {};
    for (const [name, input] of this.inputs)
      if (typeof defaults[name] === "number") input.placeholder = String(Number(defaults[name].toPrecision(4)));  // they are floats
  }

  // Fields of a request, of those that were filled in.
  sampling() {
    const filled = FIELDS.filter(({ name }) => this.inputs.get(name).value !== "");
    return Object.fromEntries(filled.map(({ name }) => [name, Number(this.inputs.get(name).value)]));
  }
}

function problemOf({ label, min, max, isWhole }, { value, validity }) {
  if (validity.badInput) return `${label}: this is not a number.`;
  const given = Number(value);
  if (value === "") return "";
  if (isWhole && !Number.isInteger(given)) return `${label}: ${value} is not a whole number.`;
  return given < min || given > max ? `${label}: ${value} is not between ${min} and ${max}.` : "";
}

function read() {
  try {
    return JSON.parse(recall(KEY)) ?? {};
  } catch {
    return {};
  }
}
