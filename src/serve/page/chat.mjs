// The chat: a conversation's messages, the composer below them, and what can be done to each message.

import { Answer, AnswerText } from "./answer.mjs";
import { isKept, newConversation, promptOf, save } from "./conversations.mjs";
import { button, h } from "./dom.mjs";
import { copyButton } from "./markdown.mjs";
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
    this.notice = h("p", { class: "composer-notice", role: "alert", hidden: true });
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
        h("div", { class: "composer-row" }, this.models, this.settings.element, this.send)), this.notice, this.status));
    this.show(newConversation());
  }

  // A sentence below the composer; an empty one takes it away.
  warn(words) {
    this.notice.textContent = words;
    this.notice.hidden = words === "";
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
    const hadRoom = save(this.conversation);
    this.warn(hadRoom ? "" : "This browser has no room for more conversations: export and delete some.");
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
    this.say(content);
  }

  say(content) {
    const { messages } = this.conversation;
    messages.push({ role: "user", content });
    this.log.querySelector(".welcome")?.remove();
    this.log.append(this.userTurn(messages.at(-1), messages.length - 1));
    this.ask();
  }

  stop() {
    this.answer?.stop();
  }

  // Forgets the message and what follows it.
  cutTo(index) {
    this.stop();
    this.conversation.messages.length = index;
    while (this.log.children.length > index) this.log.lastChild.remove();
  }

  async ask() {
    const conversation = this.conversation;
    const answer = new Answer();
    const pending = turn("assistant", [this.models.value], [answer.text.element], answer.panel.element);
    this.answer = answer;
    this.keep();
    this.log.append(pending);
    answer.text.element.setAttribute("aria-busy", "true");
    this.setBusy(true);
    this.scrollToEnd();
    const follow = setInterval(() => { if (this.isAtEnd) this.scrollToEnd(); }, 100);
    let failure;
    try {
      await answer.run(this.requestOf(conversation));
    } catch (error) {
      failure = error.message;
    }
    clearInterval(follow);
    answer.text.element.removeAttribute("aria-busy");
    this.finish(conversation, answer, pending, failure);
  }

  requestOf(conversation) {
    return {
      model: this.models.value || undefined, messages: promptOf(conversation), stream: true,
      stream_options: { include_usage: true }, timings_per_token: true, receipt: true, profile: true, ...this.settings.sampling(),
    };
  }

  finish(conversation, answer, pending, failure) {
    if (this.answer === answer) {
      this.answer = null;
      this.setBusy(false);
    }
    const isShown = this.conversation === conversation;
    const wasCut = isShown && !this.log.contains(pending);  // for another answer to the same question
    const wasDeleted = !isShown && !isKept(conversation);
    if (wasCut || wasDeleted) return;
    const message = { ...answer.message(), ...(failure && { failure }) };
    conversation.messages.push(message);
    if (!isShown) return void save(conversation);
    pending.replaceWith(this.answerTurn(message, conversation.messages.length - 1, answer));
    this.keep();
    if (this.isAtEnd) this.scrollToEnd();
  }

  setBusy(isBusy) {
    this.send.textContent = isBusy ? "Stop" : "Send";
    this.send.classList.toggle("stop", isBusy);
    this.status.textContent = isBusy ? "Answering." : "The answer is complete.";
  }

  draw() {
    const { messages } = this.conversation;
    this.log.replaceChildren(...messages.map((message, index) => message.role === "user"
      ? this.userTurn(message, index)
      : this.answerTurn(message, index)));
    if (messages.length === 0) this.log.append(h("div", { class: "welcome" }, h("h1", {}, "What would you like to know?"),
      h("p", {}, "Beside each answer stands where its time went, and which device it came from.")));
  }

  userTurn(message, index) {
    const body = h("div", { class: "said" }, message.content);
    const actions = h("div", { class: "actions" }, button("Edit", () => this.edit(body, message, index), { class: "quiet small" }));
    return turn("user", ["You", actions], [body]);
  }

  // `live` is the answer that has just ended, whose elements go on.
  answerTurn(message, index, live = null) {
    const text = live?.text ?? AnswerText.of(message);
    const panel = live?.panel ?? ProfilePanel.of(message.measured);
    const again = button(message.failure ? "Try again" : "Regenerate", () => {
      this.cutTo(index);
      this.ask();
    }, { class: "quiet small" });
    const note = message.failure ? h("p", { class: "failure", role: "alert" }, message.failure)
      : FINISHED[message.finish] ? h("p", { class: "note" }, FINISHED[message.finish]) : null;
    return turn("assistant", [message.model ?? "Answer"], [text.element, note, h("div", { class: "actions" }, message.content ? copyButton(() => message.content) : null, again)], panel.element);
  }

  edit(body, message, index) {
    const area = h("textarea", { class: "prompt", "aria-label": "Edit the message", rows: "3" });
    area.value = message.content;
    const cancel = () => body.replaceChildren(message.content);
    const again = () => {
      if (area.value.trim() === "") return;
      this.cutTo(index);
      this.say(area.value.trim());
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
