// The list of conversations, at the left or in a drawer.

import { allConversations, remove, save, titleOf } from "./conversations.mjs";
import { button, download, h } from "./dom.mjs";

export class Drawer {
  // `open` shows a conversation, or a new one where it is given none.
  constructor(element, open) {
    this.element = element;
    this.open = open;
    this.current = null;
    addEventListener("storage", () => this.draw());
  }

  show(conversation) {
    this.current = conversation;
    this.draw();
  }

  draw() {
    const all = allConversations();
    this.element.replaceChildren(
      button("New chat", () => this.open(null), { class: "wide", title: "Ctrl+K" }),
      h("ul", { class: "conversations" }, all.map((conversation) => this.row(conversation))),
      all.length ? button("Export all as JSON", () => download("tyto-conversations.json", "application/json", JSON.stringify(all, null, 2)), { class: "quiet small" })
        : h("p", { class: "muted" }, "Conversations are kept in this browser, and nowhere else."));
  }

  row(conversation) {
    const isCurrent = conversation.id === this.current?.id;
    const title = titleOf(conversation);
    const row = h("li", { class: isCurrent ? "current" : null },
      button(title, () => this.open(conversation), { class: "title", "aria-current": isCurrent ? "true" : null }),
      button("✎", () => this.rename(row, conversation), { class: "quiet mark", "aria-label": `Rename ${title}`, title: "Rename" }),
      button("✕", () => this.remove(conversation), { class: "quiet mark", "aria-label": `Delete ${title}`, title: "Delete" }));
    return row;
  }

  rename(row, conversation) {
    const input = h("input", { "aria-label": "New name", maxlength: "120" });
    input.value = titleOf(conversation);
    let isOver = false;
    const finish = (isKept) => {
      if (isOver) return;
      isOver = true;
      if (isKept) {
        conversation.title = input.value.trim();
        save(conversation);
        if (conversation.id === this.current?.id) this.current.title = conversation.title;
      }
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

  remove(conversation) {
    if (!confirm(`Delete “${titleOf(conversation)}”? It is kept nowhere else.`)) return;
    remove(conversation);
    if (conversation.id === this.current?.id) this.open(null);
    else this.draw();
  }
}
