// The page's Markdown without a browser: what becomes a node and what stays text, in any pieces, in linear time.

import assert from "node:assert/strict";
import { test } from "node:test";

import { MarkdownBlocks } from "../../src/serve/page/markdown_blocks.mjs";
import { parseInline, safeAddress } from "../../src/serve/page/markdown_inline.mjs";
import { ThinkingSplit } from "../../src/serve/page/thinking.mjs";

// Nodes in short: text as it is, others as (type …).
function short(nodes) {
  return nodes.map((node) => {
    if (node.type === "text") return node.text;
    if (node.type === "code") return `(code ${node.text})`;
    if (node.type === "link") return `(link ${node.href} ${short(node.children)})`;
    return node.children ? `(${node.type} ${short(node.children)})` : `(${node.type})`;
  }).join("");
}

function shortBlock(block) {
  switch (block.type) {
    case "paragraph": return `p[${block.lines.join("/")}]`;
    case "heading": return `h${block.level}[${block.lines.join("/")}]`;
    case "code": return `code:${block.language}[${block.lines.join("/")}]`;
    case "rule": return "rule";
    case "quote": return `quote(${shortBlocks(block.blocks)})`;
    case "list": return `${block.start ?? "list"}(${block.items.map((item) => shortBlocks(item.blocks)).join("; ")})`;
    case "table": return `table:${block.alignments}[${[block.head, ...block.rows].map((row) => row.join("|")).join("/")}]`;
  }
}

const shortBlocks = (blocks) => blocks.map(shortBlock).join(" ");

function read(text, size = text.length || 1) {
  const blocks = new MarkdownBlocks();
  for (let at = 0; at < text.length; at += size) blocks.push(text.slice(at, at + size));
  blocks.end();
  return shortBlocks(blocks.blocks);
}

const INLINE = [
  ["plain", "plain"],
  ["*a* **b** ***c*** ~~d~~", "(emphasis a) (strong b) (emphasis (strong c)) (strike d)"],
  ["_a_ snake_case_name __b__", "(emphasis a) snake_case_name (strong b)"],
  ["2 * 3 * 4 and a*b", "2 * 3 * 4 and a*b"],
  ["**bold *both* bold**", "(strong bold (emphasis both) bold)"],
  ["**never closed", "**never closed"],
  ["`a*b*` ``x ` y`` `open", "(code a*b*) (code x ` y) `open"],
  ["\\*no\\* \\q", "*no* \\q"],
  ["so \\(a_1 * b_2 * c\\) *is* \\[\\frac{1}{2}\\,x_1\n= y\\].", "so \\(a_1 * b_2 * c\\) (emphasis is) \\[\\frac{1}{2}\\,x_1\n= y\\]."],
  ["*a \\(x*y\\) b* \\(open \\[*c*\\)", "(emphasis a \\(x*y\\) b) \\(open \\[*c*\\)"],
  ["\\) \\] \\(*d* \\[e](https://x.org/)", ") ] ((emphasis d) [e]((link https://x.org/ https://x.org/))"],
  ["a  \nb\nc<br>d", "a(break)b\nc(break)d"],
  ["&lt;b&gt; &amp;&unknown;", "<b> &&unknown;"],
  ["[a *b*](https://x.org/ \"title\")", "(link https://x.org/ a (emphasis b))"],
  ["[a](https://x.org/w_(y))!", "(link https://x.org/w_(y) a)!"],
  ["see https://x.org/a_b_c, and <https://y.org>.", "see (link https://x.org/a_b_c https://x.org/a_b_c), and (link https://y.org/ https://y.org)."],
  ["(https://x.org/)", "((link https://x.org/ https://x.org/))"],
  ["![cat](https://x.org/c.png)", "(link https://x.org/c.png cat)"],
  ["[mail](mailto:a@b.org)", "(link mailto:a@b.org mail)"],
];

test("markup inside a paragraph", () => {
  for (const [text, expected] of INLINE) assert.equal(short(parseInline(text)), expected, text);
});

test("hostile markup stays text", () => {
  for (const text of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))", "[x](java\tscript:alert(1))", "[x](data:text/html,hi)", "[x](vbscript:x)", "[x](//x.org)",
    "[x](/v1/models)", "[x]( )", "![x](javascript:alert(1))", "<javascript:alert(1)>", "[x](file:///etc/passwd)"]) {
    assert.equal(short(parseInline(text)), text);
  }
  assert.equal(safeAddress("\u0001javascript:alert(1)"), null);
});

const BLOCKS = [
  ["# One\n## Two ##\n#no", "h1[One] h2[Two] p[#no]"],
  ["a\nb\n\nc", "p[a/b] p[c]"],
  ["```py\nx = 1\n\n  y\n```\nafter", "code:py[x = 1//  y] p[after]"],
  ["~~~\n```\n~~~", "code:[```]"],
  ["```\nnever closed", "code:[never closed]"],
  ["- a\n- b\n  - c\n  - d\n- e", "list(p[a]; p[b] list(p[c]; p[d]); p[e])"],
  ["1. a\n   - b\n2. c", "1(p[a] list(p[b]); p[c])"],
  ["1. a\n  - b\n\n2. c", "1(p[a] list(p[b]); p[c])"],
  ["3) a\n4) b", "3(p[a]; p[b])"],
  ["- a\n\n  more\n\nout", "list(p[a] p[more]) p[out]"],
  ["- a\n  ```\n  code\n  ```", "list(p[a] code:[code])"],
  ["born in\n1984. Then", "p[born in/1984. Then]"],
  ["> a\n> > b\n\nc", "quote(p[a] quote(p[b])) p[c]"],
  ["> a\nlazy", "quote(p[a/lazy])"],
  ["---\n***\n- - -", "rule rule rule"],
  ["| a | b |\n|:--|--:|\n| 1 | 2 |\n| x \\| y |\n\nz", "table:left,right[a|b/1|2/x | y] p[z]"],
  ["text\na|b\n-|-\n1|2", "p[text] table:left,left[a|b/1|2]"],
  ["a|b\n-|-|-", "p[a|b/-|-|-]"],
  ["<div>\n<script>x</script>", "p[<div>/<script>x</script>]"],
  ["a\r\n\r\nb", "p[a] p[b]"],
  ["-", "list()"],
];

test("blocks", () => {
  for (const [text, expected] of BLOCKS) assert.equal(read(text), expected, text);
});

test("blocks do not depend on the pieces that they came in", () => {
  const all = BLOCKS.map(([text]) => text).join("\n\n\n");
  for (const text of [...BLOCKS.map(([text]) => text), all])
    for (const size of [1, 2, 3, 7]) assert.equal(read(text, size), read(text), `${size}: ${text}`);
});

test("nothing is nested without end", () => {
  const depth = (blocks) => 1 + Math.max(0, ...blocks.flatMap((block) => (block.items ?? [block]).map((part) => part.blocks ? depth(part.blocks) : 0)));
  for (const text of [">".repeat(9999), "- ".repeat(9999) + "x", "> - ".repeat(999) + "x"]) {
    const blocks = new MarkdownBlocks();
    blocks.push(text);
    assert.ok(depth(blocks.blocks) < 30);
  }
  const nesting = (nodes) => 1 + Math.max(0, ...nodes.map((node) => node.children ? nesting(node.children) : 0));
  assert.ok(nesting(parseInline("*a ".repeat(999) + "b* ".repeat(999))) < 40);
});

// It takes a second. At this size a quadratic reader would not come back within the time-out, however slow the machine.
test("hostile texts are read in linear time", { timeout: 120_000 }, () => {
  const size = 200_000;
  for (const piece of ["*", "_", "[", "![", "`", "<", "&", "](", "[](", "**a ", "a** ", "`a``", "http://", "http://)", "\\", "~~x", "*a_b ",
    "<a", "[a](http://x", "a* b_ ", "\\(", "\\[a", "\\(\\)", "\\(\\]"]) {
    const text = piece.repeat(size / piece.length);
    assert.ok(parseInline(text).length > 0, piece);
  }
  for (const piece of ["> ", "- ", "|", "a|b\n-|-\n", "#", "# # ", "`", "```\n", "1. ", " ", "- a\n  ", "|-", "\t"]) {
    const blocks = new MarkdownBlocks();
    for (let at = 0; at < size; at += 16) blocks.push(piece.repeat(Math.ceil(16 / piece.length)));
    blocks.end();
  }
});

test("reasoning is told from the answer", () => {
  const split = (text, size) => {
    const parts = { thinking: "", answer: "" };
    const parser = new ThinkingSplit((part) => (parts.thinking += part), (part) => (parts.answer += part));
    for (let at = 0; at < text.length; at += size) parser.push(text.slice(at, at + size));
    parser.end();
    return parts;
  };
  for (const size of [1, 3, 100]) {
    assert.deepEqual(split("<think>\nhm < 3\n</think>\n\nyes", size), { thinking: "\nhm < 3\n", answer: "\n\nyes" });
    assert.deepEqual(split("<think>never ends", size), { thinking: "never ends", answer: "" });
    assert.deepEqual(split("<thin air", size), { thinking: "", answer: "<thin air" });
    assert.deepEqual(split("a <think>b</think>", size), { thinking: "", answer: "a <think>b</think>" });
  }
});
