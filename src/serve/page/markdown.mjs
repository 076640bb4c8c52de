// Markdown that streams in, as elements. What is complete is made once; only the end is looked at again.

import { button, h } from "./dom.mjs";
import { MarkdownBlocks } from "./markdown_blocks.mjs";
import { parseInline } from "./markdown_inline.mjs";

export class MarkdownView {
  constructor(element) {
    this.element = element;
    this.markdown = new MarkdownBlocks();
    this.blocks = new Grown(element, makeBlock);
  }

  push(text) {
    if (this.markdown.push(text)) this.blocks.show(this.markdown.blocks);
  }

  end() {
    if (this.markdown.end()) this.blocks.show(this.markdown.blocks);
  }
}

// The elements of an array that only changes at its end. `make` returns {node, update} of a value; without update, the
// value never changes.
class Grown {
  constructor(parent, make) {
    this.parent = parent;
    this.make = make;
    this.shown = [];  // {value, node, update}
  }

  show(values) {
    // An incomplete line adds or replaces one value at most, so all but the last two are what they were.
    const first = Math.max(0, Math.min(this.shown.length, values.length) - 2);
    for (let index = first; index < values.length; ++index) {
      const old = this.shown[index];
      if (old?.value === values[index]) {
        old.update?.();
        continue;
      }
      this.cut(index);
      const made = { value: values[index], ...this.make(values[index]) };
      this.shown.push(made);
      this.parent.append(made.node);
    }
    this.cut(values.length);
  }

  cut(count) {
    while (this.shown.length > count) this.shown.pop().node.remove();
  }
}

const MAKERS = {
  paragraph: (block) => inlineBlock(h("p"), block),
  heading: (block) => inlineBlock(h(`h${Math.min(6, block.level + 2)}`), block),  // the page has h1 and h2 of its own
  rule: () => ({ node: h("hr") }),
  quote: (block) => container(h("blockquote"), block),
  list: makeList,
  code: makeCode,
  table: makeTable,
};

function makeBlock(block) {
  return MAKERS[block.type](block);
}

function inlineBlock(node, block) {
  let shown = null;
  const update = () => {
    const text = block.lines.join("\n");
    if (text === shown) return;
    shown = text;
    node.replaceChildren(...parseInline(text).map(inlineNode));
  };
  update();
  return { node, update };
}

function container(node, block) {
  const blocks = new Grown(node, makeBlock);
  const update = () => blocks.show(block.blocks);
  update();
  return { node, update };
}

function makeList(list) {
  const node = list.start === null ? h("ul") : h("ol", { start: list.start });
  const items = new Grown(node, (item) => container(h("li"), item));
  const update = () => items.show(list.items);
  update();
  return { node, update };
}

function makeCode(block) {
  const code = h("code");
  const lines = new Grown(code, (line) => ({ node: document.createTextNode(line + "\n") }));
  const label = h("span", { class: "language" });
  const copy = copyButton(() => block.lines.join("\n") + "\n");
  const update = () => {
    label.textContent = block.language || "text";
    lines.show(block.lines);
  };
  update();
  return { node: h("figure", { class: "code" }, h("figcaption", {}, label, copy), h("pre", { tabindex: "0" }, code)), update };
}

export function copyButton(textNow) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(textNow());
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Cannot copy";  // browsers forbid it over plain http from another machine
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }, { class: "quiet small" });
  return copy;
}

function makeTable(table) {
  const rowOf = (tag) => (cells) => ({
    node: h("tr", {}, cells.map((cell, column) =>
      h(tag, { class: table.alignments[column] }, ...parseInline(cell).map(inlineNode)))),
  });
  const body = h("tbody");
  const rows = new Grown(body, rowOf("td"));
  const head = h("thead", {}, rowOf("th")(table.head).node);
  const update = () => rows.show(table.rows);
  update();
  return { node: h("div", { class: "scroll", tabindex: "0" }, h("table", {}, head, body)), update };
}

const TAGS = { strong: "strong", emphasis: "em", strike: "s" };

function inlineNode(node) {
  switch (node.type) {
    case "text": return document.createTextNode(node.text);
    case "code": return h("code", {}, node.text);
    case "break": return h("br");
    case "link":
      return h("a", { href: node.href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...node.children.map(inlineNode));
    default: return h(TAGS[node.type], {}, ...node.children.map(inlineNode));
  }
}
