// A conversation's messages as a tree. Each one names its parent; an edited question and another answer are siblings, and
// nothing is taken away. Messages are {id, parent, role, content, ...}, in any order; ids sort by when they were made.

let lastId = "";

// Sorts after every one that this tab made before, and after other tabs' as far as clocks agree.
export function newId() {
  const random = Math.random().toString(36).slice(2, 8).padEnd(6, "0");
  const time = Date.now().toString(36).padStart(9, "0");
  lastId = time > lastId.slice(0, 9) ? `${time}-000-${random}`
    : `${lastId.slice(0, 10)}${(parseInt(lastId.slice(10, 13), 36) + 1).toString(36).padStart(3, "0")}-${random}`;
  return lastId;
}

const byAge = (a, b) => (a.id < b.id ? -1 : 1);

export function childrenOf(messages, parent) {
  return messages.filter((message) => message.parent === parent).sort(byAge);
}

// From the first message to this one. It ends early where a parent is missing, or is its own descendant.
export function pathTo(messages, id) {
  const byId = new Map(messages.map((message) => [message.id, message]));
  const path = [];
  for (let at = byId.get(id); at && byId.delete(at.id); at = byId.get(at.parent)) path.unshift(at);
  return path;
}

// The end of the newest branch below a message, or of all (null).
export function leafUnder(messages, id = null) {
  const seen = new Set();  // a damaged message may be its own descendant
  for (let next; (next = childrenOf(messages, id).at(-1)) && !seen.has(next.id); id = next.id) seen.add(next.id);
  return id;
}

// Whether it counts as an answer to what was said before.
export function isAnswer({ role, content, failure }) {
  return role === "assistant" && content !== "" && !failure;
}

// What the server is sent: the system prompt and the messages of a path, without what was measured. A question that got no
// answer is left out with it, unless it is the last: many templates want turns to alternate.
export function promptOf(system, path) {
  const said = path.filter((message, index) => message.role === "user"
    ? index === path.length - 1 || isAnswer(path[index + 1])
    : isAnswer(message));
  return [...(system.trim() ? [{ role: "system", content: system.trim() }] : []), ...said.map(({ role, content }) => ({ role, content }))];
}

// Messages of a list without branches, each below the one before. Every question gets an answer, if only one that says
// that there is none.
export function chainOf(list) {
  const all = list.flatMap((message, index) =>
    message.role === "user" && list[index + 1]?.role !== "assistant" ? [message, UNANSWERED] : [message]);
  let parent = null;
  return all.map((message) => {
    const made = { ...message, id: newId(), parent };
    parent = made.id;
    return made;
  });
}

const UNANSWERED = { role: "assistant", content: "", failure: "No answer to this was kept." };

// What a chain adds to a tree: what both share from the beginning stays as it is.
export function grown(messages, chain) {
  const isShared = (message, other) => other.role === message.role && other.content === message.content;
  let parent = null, index = 0;
  for (; index < chain.length; ++index) {
    const known = childrenOf(messages, parent).find((other) => isShared(chain[index], other));
    if (!known) break;
    parent = known.id;
  }
  return chain.slice(index).map((message, at) => (at === 0 ? { ...message, parent } : message));
}

// The first line, for a list of conversations.
export function openingOf(text) {
  const line = text.trim().split("\n", 1)[0];
  return line.length > 48 ? line.slice(0, 47) + "…" : line;
}
