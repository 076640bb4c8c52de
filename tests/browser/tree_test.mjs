// The page's tree of messages: branches, what is sent of them, and lists from earlier versions.

import assert from "node:assert/strict";
import { test } from "node:test";

import { waitWords } from "../../src/serve/page/api.mjs";
import { chainOf, childrenOf, grown, leafUnder, newId, openingOf, pathTo, promptOf } from "../../src/serve/page/tree.mjs";

const say = (id, parent, role, content, more = {}) => ({ id, parent, role, content, ...more });
// Two questions at the beginning, the second with two answers, of which the first was gone on with.
const TREE = [
  say("a", null, "user", "first"), say("b", "a", "assistant", "one"),
  say("c", null, "user", "first, edited"), say("d", "c", "assistant", "two"), say("f", "c", "assistant", "three"),
  say("g", "d", "user", "more"), say("h", "d", "user", "more, edited"), say("i", "h", "assistant", "four"),
];
const ids = (messages) => messages.map(({ id }) => id).join("");

test("ids sort by when they were made", () => {
  const made = Array.from({ length: 2000 }, newId);
  assert.deepEqual([...made].sort(), made);
  assert.equal(new Set(made).size, made.length);
});

test("paths, siblings and leaves, whatever the order", () => {
  for (const tree of [TREE, [...TREE].reverse()]) {
    assert.equal(ids(pathTo(tree, "i")), "cdhi");
    assert.equal(ids(pathTo(tree, "b")), "ab");
    assert.equal(ids(childrenOf(tree, null)), "ac");
    assert.equal(ids(childrenOf(tree, "c")), "df");
    assert.equal(leafUnder(tree, "d"), "i");
    assert.equal(leafUnder(tree, "a"), "b");
    assert.equal(leafUnder(tree), "f");
  }
  assert.equal(leafUnder([]), null);
});

test("a missing parent or a circle ends a path", () => {
  assert.deepEqual(pathTo(TREE, "nowhere"), []);
  assert.equal(ids(pathTo([say("x", "gone", "user", "?")], "x")), "x");
  assert.equal(ids(pathTo([say("x", "y", "user", "?"), say("y", "x", "assistant", "!")], "x")), "yx");
});

test("what is sent alternates, whatever went wrong before", () => {
  const failed = [{ failure: "busy" }, { failure: "broke off", content: "half" }, { finish: "stopped" }, { finish: "left", thinking: "hm" }];
  for (const how of failed) {
    const path = [say("a", null, "user", "lost"), say("b", "a", "assistant", "", how), say("c", "b", "user", "next")];
    assert.deepEqual(promptOf("", path), [{ role: "user", content: "next" }], JSON.stringify(how));
  }
  const twice = [say("a", null, "user", "lost"), say("b", "a", "user", "next")];
  assert.deepEqual(promptOf(" Be brief. ", twice), [{ role: "system", content: "Be brief." }, { role: "user", content: "next" }]);
  assert.deepEqual(promptOf("", pathTo(TREE, "h")).map(({ content }) => content), ["first, edited", "two", "more, edited"]);
  const stopped = [say("a", null, "user", "q"), say("b", "a", "assistant", "half", { finish: "stopped" }), say("c", "b", "user", "next")];
  assert.equal(promptOf("", stopped).length, 3);
});

test("a list becomes a chain, and every question has an answer", () => {
  const list = [{ role: "user", content: "first" }, { role: "user", content: "second" }, { role: "assistant", content: "yes", finish: "stop" }, { role: "user", content: "third" }];
  const chain = chainOf(list);
  assert.deepEqual(chain.map(({ role, content }) => [role, content]),
    [["user", "first"], ["assistant", ""], ["user", "second"], ["assistant", "yes"], ["user", "third"], ["assistant", ""]]);
  assert.equal(ids(pathTo(chain, leafUnder(chain))), ids(chain));
  assert.equal(chain[3].finish, "stop");
  assert.deepEqual(promptOf("", chain).map(({ content }) => content), ["second", "yes"]);
});

test("a list that was taken over before adds only what is new", () => {
  const list = [{ role: "user", content: "q" }, { role: "assistant", content: "a" }];
  const chain = chainOf(list);
  assert.deepEqual(grown(chain, chainOf(list)), []);
  const more = grown(chain, chainOf([...list, { role: "user", content: "r" }, { role: "assistant", content: "b" }]));
  assert.deepEqual(more.map(({ content }) => content), ["r", "b"]);
  assert.equal(more[0].parent, chain[1].id);
  const other = grown(chain, chainOf([{ role: "user", content: "q" }, { role: "assistant", content: "another" }]));
  assert.deepEqual(other.map(({ content, parent }) => [content, parent]), [["another", chain[0].id]]);
});

test("damaged parents do not hang the page", () => {
  const circle = [{ id: "a", parent: "b" }, { id: "b", parent: "a" }];
  assert.ok(["a", "b"].includes(leafUnder(circle, "a")));
  assert.equal(leafUnder(circle), null);
  assert.equal(pathTo(circle, "a").length, 2);
});

test("the opening is one short line", () => {
  assert.equal(openingOf("  Why?\nBecause."), "Why?");
  assert.equal(openingOf("x".repeat(80)).length, 48);
  assert.equal(openingOf(" "), "");
});

test("when to try again is said once", () => {
  for (const [message, words] of [
    ["server: 72 requests run or wait, and 72 may; try again later", "server: 72 requests run or wait, and 72 may. Try again in 1 s."],
    ["b: is being loaded", "b: is being loaded. Try again in 1 s."],
    ["64 requests are waiting already.", "64 requests are waiting already. Try again in 1 s."],
    ["Please try again later.", "Try again in 1 s."],
  ]) assert.equal(waitWords(message, "1"), words);
  assert.equal(waitWords("try again later", null), "try again later");
  assert.equal(waitWords("busy", "Wed, 21 Oct 2026 07:28:00 GMT"), "busy");
});
