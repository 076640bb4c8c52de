// The list of conversations, at the left or in a drawer.

import { allConversations, change, exported, listen, remove, titleOf } from "./conversations.mjs";
import { button, download, h } from "./dom.mjs";

export class Drawer {
  // `open` shows the conversation of an id, or a new one where it is given none; `isAnswering` says whether one is being answered.
  constructor(element, open, isAnswering) {
    this.element = element;
    this.open = open;
    this.isAnswering = isAnswering;
    this.current = null;
    this.drawn = "";
    this.isRenaming = false;
    listen(() => this.draw());
  }

  show(conversation) {
    this.current = conversation;
    this.draw();
  }

  // Elements stay where nothing changed: the focus may be on one of them.
  async draw() {
    const all = await allConversations();
    const drawn = JSON.stringify([this.current?.id, all.map(({ id, title, opening }) => [id, title, opening, this.isAnswering(id)])]);
    if (this.isRenaming || drawn === this.drawn) return;
    this.drawn = drawn;
    this.element.replaceChildren(
      button("New chat", () => this.open(null), { class: "wide", title: "Ctrl+K" }),
      h("ul", { class: "conversations" }, all.map((conversation) => this.row(conversation))),
      all.length ? button("Export all as JSON", () => this.export(), { class: "quiet small" })
        : h("p", { class: "muted" }, "Conversations are kept in this browser, and nowhere else."));
  }

  async export() {
    download("tyto-conversations.json", "application/json", JSON.stringify(await exported(), null, 2));
  }

  row(conversation) {
    const isCurrent = conversation.id === this.current?.id;
    const title = titleOf(conversation);
    const row = h("li", { class: [isCurrent && "current", this.isAnswering(conversation.id) && "busy"].filter(Boolean).join(" ") },
      button(title, () => this.open(conversation.id), { class: "title", "aria-current": isCurrent ? "true" : null }),
      button("✎", () => this.rename(row, conversation), { class: "quiet mark", "aria-label": `Rename ${title}`, title: "Rename" }),
      button("✕", () => this.remove(conversation), { class: "quiet mark", "aria-label": `Delete ${title}`, title: "Delete" }));
    return row;
  }

  rename(row, conversation) {
    const input = h("input", { "aria-label": "New name", maxlength: "120" });
    input.value = titleOf(conversation);
    this.isRenaming = true;
    const finish = async (isKept) => {
      if (!this.isRenaming) return;
      this.isRenaming = false;
      this.drawn = "";
      if (isKept) await change(conversation.id, { title: input.value.trim() });
      this.draw();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") finish(true);
      if (event.key === "Escape") { event.stopPropagation(); finish(false); }
    });
    input.addEventListener("blur", () => finish(true));
    row.replaceChildren(input);
    input.select();
  }

  async remove(conversation) {
    if (!confirm(`Delete “${titleOf(conversation)}”? It is kept nowhere else.`)) return;
    await remove(conversation.id);
    if (conversation.id === this.current?.id) this.open(null);
  }
}
