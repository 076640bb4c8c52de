// Markdown's blocks, read as the text streams in. The result is a tree of plain objects that only grows at its end:
//   {type: "paragraph", lines}, {type: "heading", level, lines}, {type: "code", language, lines}, {type: "rule"},
//   {type: "quote", blocks}, {type: "list", start or null, items: [{type: "item", blocks}]},
//   {type: "table", alignments, head: [cell], rows: [[cell]]}
// HTML is text. So are indented code and underlined headings, which models do not write on purpose.
//
// A line that is not complete yet is read as if it were, and taken back when more of it comes. To stay linear, a long
// paragraph or line is read again only once it has grown by a sixteenth.

const DEEPEST = 12;  // containers; what would be deeper is text
const MOST_COLUMNS = 64;
const READ_AT_ONCE = 1024;  // characters of a paragraph that cost nothing worth saving

export class MarkdownBlocks {
  constructor() {
    this.root = { type: "root", blocks: [] };
    this.open = [this.root];  // containers from the outermost to the innermost
    this.leaf = null;         // the paragraph, code or table that the next line may continue
    this.pending = "";        // not read yet
    this.line = "";           // read, but without its end
    this.paragraphLength = 0;
    this.undo = [];           // takes the incomplete line back
  }

  get blocks() {
    return this.root.blocks;
  }

  // Whether the blocks are other ones than before.
  push(text) {
    this.pending += text;
    const openLength = this.line.length + this.paragraphLength;
    if (openLength > READ_AT_ONCE && this.pending.length * 16 < openLength) return false;
    return this.read();
  }

  end() {
    return this.read();
  }

  read() {
    if (this.pending === "") return false;
    while (this.undo.length) this.undo.pop()();
    const lines = (this.line + this.pending).split("\n");
    this.pending = "";
    this.line = lines.pop();
    for (const line of lines) {
      this.readLine(line.endsWith("\r") ? line.slice(0, -1) : line);
      this.undo.length = 0;
    }
    if (this.line !== "") this.readLine(this.line);
    return true;
  }

  // Every change goes through these two.
  set(object, key, value) {
    const old = object[key];
    this.undo.push(() => { object[key] = old; });
    object[key] = value;
  }

  add(array, value) {
    this.undo.push(() => { array.pop(); });
    array.push(value);
  }

  get container() {
    return this.open.at(-1);
  }

  addBlock(block) {
    this.add(this.container.blocks, block);
  }

  setLeaf(leaf) {
    this.set(this, "leaf", leaf);
    this.set(this, "paragraphLength", 0);
  }

  readLine(line) {
    const { matched, rest } = this.matchContainers(line);
    const isInside = matched === this.open.length;
    if (this.leaf?.type === "code" && isInside) return this.continueCode(rest);
    if (rest.trim() === "") {
      this.closeTo(this.firstQuoteAfter(matched));
      return this.setLeaf(null);
    }
    if (!isInside && this.leaf?.type === "paragraph" && !startsBlock(rest, false)) return this.addLine(rest.trimStart());
    if (!isInside) {
      this.closeTo(matched);
      this.setLeaf(null);
    }
    this.readBlock(this.openContainers(rest));
  }

  // How many of the open containers the line continues, and what it has behind their marks.
  matchContainers(line) {
    let rest = line, matched = 1;
    for (; matched < this.open.length; ++matched) {
      const container = this.open[matched];
      if (container.type === "quote") {
        const mark = /^ {0,3}> ?/.exec(rest);
        if (!mark) break;
        rest = rest.slice(mark[0].length);
      } else if (rest.trim() !== "") {
        const indent = indentOf(rest);
        if (indent < container.least) break;
        rest = withoutIndent(rest, Math.min(indent, container.indent));
      }
    }
    return { matched, rest };
  }

  // A blank line ends quotes that it does not mark, and leaves items open.
  firstQuoteAfter(matched) {
    const quote = this.open.findIndex((container, index) => index >= matched && container.type === "quote");
    return quote < 0 ? this.open.length : quote;
  }

  closeTo(count) {
    if (count < this.open.length) this.set(this, "open", this.open.slice(0, count));
  }

  enter(container) {
    this.set(this, "open", [...this.open, container]);
    this.setLeaf(null);
  }

  openContainers(line) {
    let rest = line;
    while (this.open.length <= DEEPEST) {
      const quote = /^ {0,3}> ?/.exec(rest);
      const item = quote || isRule(rest) ? null : itemMark(rest, this.leaf?.type === "paragraph");
      if (quote) {
        const block = { type: "quote", blocks: [] };
        this.addBlock(block);
        this.enter(block);
        rest = rest.slice(quote[0].length);
      } else if (item) {
        this.openItem(item);
        rest = rest.slice(item.indent);
      } else {
        break;
      }
    }
    return rest;
  }

  openItem({ indent, least, number }) {
    let list = this.container.blocks.at(-1);
    if (list?.type !== "list" || (list.start === null) !== (number === null)) {
      list = { type: "list", start: number, items: [] };
      this.addBlock(list);
    }
    const item = { type: "item", blocks: [], indent, least };
    this.add(list.items, item);
    this.enter(item);
  }

  readBlock(text) {
    const fence = fenceMark(text);
    const heading = /^ {0,3}(#{1,6})(?=[ \t]|$)/.exec(text);
    if (text.trim() === "") return;  // an item's mark alone
    if (fence) {
      const code = { type: "code", language: fence.language, fence: fence.mark, indent: indentOf(text), lines: [] };
      this.addBlock(code);
      this.setLeaf(code);
    } else if (heading) {
      this.addBlock({ type: "heading", level: heading[1].length, lines: [headingText(text.slice(heading[0].length))] });
      this.setLeaf(null);
    } else if (isRule(text)) {
      this.addBlock({ type: "rule" });
      this.setLeaf(null);
    } else if (this.leaf?.type === "table") {
      this.add(this.leaf.rows, cellsOf(text).slice(0, this.leaf.alignments.length));
    } else if (this.leaf?.type === "paragraph") {
      if (!this.startTable(text)) this.addLine(text.trimStart());
    } else {
      const paragraph = { type: "paragraph", lines: [] };
      this.addBlock(paragraph);
      this.setLeaf(paragraph);
      this.addLine(text.trimStart());
    }
  }

  addLine(line) {
    this.add(this.leaf.lines, line);
    this.set(this, "paragraphLength", this.paragraphLength + line.length);
  }

  continueCode(line) {
    const { fence, indent, lines } = this.leaf;
    const mark = fenceMark(line);
    const closes = mark && mark.language === "" && mark.mark[0] === fence[0] && mark.mark.length >= fence.length;
    if (closes) this.setLeaf(null);
    else this.add(lines, withoutIndent(line, Math.min(indent, indentOf(line))));
  }

  // A paragraph's last line becomes a table's head when this line is dashes and bars of as many columns.
  startTable(text) {
    if (!/^[-:|\s]+$/.test(text) || !text.includes("-") || !text.includes("|")) return false;
    const dashes = cellsOf(text);
    const paragraph = this.leaf;
    const head = cellsOf(paragraph.lines.at(-1));
    if (dashes.length !== head.length || head.length > MOST_COLUMNS) return false;
    if (!dashes.every((cell) => /^:?-+:?$/.test(cell))) return false;
    const table = { type: "table", alignments: dashes.map(alignmentOf), head, rows: [] };
    const blocks = this.container.blocks;
    if (paragraph.lines.length === 1) {
      this.set(blocks, blocks.length - 1, table);
    } else {
      this.set(paragraph, "lines", paragraph.lines.slice(0, -1));
      this.addBlock(table);
    }
    this.setLeaf(table);
    return true;
  }
}

function startsBlock(text, inParagraph) {
  return /^ {0,3}(>|#{1,6}(?=[ \t]|$))/.test(text) || isRule(text) || fenceMark(text) !== null ||
    itemMark(text, inParagraph) !== null;
}

function isRule(text) {
  return /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/.test(text);
}

function fenceMark(text) {
  const found = /^ {0,3}(`{3,}|~{3,})([^`]*)$/.exec(text);
  return found && { mark: found[1], language: found[2].trim().split(/\s/, 1)[0].slice(0, 40) };
}

// Behind the text of a paragraph only 1 begins a numbered list: a sentence may break before a year.
function itemMark(text, inParagraph) {
  const found = /^( {0,3})(?:([-*+])|(\d{1,9})[.)])(?=( +|\t|$))/.exec(text);
  if (!found) return null;
  const number = found[3] === undefined ? null : Number(found[3]);
  if (inParagraph && (found[4] === "" || (number !== null && number !== 1))) return null;
  const spaces = found[4].length >= 1 && found[4].length <= 4 ? found[4].length : 1;
  // Models indent by two below "1.", too, where CommonMark asks for three.
  return { indent: Math.min(found[0].length + spaces, text.length), least: found[1].length + 2, number };
}

function indentOf(text) {
  let columns = 0;
  for (const letter of text) {
    if (letter === " ") columns += 1;
    else if (letter === "\t") columns += 4 - (columns % 4);
    else break;
  }
  return columns;
}

function withoutIndent(text, columns) {
  let at = 0, passed = 0;
  for (; passed < columns; ++at) passed += text[at] === "\t" ? 4 - (passed % 4) : 1;
  return " ".repeat(passed - columns) + text.slice(at);
}

function headingText(text) {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (trimmed[end - 1] === "#") --end;
  return end === 0 || /\s/.test(trimmed[end - 1]) ? trimmed.slice(0, end).trimEnd() : trimmed;
}

function cellsOf(line) {
  const cells = [];
  const text = line.trim();
  let cell = "";
  for (let at = text[0] === "|" ? 1 : 0; at < text.length; ++at) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      cell += "|";
      ++at;
    } else if (text[at] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else {
      cell += text[at];
    }
  }
  if (cell.trim() !== "") cells.push(cell.trim());
  return cells;
}

function alignmentOf(dashes) {
  const left = dashes.startsWith(":"), right = dashes.endsWith(":");
  return left && right ? "center" : right ? "right" : "left";
}
