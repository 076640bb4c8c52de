// Conversations, kept in this browser. Each has a key of its own, so that two tabs do not write over each other's.
//   {id, title, changed, system, messages: [{role, content, model?, thinking?, measured?, finish?, failure?}]}

const PREFIX = "tyto.conversation.";

export function newConversation(system = "") {
  return { id: crypto.randomUUID?.() ?? String(Math.random()).slice(2), title: "", changed: Date.now(), system, messages: [] };
}

// The most recently changed first. What cannot be read is left out, not deleted.
export function allConversations() {
  const found = [];
  for (let index = 0; index < localStorage.length; ++index) {
    const key = localStorage.key(index);
    if (!key.startsWith(PREFIX)) continue;
    try {
      const conversation = JSON.parse(localStorage.getItem(key));
      if (Array.isArray(conversation.messages)) found.push(conversation);
    } catch {
      continue;
    }
  }
  return found.sort((a, b) => b.changed - a.changed);
}

// Whether there was room.
export function save(conversation) {
  conversation.changed = Date.now();
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

// Whether it was kept and not deleted since, in this tab or another.
export function isKept(conversation) {
  return localStorage.getItem(PREFIX + conversation.id) !== null;
}

export function remove(conversation) {
  localStorage.removeItem(PREFIX + conversation.id);
}

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find((message) => message.role === "user")?.content ?? "";
  const line = first.trim().split("\n", 1)[0];
  return line.length > 48 ? line.slice(0, 47) + "…" : line || "New chat";
}

// What the server is sent: the system prompt and the messages up to here, without what was measured.
export function promptOf(conversation) {
  const system = conversation.system.trim();
  const said = conversation.messages.filter((message) => message.content !== "" && !message.failure);
  return [...(system ? [{ role: "system", content: system }] : []), ...said.map(({ role, content }) => ({ role, content }))];
}
