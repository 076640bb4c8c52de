// One answer while it streams in: the request, its text and reasoning, and its profile.

import { stream } from "./api.mjs";
import { h, onceAFrame } from "./dom.mjs";
import { MarkdownView } from "./markdown.mjs";
import { ProfilePanel } from "./profile_panel.mjs";
import { ThinkingSplit } from "./thinking.mjs";

// The text of an answer, with what the model reasoned folded away above it.
export class AnswerText {
  constructor() {
    this.thinking = "";
    this.content = "";
    this.waiting = { thinking: "", content: "" };
    this.body = h("div", { class: "markdown" });
    this.reasoning = h("div", { class: "markdown" });
    this.fold = h("details", { class: "thinking", hidden: true }, h("summary", {}, "Reasoning"), this.reasoning);
    this.element = h("div", { class: "answer" }, this.fold, this.body);
    this.views = { thinking: new MarkdownView(this.reasoning), content: new MarkdownView(this.body) };
    this.split = new ThinkingSplit((text) => this.take("thinking", text), (text) => this.take("content", text));
    this.drawSoon = onceAFrame(() => this.draw());
  }

  static of({ thinking = "", content }) {
    const text = new AnswerText();
    if (thinking) text.take("thinking", thinking);
    text.take("content", content);
    text.end();
    return text;
  }

  push(text) {
    this.split.push(text);
  }

  // `part` is "thinking" or "content".
  take(part, text) {
    this[part] += text;
    this.waiting[part] += text;
    this.drawSoon();
  }

  draw() {
    for (const part of ["thinking", "content"]) {
      this.views[part].push(this.waiting[part]);
      this.waiting[part] = "";
    }
    this.fold.hidden = this.thinking.trim() === "";
  }

  end() {
    this.split.end();
    this.draw();
    this.views.thinking.end();
    this.views.content.end();
  }
}

export class Answer {
  // `place` is where its message stands: {id, parent, conversation}.
  constructor(place, model) {
    this.place = place;
    this.model = model;
    this.abort = new AbortController();
    this.text = new AnswerText();
    this.panel = new ProfilePanel();
    this.finish = "left";  // until there is more to say: what is kept of it is right if the page is closed now
    this.failure = "";
  }

  stop() {
    this.abort.abort();
  }

  // Ends with the answer complete, stopped or failed. `onPiece` is called when more of it is there. Returns the ServerError of a failure.
  async run(body, onPiece) {
    const began = performance.now();
    try {
      for await (const event of stream("v1/chat/completions", body, this.abort)) {
        this.take(event, began);
        onPiece();
      }
      if (this.finish === "left") this.finish = "";
      this.panel.loadLanes();
    } catch (error) {
      this.finish = error.name === "AbortError" ? "stopped" : "";
      if (error.name === "AbortError") return null;
      this.failure = error.message;
      return error;
    } finally {
      this.text.end();
    }
    return null;
  }

  take(event, began) {
    const choice = event.choices?.[0];
    const { content, reasoning_content: reasoning } = choice?.delta ?? {};
    if ((content || reasoning) && this.panel.measured.ttftMs === null) this.panel.firstToken(performance.now() - began);
    if (reasoning) this.text.take("thinking", reasoning);
    if (content) this.text.push(content);
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (event.timings) this.panel.timings(event.timings);
    if (event.receipt) this.panel.receipt(event.id, event.receipt);
  }

  // What is kept of it, at any time.
  message() {
    return {
      id: this.place.id,
      parent: this.place.parent,
      role: "assistant",
      model: this.model,
      content: this.text.content.trim(),
      ...(this.text.thinking.trim() && { thinking: this.text.thinking.trim() }),
      measured: this.panel.measured,
      finish: this.finish,
      ...(this.failure && { failure: this.failure }),
    };
  }
}
