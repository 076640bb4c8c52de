// The chat: one branch of a conversation, the composer below it, and the answers that stream in, here or in the background.

import { Answer } from "./answer.mjs";
import { add, change, listen, load, newConversation, signal, titleOf, update, updateAtOnce } from "./conversations.mjs";
import { button, h } from "./dom.mjs";
import { recall, remember } from "./preferences.mjs";
import { Settings } from "./settings.mjs";
import { childrenOf, leafUnder, newId, openingOf, pathTo, promptOf } from "./tree.mjs";
import { answerTurn, pendingTurn, userTurn } from "./turns.mjs";

const STORE_MS = 500;       // from one storing of what has arrived to the next
const BEAT_MS = 2000;
const SILENCE_MS = 70_000;  // another tab's that receives an answer: a hidden one's timers may run once a minute
const STORIES = ["Tell me a story about a fox who finds a lamp.", "Tell me a story about a dragon who is afraid of the dark.", "Tell me a story about a dog and a little boat."];

export class Chat {
  // `onShow` is called when another conversation is shown, `onFailure` when an answer has failed.
  constructor(onShow, onFailure) {
    this.onShow = onShow;
    this.onFailure = onFailure;
    this.running = new Map();    // answers that stream in, of any conversation, by their message's id
    this.elsewhere = new Map();  // messages that other tabs receive, with the timer of their silence
    this.turns = new Map();      // the messages that were drawn: {key, element}
    this.warnings = new Map();
    this.served = [];
    this.makeElements();
    this.show(newConversation());
    listen((news) => this.hear(news));
    addEventListener("pagehide", () => {
      for (const answer of this.running.values()) {
        updateAtOnce(answer.place.conversation, answer.message());
        signal({ id: answer.place.conversation, done: answer.place.id });
      }
    });
  }

  makeElements() {
    this.heading = h("h1", { class: "hidden-words" });
    this.log = h("div", { class: "log", role: "log", "aria-label": "Conversation", "aria-live": "polite" });
    this.status = h("p", { class: "hidden-words", role: "status" });
    this.notice = h("div", { class: "composer-notice", role: "alert" });
    this.settings = new Settings((system) => this.setField("system", system));
    this.models = h("select", { "aria-label": "Model", class: "models", change: () => this.setModel(this.models.value) });
    this.input = h("textarea", {
      class: "prompt", rows: "1", "aria-label": "Message", placeholder: "Ask something", keydown: (event) => this.onKey(event), input: () => this.grow(),
    });
    this.send = button("Send", () => this.isBusy() ? this.stop() : this.submit(), { class: "primary send" });
    this.isAtEnd = true;  // the reader: then the end is followed, and else he stays where he went
    this.scroller = h("div", { class: "chat-scroll", scroll: () => { this.isAtEnd = this.distanceToEnd() < 80; } }, this.heading, this.log);
    this.element = h("section", { class: "chat", "aria-label": "Chat" }, this.scroller,
      h("div", { class: "composer" }, h("div", { class: "composer-box" }, this.input,
        h("div", { class: "composer-row" }, this.models, this.settings.element, this.send)), this.notice, this.status));
  }

  // A sentence below the composer about a subject; an empty one takes it away.
  warn(subject, words) {
    if ((this.warnings.get(subject) ?? "") === words) return;
    this.warnings.set(subject, words);
    this.notice.replaceChildren(...[...this.warnings.values()].filter(Boolean).map((line) => h("p", {}, line)));
  }

  showModels(names) {
    if (names.join("\n") === this.served.join("\n")) return;
    const isOther = this.served.length > 0;
    this.served = names;
    this.models.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    this.chooseModel(isOther ? `The server serves other models now: ${names.join(", ")}.` : "");
  }

  // The conversation's own, or the one that was chosen last.
  chooseModel(news = "") {
    if (this.served.length === 0) return;
    const own = this.conversation.model, wanted = own || recall("tyto.model");
    this.models.value = this.served.includes(wanted) ? wanted : this.served[0];
    if (this.messages?.length === 0) this.draw();
    const isGone = own && own !== this.models.value;
    this.warn("models", [news, isGone ? `${own}, which was chosen here, is not served now: ${this.models.value} will answer.` : ""].filter(Boolean).join(" "));
  }

  setModel(name) {
    remember("tyto.model", name);
    this.warn("models", "");
    this.setField("model", name);
    this.draw();
  }

  setField(name, value) {
    this.conversation = { ...this.conversation, [name]: value };
    if (this.messages.length) change(this.conversation.id, { [name]: value });
  }

  // Shows a stored conversation, or a new one where there is none of that id.
  async open(id) {
    this.wanted = id;
    const found = id ? await load(id) : null;
    if (this.wanted === id) this.show(found?.conversation ?? newConversation(), found?.messages);
  }

  show(conversation, messages = []) {
    this.wanted = conversation.id;
    this.conversation = conversation;
    this.messages = messages;
    this.leaf = this.leafOf(conversation);
    this.turns.clear();
    this.settings.system.value = conversation.system;
    this.warn("conversation", "");
    this.chooseModel();
    this.draw();
    this.scrollToEnd();
    this.noteShown();
  }

  noteShown() {
    remember("tyto.open", this.messages.length ? this.conversation.id : "", "session");
    this.onShow(this.conversation);
  }

  leafOf({ leaf }) {
    return this.messages.some(({ id }) => id === leaf) ? leaf : leafUnder(this.messages);
  }

  isAnswering(conversation) {
    return [...this.running.values()].some(({ place }) => place.conversation === conversation);
  }

  // What was done to a conversation, mostly in other tabs, and what became of storing.
  hear({ id, isOwn, isRemoved, title, live, done, isBeat, stop, problem }) {
    if (problem !== undefined) this.warn("storage", problem);
    if (stop) this.running.get(stop)?.stop();
    if (isRemoved) for (const answer of this.running.values()) if (answer.place.conversation === id) answer.stop();
    if (isOwn && title !== undefined && id === this.conversation.id) {
      this.conversation = { ...this.conversation, title };
      this.draw();
    }
    if (isOwn) return;
    if (live) this.setElsewhere(live);
    if (done) this.forgetElsewhere(done);
    if (id === this.conversation.id && !isBeat) this.refresh();
  }

  setElsewhere(id) {
    const isNew = !this.elsewhere.has(id);
    clearTimeout(this.elsewhere.get(id));
    this.elsewhere.set(id, setTimeout(() => this.forgetElsewhere(id), SILENCE_MS));
    if (isNew) this.draw();
  }

  forgetElsewhere(id) {
    clearTimeout(this.elsewhere.get(id));
    if (this.elsewhere.delete(id)) this.draw();
  }

  // The conversation as it is stored now. Where another tab went on from what is shown, this one follows.
  async refresh() {
    const { id } = this.conversation, before = this.messages;
    const found = await load(id);
    if (id !== this.conversation.id || this.messages.length === 0) return;
    if (this.messages !== before) return this.refresh();  // a question was asked meanwhile, which this does not have yet
    if (!found) {
      this.show(newConversation());
      return this.warn("conversation", "That conversation was deleted in another tab.");
    }
    this.conversation = found.conversation;
    this.messages = found.messages;
    const isHere = this.messages.some((message) => message.id === this.leaf);
    const isAhead = pathTo(this.messages, found.conversation.leaf).some((message) => message.id === this.leaf);
    if (!isHere || isAhead) this.leaf = this.leafOf(found.conversation);
    if (document.activeElement !== this.settings.system) this.settings.system.value = found.conversation.system;
    this.draw();
    if (this.isAtEnd) this.scrollToEnd();
  }

  focus() {
    this.input.focus();
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 240)}px`;
  }

  onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.isBusy()) this.submit();
  }

  submit() {
    const content = this.input.value.trim();
    if (content === "" || !this.say(content, this.leaf)) return;
    this.input.value = "";
    this.grow();
  }

  say(content, parent) {
    const question = { id: newId(), parent, role: "user", content };
    return this.ask(question, [question]);
  }

  // Whether the end of what is shown is still being received, here or in another tab.
  isBusy() {
    return this.running.has(this.leaf) || this.elsewhere.has(this.leaf);
  }

  stop() {
    this.running.get(this.leaf)?.stop();
    if (!this.elsewhere.has(this.leaf)) return;
    signal({ stop: this.leaf });
    this.forgetElsewhere(this.leaf);  // it may not be there any more
  }

  // Another answer beside the one that is there, or in its place where that is empty.
  again(message) {
    const isEmpty = message.content === "" && !message.thinking && childrenOf(this.messages, message.id).length === 0;
    this.ask(this.messages.find(({ id }) => id === message.parent), [], isEmpty ? message.id : null);
  }

  // Asks for an answer to a question, which is among the `added` messages where it is new. False: something is wrong, and
  // nothing was asked.
  ask(question, added, replaced = null) {
    const problem = this.settings.check();
    this.warn("settings", problem && `${problem} Nothing was sent.`);
    if (problem) {
      this.settings.point();
      return false;
    }
    this.stop();
    this.warn("models", "");
    this.wanted = this.conversation.id;
    const isNew = this.messages.length === 0;
    const answer = new Answer({ id: newId(), parent: question.id, conversation: this.conversation.id }, this.models.value);
    const fresh = [...added, answer.message()];
    this.messages = [...this.messages.filter(({ id }) => id !== replaced), ...fresh];
    this.leaf = answer.place.id;
    this.conversation = { ...this.conversation, model: answer.model, leaf: this.leaf };
    if (added[0]?.parent === null) this.conversation.opening = openingOf(added[0].content);
    this.receive(answer, this.requestOf(question), add(this.conversation, fresh, isNew, replaced));
    this.draw();
    this.scrollToEnd();
    this.noteShown();
    return true;
  }

  requestOf(question) {
    return {
      model: this.models.value || undefined, messages: promptOf(this.conversation.system, pathTo(this.messages, question.id)), stream: true,
      stream_options: { include_usage: true }, timings_per_token: true, receipt: true, profile: true, ...this.settings.sampling(),
    };
  }

  // Goes on whatever is shown meanwhile, and stores what arrives.
  async receive(answer, request, added) {
    const { id, conversation } = answer.place;
    answer.turn = pendingTurn(answer, childrenOf(this.messages, answer.place.parent), (other, label) => this.choose(other, label));
    this.running.set(id, answer);
    let stored = performance.now(), timer = null;
    const keep = () => {
      clearTimeout(timer);
      timer = null;
      stored = performance.now();
      update(conversation, answer.message(), false);
    };
    const keepSoon = () => {
      if (performance.now() - stored >= STORE_MS) keep();
      else timer ??= setTimeout(keep, STORE_MS);
    };
    const beat = setInterval(() => signal({ id: conversation, live: id, isBeat: true }), BEAT_MS);
    const follow = setInterval(() => { if (this.isAtEnd && this.leaf === id) this.scrollToEnd(); }, 100);
    const failure = await answer.run(request, keepSoon);
    for (const each of [beat, follow, timer]) clearTimeout(each);
    this.running.delete(id);
    answer.text.element.removeAttribute("aria-busy");
    this.finish(answer);
    await added;
    await update(conversation, answer.message(), true);
    this.finish(answer);  // where the conversation was opened while this was stored
    if (failure) this.onFailure(failure);
  }

  // The turn that streamed in becomes one like the others, and keeps its elements.
  finish(answer) {
    const message = answer.message();
    const shown = this.messages.find(({ id }) => id === message.id);
    if (!shown || this.keyOf(shown) === this.keyOf(message)) return;
    this.messages = this.messages.map((each) => (each.id === message.id ? message : each));
    this.turns.set(message.id, { key: this.keyOf(message), element: this.makeTurn(message, answer) });
    this.draw();
    if (this.isAtEnd) this.scrollToEnd();
  }

  draw() {
    const path = pathTo(this.messages, this.leaf);
    const isEmpty = path.length === 0;
    this.heading.hidden = isEmpty;
    this.heading.textContent = titleOf(this.conversation);
    const elements = isEmpty ? [this.welcome()] : path.map((message) => this.turnOf(message));
    elements.forEach((element, index) => {
      if (this.log.children[index] !== element) this.log.insertBefore(element, this.log.children[index] ?? null);
    });
    while (this.log.children.length > elements.length) this.log.lastChild.remove();
    this.showBusy();
  }

  // The greeting, with stories to ask for where the model that tells stories is chosen.
  welcome() {
    const isOwlet = /^owlet\b/i.test(this.models.value), shown = this.log.querySelector(".welcome");
    if (shown && shown.classList.contains("owlet") === isOwlet) return shown;
    return h("div", { class: isOwlet ? "welcome owlet" : "welcome" },
      h("h1", {}, isOwlet ? "Which story would you like to hear?" : "What would you like to know?"),
      h("p", {}, isOwlet ? "Owlet is tiny and tells short stories. Larger models answer questions." : "Beside each answer stands where its time went, and which device it came from."),
      isOwlet ? h("div", { class: "examples" }, ...STORIES.map((story) => button(story, () => this.say(story, null)))) : null);
  }

  // Elements stay as long as what they show: a reader may have unfolded one, or be writing in it.
  turnOf(message) {
    const answer = this.running.get(message.id);
    if (answer) return answer.turn;
    const key = this.keyOf(message), drawn = this.turns.get(message.id);
    if (drawn && (drawn.key === key || drawn.element.querySelector(".said textarea"))) return drawn.element;
    const element = this.makeTurn(message);
    this.turns.set(message.id, { key, element });
    return element;
  }

  keyOf(message) {
    const { content, thinking, finish, failure } = message;
    return JSON.stringify([content, thinking, finish, failure, this.elsewhere.has(message.id), childrenOf(this.messages, message.parent).map(({ id }) => id)]);
  }

  makeTurn(message, live = null) {
    const siblings = childrenOf(this.messages, message.parent);
    const choose = (other, label) => this.choose(other, label);
    if (message.role === "user") return userTurn(message, siblings, choose, (content) => this.say(content, message.parent));
    const shown = this.elsewhere.has(message.id) ? { ...message, finish: "elsewhere" } : message;
    return answerTurn(shown, siblings, choose, message.parent ? () => this.again(message) : null, live);
  }

  // Shows another version of a message, and the newest of what follows it. The focus stays on the arrow.
  choose(message, label) {
    this.leaf = leafUnder(this.messages, message.id);
    this.setField("leaf", this.leaf);
    this.draw();
    const turn = this.turnOf(message);
    (turn.querySelector(`[aria-label="${label}"]:enabled`) ?? turn.querySelector(".versions button:enabled")).focus();
  }

  showBusy() {
    const isBusy = this.isBusy();
    if (isBusy === this.send.classList.contains("stop")) return;
    this.send.textContent = isBusy ? "Stop" : "Send";
    this.send.classList.toggle("stop", isBusy);
    this.status.textContent = isBusy ? "Answering." : "The answer is complete.";
  }

  distanceToEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
