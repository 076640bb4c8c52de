// The chat: a conversation's messages, the composer below them, and what can be done to each message.

import { Answer, AnswerText } from "./answer.mjs";
import { newConversation, promptOf, save } from "./conversations.mjs";
import { button, h } from "./dom.mjs";
import { copyText } from "./markdown.mjs";
import { ProfilePanel } from "./profile_panel.mjs";
import { Settings } from "./settings.mjs";

const FINISHED = {
  stop: "", tool_calls: "",
  length: "It ended at the limit of tokens.",
  stopped: "You stopped it.",
};

export class Chat {
  // `onChange` is called when the list of conversations is another one.
  constructor(onChange) {
    this.onChange = onChange;
    this.answer = null;  // the one that streams in
    this.log = h("div", { class: "log", role: "log", "aria-label": "Conversation", "aria-live": "polite" });
    this.status = h("p", { class: "hidden-words", role: "status" });
    this.settings = new Settings((system) => this.setSystem(system));
    this.models = h("select", { "aria-label": "Model", class: "models" });
    this.input = h("textarea", {
      class: "prompt", rows: "1", "aria-label": "Message", placeholder: "Ask something", keydown: (event) => this.onKey(event), input: () => this.grow(),
    });
    this.send = button("Send", () => this.answer ? this.stop() : this.submit(), { class: "primary send" });
    this.isAtEnd = true;  // the reader: then the end is followed, and else he stays where he went
    this.scroller = h("div", { class: "chat-scroll", scroll: () => { this.isAtEnd = this.distanceToEnd() < 80; } }, this.log);
    this.element = h("section", { class: "chat", "aria-label": "Chat" }, this.scroller,
      h("div", { class: "composer" }, h("div", { class: "composer-box" }, this.input,
        h("div", { class: "composer-row" }, this.models, this.settings.element, this.send)), this.status));
    this.show(newConversation());
  }

  showModels(names) {
    const chosen = this.models.value;
    this.models.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    if (names.includes(chosen)) this.models.value = chosen;
  }

  show(conversation) {
    this.stop();
    this.conversation = conversation;
    this.settings.system.value = conversation.system;
    this.draw();
    this.scrollToEnd();
  }

  focus() {
    this.input.focus();
  }

  setSystem(system) {
    this.conversation.system = system;
    if (this.conversation.messages.length) this.keep();
  }

  keep() {
    if (!save(this.conversation)) this.status.textContent = "This browser has no room for more conversations: export and delete some.";
    this.onChange(this.conversation);
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 240)}px`;
  }

  onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.answer) this.submit();
  }

  submit() {
    const content = this.input.value.trim();
    if (content === "") return;
    this.input.value = "";
    this.grow();
    this.conversation.messages.push({ role: "user", content });
    this.ask();
  }

  stop() {
    this.answer?.stop();
  }

  // Asks again with what was said up to the message, without it and what follows.
  askAgain(index) {
    this.conversation.messages.length = index;
    this.ask();
  }

  async ask() {
    const conversation = this.conversation;
    const answer = new Answer();
    this.stop();
    this.answer = answer;
    this.keep();
    this.draw();
    this.log.append(turn("assistant", [this.models.value], [answer.text.element], answer.panel.element));
    answer.text.element.setAttribute("aria-busy", "true");
    this.setBusy(true);
    this.scrollToEnd();
    const follow = setInterval(() => { if (this.isAtEnd) this.scrollToEnd(); }, 100);
    try {
      await answer.run({
        model: this.models.value || undefined, messages: promptOf(conversation), stream: true,
        stream_options: { include_usage: true }, timings_per_token: true, receipt: true, profile: true, ...this.settings.sampling(),
      });
      conversation.messages.push(answer.message());
    } catch (error) {
      conversation.messages.push({ ...answer.message(), failure: error.message });
    }
    clearInterval(follow);
    answer.text.element.removeAttribute("aria-busy");
    this.finished(conversation, answer);
  }

  finished(conversation, answer) {
    const isShown = this.conversation === conversation;
    if (save(conversation)) this.onChange(this.conversation);
    if (this.answer === answer) {
      this.answer = null;
      this.setBusy(false);
    }
    if (isShown && !this.answer) this.draw(answer);
  }

  setBusy(isBusy) {
    this.send.textContent = isBusy ? "Stop" : "Send";
    this.send.classList.toggle("stop", isBusy);
    this.status.textContent = isBusy ? "Answering." : "The answer is complete.";
  }

  // The messages anew; `live` is the answer that has just ended, whose elements go on.
  draw(live = null) {
    const { messages } = this.conversation;
    const last = messages.length - 1;
    this.log.replaceChildren(...messages.map((message, index) => message.role === "user"
      ? this.userTurn(message, index)
      : this.answerTurn(message, index, index === last ? live : null)));
    if (messages.length === 0) this.log.append(h("div", { class: "welcome" }, h("h1", {}, "What would you like to know?"),
      h("p", {}, "Beside each answer stands where its time went, and which device it came from.")));
  }

  userTurn(message, index) {
    const body = h("div", { class: "said" }, message.content);
    const actions = h("div", { class: "actions" }, button("Edit", () => this.edit(body, message, index), { class: "quiet small" }));
    return turn("user", ["You", actions], [body]);
  }

  answerTurn(message, index, live) {
    const text = live?.text ?? AnswerText.of(message);
    const panel = live?.panel ?? ProfilePanel.of(message.measured);
    if (!live && message.measured.id && index === this.conversation.messages.length - 1) panel.loadLanes();
    const copy = button("Copy", async () => { copy.textContent = await copyText(message.content) ? "Copied" : "Cannot copy"; }, { class: "quiet small" });
    const again = button(message.failure ? "Try again" : "Regenerate", () => this.askAgain(index), { class: "quiet small" });
    const note = message.failure ? h("p", { class: "failure", role: "alert" }, message.failure)
      : FINISHED[message.finish] ? h("p", { class: "note" }, FINISHED[message.finish]) : null;
    return turn("assistant", [message.model ?? "Answer"], [text.element, note, h("div", { class: "actions" }, copy, again)], panel.element);
  }

  edit(body, message, index) {
    const area = h("textarea", { class: "prompt", "aria-label": "Edit the message", rows: "3" });
    area.value = message.content;
    const cancel = () => this.draw();
    const again = () => {
      if (area.value.trim() === "") return;
      this.conversation.messages.length = index;
      this.conversation.messages.push({ role: "user", content: area.value.trim() });
      this.ask();
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); cancel(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); again(); }
    });
    body.replaceChildren(area, h("div", { class: "actions" },
      button("Send again", again, { class: "primary small" }), button("Cancel", cancel, { class: "quiet small" })));
    area.focus();
  }

  distanceToEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

function turn(role, [who, actions = null], parts, aside = null) {
  return h("article", { class: `turn ${role}` },
    h("div", { class: "turn-main" }, h("div", { class: "turn-head" }, h("h2", { class: "who" }, who), actions), parts), aside);
}
