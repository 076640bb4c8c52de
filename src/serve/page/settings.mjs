// The system prompt and the sampling. What is left empty is the server's to choose; its choice is shown.

import { h } from "./dom.mjs";

const KEY = "tyto.sampling";
const FIELDS = [
  { name: "temperature", label: "Temperature", min: 0, max: 5, step: 0.05 },
  { name: "top_k", label: "Top-k", min: 0, step: 1 },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.01 },
  { name: "min_p", label: "Min-p", min: 0, max: 1, step: 0.01 },
  { name: "repeat_penalty", label: "Repeat penalty", min: 0, max: 5, step: 0.05 },
  { name: "seed", label: "Seed", min: 0, step: 1, placeholder: "random" },
  { name: "max_tokens", label: "Most tokens", min: 1, step: 1, placeholder: "no limit" },
];

export class Settings {
  constructor(onSystem) {
    this.values = read();
    this.inputs = new Map(FIELDS.map((field) => [field.name, this.input(field)]));
    this.system = h("textarea", {
      id: "system", rows: "3", placeholder: "You are a helpful assistant.",
      input: () => onSystem(this.system.value),
    });
    this.element = h("details", { class: "settings" },
      h("summary", {}, "Settings"),
      h("div", { class: "settings-body" },
        h("label", { for: "system" }, "System prompt of this conversation"), this.system,
        h("div", { class: "sampling" }, FIELDS.map(({ name, label }) => h("label", {}, label, this.inputs.get(name))))));
  }

  input({ name, label, ...limits }) {
    const input = h("input", {
      type: "number", name, inputmode: "decimal", placeholder: "default", ...limits,
      input: () => {
        this.values = { ...this.values, [name]: input.value };
        localStorage.setItem(KEY, JSON.stringify(this.values));
      },
    });
    input.value = this.values[name] ?? "";
    return input;
  }

  // The server's own settings, in llama-server's form.
  showDefaults(props) {
    const defaults = props.default_generation_settings?.params ?? {};
    for (const [name, input] of this.inputs)
      if (typeof defaults[name] === "number") input.placeholder = String(Number(defaults[name].toPrecision(4)));  // they are floats
  }

  // Fields of a request, of those that were filled in and make sense.
  sampling() {
    const filled = FIELDS.filter(({ name }) => this.inputs.get(name).value !== "" && this.inputs.get(name).checkValidity());
    return Object.fromEntries(filled.map(({ name }) => [name, Number(this.inputs.get(name).value)]));
  }
}

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}
