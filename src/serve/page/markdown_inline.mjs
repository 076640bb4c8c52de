// Markdown inside a paragraph: text to a tree of nodes, which are plain objects:
//   { type: "text" | "code", text }, { type: "break" },
//   { type: "strong" | "emphasis" | "strike", children }, { type: "link", href, children }
// Markup of any other kind stays text, and so do LaTeX's formulas. Linear in the length of the text, whatever the text.

const DEEPEST = 24;        // nested nodes; what would be deeper stays text
const LONGEST_ADDRESS = 2048;  // characters of an address
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const ENTITIES = {amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", "#39": "'", nbsp: "\u00a0"};
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WHITESPACE = /\s/;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPECIAL = /[\\`*_~[\]<&\n]|https?:\/\//g;

// The address if a link may lead there, else null.
export function safeAddress(address) {
  try {
    const url = new URL(address);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

export function parseInline(text) {
  return new InlineParser(text).parse();
}

class InlineParser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = [];
    this.runs = [];      // runs of * _ ~ that may still open something: {mark, count, index}
    this.open = { "*": 0, _: 0, "~": 0 };
    this.brackets = [];  // indices into nodes of "[" that may still begin a link
    this.lastTicks = null;
    this.lastClose = {};  // where the last \) and \] are
  }

  parse() {
    while (this.at < this.text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(this.text);
      const end = found ? found.index : this.text.length;
      if (end > this.at) this.addText(this.text.slice(this.at, end));
      this.at = end;
      if (found) this.special(found[0]);
    }
    return this.nodes;
  }

  special(mark) {
    switch (mark) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "*": case "_": case "~": return this.run(mark);
      case "[": this.brackets.push(this.nodes.length); return this.take(1);
      case "]": return this.closeBracket();
      case "<": return this.angle();
      case "&": return this.entity();
      case "\n": return this.lineEnd();
      default: return this.bareAddress();
    }
  }

  take(count) {
    // A text of its own: brackets and runs are found again by their index.
    this.nodes.push({ type: "text", text: this.text.substr(this.at, count) });
    this.at += count;
  }

  addText(text) {
    this.nodes.push({ type: "text", text });
  }

  escape() {
    const next = this.text[this.at + 1];
    const end = this.formulaEnd(next);
    if (end > this.at) {
      this.addText(this.text.slice(this.at, end));
      this.at = end;
    } else if (next === "\n") {
      this.nodes.push({ type: "break" });
      this.at += 2;
    } else if (next !== undefined && ESCAPABLE.test(next)) {
      this.addText(next);
      this.at += 2;
    } else {
      this.take(1);
    }
  }

  // Behind \(…\) or \[…\], which stay as they are written: nothing here draws formulas. 0: this begins none.
  formulaEnd(next) {
    const close = { "(": "\\)", "[": "\\]" }[next];
    if (!close) return 0;
    this.lastClose[close] ??= this.text.lastIndexOf(close);
    return this.lastClose[close] < this.at + 2 ? 0 : this.text.indexOf(close, this.at + 2) + close.length;
  }

  lineEnd() {
    const before = this.nodes.at(-1);
    const isHard = before?.type === "text" && before.text.endsWith("  ");
    if (before?.type === "text") before.text = before.text.trimEnd();
    this.nodes.push(isHard ? { type: "break" } : { type: "text", text: "\n" });
    this.at += 1;
  }

  code() {
    const ticks = this.ticksAt(this.at);
    const end = this.at + ticks;
    this.lastTicks ??= this.findLastTicks();
    if (this.lastTicks.get(ticks) <= this.at) return this.take(ticks);
    let start = end;  // there is a partner ahead, so this ends
    for (let length = 0; length !== ticks; start += length) {
      start = this.text.indexOf("`", start);
      length = this.ticksAt(start);
    }
    let text = this.text.slice(end, start - ticks).replaceAll("\n", " ");
    if (text.length > 2 && text[0] === " " && text.at(-1) === " ") text = text.slice(1, -1);
    this.nodes.push({ type: "code", text });
    this.at = start;
  }

  ticksAt(start) {
    let end = start;
    while (this.text[end] === "`") ++end;
    return end - start;
  }

  // Where the last run of each length begins.
  findLastTicks() {
    const last = new Map();
    for (const run of this.text.matchAll(/`+/g)) last.set(run[0].length, run.index);
    return last;
  }

  run(mark) {
    let end = this.at;
    while (this.text[end] === mark) ++end;
    let count = end - this.at;
    const before = this.text[this.at - 1] ?? " ", after = this.text[end] ?? " ";
    const spaceBefore = WHITESPACE.test(before), spaceAfter = WHITESPACE.test(after);
    const signBefore = PUNCTUATION.test(before), signAfter = PUNCTUATION.test(after);
    const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
    const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
    const inWord = mark === "_" && left && right;
    this.at = end;
    if (right && (!inWord || signAfter)) count = this.closeRuns(mark, count);
    if (count === 0) return;
    this.addText(mark.repeat(count));
    if (left && (!inWord || signBefore)) {
      this.runs.push({ mark, count, index: this.nodes.length - 1 });
      ++this.open[mark];
    }
  }

  // Pairs the run with those that are open; how many of its marks are left.
  closeRuns(mark, count) {
    while (count > 0 && this.open[mark] > 0) {
      while (this.runs.at(-1).mark !== mark) this.dropRun();
      const opener = this.runs.at(-1);
      const used = opener.count >= 2 && count >= 2 ? 2 : 1;
      if (mark === "~" && used !== 2) return count;
      const children = this.nodes.slice(opener.index + 1);
      const depth = depthOf(children) + 1;
      if (depth > DEEPEST) {
        while (this.runs.length) this.dropRun();
        return count;
      }
      const type = mark === "~" ? "strike" : used === 2 ? "strong" : "emphasis";
      this.nodes.length = opener.index;
      opener.count -= used;
      if (opener.count > 0) this.addText(mark.repeat(opener.count));
      else this.dropRun();
      this.nodes.push({ type, children, depth });
      this.forgetBrackets(opener.index);
      count -= used;
    }
    return count;
  }

  dropRun() {
    --this.open[this.runs.pop().mark];
  }

  forgetBrackets(from) {
    while (this.brackets.length && this.brackets.at(-1) >= from) this.brackets.pop();
  }

  closeBracket() {
    const opener = this.brackets.pop();
    const target = opener === undefined ? null : this.linkTarget();
    if (target === null) return this.take(1);
    const children = this.nodes.slice(opener + 1);
    // A picture is shown as a link to it: nothing is loaded from where a model says.
    const before = this.nodes[opener - 1];
    if (before?.type === "text" && before.text.endsWith("!")) before.text = before.text.slice(0, -1);
    this.nodes.length = opener;
    while (this.runs.length && this.runs.at(-1).index >= opener) this.dropRun();
    this.brackets = [];  // no links in links
    this.nodes.push({ type: "link", href: target.href, children, depth: depthOf(children) + 1 });
    this.at = target.end;
  }

  // (address) or (address "title") after the bracket; null where there is none, or none that is safe.
  linkTarget() {
    if (this.text[this.at + 1] !== "(") return null;
    const limit = Math.min(this.text.length, this.at + 2 + LONGEST_ADDRESS);
    let depth = 0, end = this.at + 2;
    for (; end < limit; ++end) {
      const letter = this.text[end];
      if (letter === "\n") return null;
      if (letter === "\\") ++end;
      else if (letter === "(" && ++depth > 8) return null;
      else if (letter === ")" && depth-- === 0) break;
    }
    if (end >= limit) return null;
    const inside = this.text.slice(this.at + 2, end).trim();
    const address = inside.startsWith("<") ? inside.slice(1).split(">", 1)[0] : inside.split(/\s/, 1)[0];
    const href = safeAddress(address);
    return href === null ? null : { href, end: end + 1 };
  }

  angle() {
    const inside = /[^<>\s]{1,2048}>/y;
    inside.lastIndex = this.at + 1;
    const found = inside.exec(this.text)?.[0].slice(0, -1);
    if (found === "br" || found === "br/") {
      this.nodes.push({ type: "break" });
    } else if (found && /^(https?:\/\/|mailto:)/i.test(found) && safeAddress(found)) {
      this.nodes.push({ type: "link", href: safeAddress(found), children: [{ type: "text", text: found }], depth: 1 });
    } else {
      return this.take(1);
    }
    this.at += found.length + 2;
  }

  bareAddress() {
    const address = /https?:\/\/[^\s<>"'`*\]|]+/y;
    address.lastIndex = this.at;
    const whole = address.exec(this.text)?.[0] ?? "http";
    const hasParenthesis = whole.includes("(");
    let length = whole.length;
    while (length > 0 && (hasParenthesis ? /[.,:;!?]/ : /[.,:;!?)]/).test(whole[length - 1])) --length;
    const text = whole.slice(0, length);
    const href = length <= LONGEST_ADDRESS ? safeAddress(text) : null;
    if (href === null) return this.take(whole.length);
    this.nodes.push({ type: "link", href, children: [{ type: "text", text }], depth: 1 });
    this.at += length;
  }

  entity() {
    const entity = /&(#?\w{2,6});/y;
    entity.lastIndex = this.at;
    const found = entity.exec(this.text);
    const letter = found && ENTITIES[found[1]];
    if (!letter) return this.take(1);
    this.addText(letter);
    this.at += found[0].length;
  }
}

function depthOf(nodes) {
  return nodes.reduce((deepest, node) => Math.max(deepest, node.depth ?? 0), 0);
}
