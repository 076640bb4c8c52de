// Conversations, kept in this browser's IndexedDB. Every change is one transaction on what is stored: tabs add to each
// other's work and never write over it. Where the browser refuses, they are kept in this tab, and the page says so.
//   conversations: {id, title, opening, changed, system, model, leaf}
//   messages:      {id, conversation, parent, role, content, model?, thinking?, measured?, finish?, failure?}

import { chainOf, grown, leafUnder, openingOf } from "./tree.mjs";

const TABLES = ["conversations", "messages"];
const EARLIER = "tyto.conversation.";  // keys of earlier versions in the local storage
const OPEN_MS = 5000;
const channel = new BroadcastChannel("tyto.conversations");
const listeners = [];

// The tables of a transaction, as the changes below see them.
class Stored {
  constructor(transaction) {
    this.transaction = transaction;
  }

  get(table, id) { return answerTo(this.transaction.objectStore(table).get(id)); }
  put(table, row) { this.transaction.objectStore(table).put(row); }
  delete(table, id) { this.transaction.objectStore(table).delete(id); }
  all(table) { return answerTo(this.transaction.objectStore(table).getAll()); }
  messagesOf(id) { return answerTo(this.transaction.objectStore("messages").index("conversation").getAll(id)); }
}

// The same, in this tab. It has what the tab has seen; it is read once nothing can be stored.
class InMemory {
  constructor() {
    this.rows = { conversations: new Map(), messages: new Map() };
  }

  get(table, id) { return this.rows[table].get(id); }
  put(table, row) { this.rows[table].set(row.id, row); }
  delete(table, id) { this.rows[table].delete(id); }
  all(table) { return [...this.rows[table].values()]; }
  messagesOf(id) { return this.all("messages").filter((message) => message.conversation === id); }
}

const memory = new InMemory();
let database = null;
let problem = "";        // why nothing can be stored; a sentence for the reader. Then memory is what is read
let waiting = [];        // changes that could not be stored yet, in their order
let isUnstored = false;  // closing the tab loses something
let unreadable = 0;      // conversations of earlier versions
let ready = start();

function answerTo(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("it did not open in time")), OPEN_MS);
    const request = indexedDB.open("tyto", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function start() {
  try {
    database = await openDatabase();
    database.onversionchange = () => database.close();
    database.onclose = () => { ready = start(); };
  } catch (error) {
    database = null;
    setProblem(`This browser lets the page store nothing (${error?.message ?? error}). Conversations last until this tab is closed: export what you need.`);
  }
  await takeOver();
}

// Runs the changes in one transaction, and returns what the last of them returns.
async function transact(mode, ...changes) {
  const transaction = database.transaction(TABLES, mode);
  const ended = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error ?? new Error("the browser gave it up"));
  });
  ended.catch(() => {});  // where a change has failed already, that is the error
  const tables = new Stored(transaction);
  let result;
  try {
    for (const change of changes) result = await change(tables);
    transaction.commit();
  } catch (error) {
    try { transaction.abort(); } catch { /* It was, by the error. */ }
    throw transaction.error ?? error;
  }
  await ended;
  return result;
}

async function read(work) {
  await ready;
  if (!problem) {
    try {
      return await transact("readonly", work);
    } catch (error) {
      setProblem(`This browser could not read its conversations (${error?.message ?? error}). Reload the page; what is new lasts until this tab is closed.`);
    }
  }
  return work(memory);
}

// `change` takes tables and returns false where there is nothing to change. It runs on the stored ones and on those in memory.
// `news` is told to this tab and the others. A change that `isPassing` is followed by another one soon.
async function write(change, news, isPassing = false) {
  await ready;
  const stored = database && !(problem && isPassing) ? await store(change) : undefined;
  const seen = await change(memory);
  if (stored === undefined) isUnstored = true;
  const result = stored ?? seen;
  if (result !== false) tell(news);
  return result;
}

// Together with what could not be stored before. Undefined: it still cannot.
async function store(change) {
  const tried = [...waiting];
  try {
    const result = await transact("readwrite", ...tried, change);
    waiting = waiting.filter((other) => !tried.includes(other));
    isUnstored = waiting.length > 0;
    if (problem && !isUnstored) setProblem("");
    return result ?? true;
  } catch (error) {
    if (!problem) await readAll();
    waiting.push(change);
    setProblem(error?.name === "QuotaExceededError"
      ? "This browser has no room for more conversations. New messages last until this tab is closed: export them, or delete conversations."
      : `This browser could not store the last change (${error?.message ?? error}). It lasts until this tab is closed: export what you need.`);
    return undefined;
  }
}

function setProblem(words) {
  problem = words;
  for (const listener of listeners) listener({ problem });
}

// From now on memory is what is read, so it needs all that can still be read.
async function readAll() {
  try {
    for (const table of TABLES) {
      const rows = await transact("readonly", (tables) => tables.all(table));
      memory.rows[table] = new Map(rows.map((row) => [row.id, row]));
    }
    for (const change of waiting) await change(memory);
  } catch {
    // It has what this tab has seen.
  }
}

function tell(news) {
  if (!news) return;
  if (!problem) channel.postMessage(news);
  for (const listener of listeners) listener({ ...news, isOwn: true });
}

// `listener` is told what happened to which conversation, here or in another tab:
//   {id, isOwn?, isRemoved?, title?, live? or done?: a message that is being received or is complete, isBeat?}, {stop: a message}, {problem}
export function listen(listener) {
  if (listeners.push(listener) === 1) channel.onmessage = ({ data }) => listeners.forEach((each) => each(data));
}

// To the other tabs alone: that a message is still being received here, or should not be any more there.
export function signal(news) {
  channel.postMessage(news);
}

export async function whatIsWrong() {
  await ready;
  const left = "Some conversations of an earlier version cannot be read. They are left where they are, in the browser's local storage.";
  return [problem, unreadable ? left : ""].filter(Boolean).join(" ");
}

export function losesOnClose() {
  return isUnstored;
}

export function newConversation() {
  return { id: globalThis.crypto.randomUUID?.() ?? String(Math.random()).slice(2), title: "", opening: "", changed: 0, system: "", model: "", leaf: null };
}

export function titleOf({ title, opening }) {
  return title || opening || "New chat";
}

// The most recently changed first.
export async function allConversations() {
  return (await read((tables) => tables.all("conversations"))).sort((a, b) => b.changed - a.changed);
}

// {conversation, messages}, or null.
export async function load(id) {
  const found = await read(async (tables) => {
    const [conversation, messages] = await Promise.all([tables.get("conversations", id), tables.messagesOf(id)]);
    return conversation ? { conversation, messages } : null;
  });
  if (found) {
    memory.put("conversations", found.conversation);
    for (const message of found.messages) memory.put("messages", message);
  }
  return found;
}

// Everything, with all branches.
export async function exported() {
  const messages = await read((tables) => tables.all("messages"));
  return (await allConversations()).map((conversation) => ({
    ...conversation, messages: messages.filter((message) => message.conversation === conversation.id).map(({ conversation: _, ...message }) => message),
  }));
}

// Adds messages, and the conversation with its first ones. False: it was deleted meanwhile. `replaced` is the id of an
// empty answer whose place the new one takes; where other messages follow it, it stays.
export function add(conversation, messages, isNew, replaced = null) {
  const first = messages.find(({ role, parent }) => role === "user" && parent === null);
  const row = { ...conversation };
  return write(async (tables) => {
    const stored = await tables.get("conversations", row.id) ?? (isNew ? row : null);
    if (!stored) return false;
    tables.put("conversations", { ...stored, model: row.model, leaf: row.leaf, changed: Date.now(), ...(first && { opening: openingOf(first.content) }) });
    for (const message of messages) tables.put("messages", { ...message, conversation: row.id });
    if (!replaced) return true;
    const all = await tables.messagesOf(row.id);
    if (!all.some(({ parent }) => parent === replaced)) tables.delete("messages", replaced);
    return true;
  }, { id: row.id, live: messages.at(-1).id });
}

// What has arrived of a message; `isDone` when all has.
export function update(id, message, isDone) {
  return write(async (tables) => {
    const stored = await tables.get("conversations", id);
    if (!stored) return false;
    if (isDone) tables.put("conversations", { ...stored, changed: Date.now() });
    tables.put("messages", { ...message, conversation: id });
    return true;
  }, { id, [isDone ? "done" : "live"]: message.id }, !isDone);
}

// The same when the page is left: nothing can be looked up any more, only put.
export function updateAtOnce(id, message) {
  if (!problem) write((tables) => tables.put("messages", { ...message, conversation: id }), null, true);
}

// Other fields of a conversation: title, system, model, leaf.
export function change(id, fields) {
  return write(async (tables) => {
    const stored = await tables.get("conversations", id);
    if (!stored) return false;
    tables.put("conversations", { ...stored, ...fields });
    return true;
  }, { id, title: fields.title });
}

export async function remove(id) {
  const removal = async (tables) => {
    for (const message of await tables.messagesOf(id)) tables.delete("messages", message.id);
    tables.delete("conversations", id);
    return true;
  };
  if (problem && database) await transact("readwrite", removal).catch(() => {});  // it makes room for what waits
  return write(removal, { id, isRemoved: true });
}

// Conversations that earlier versions kept in the local storage. Each leaves it once it is stored here, and not before; a tab of an
// earlier version may write it again, which adds to what was taken over.
async function takeOver() {
  for (const key of earlierKeys()) {
    const text = localStorage.getItem(key);
    if (text === null) continue;  // another tab was quicker
    const old = earlier(text);
    if (!old) {
      ++unreadable;
      continue;
    }
    const chain = chainOf(old.messages);
    const adopt = (tables) => adoptInto(tables, old, chain);
    const isStored = database && await store(adopt);
    await adopt(memory);
    if (isStored && localStorage.getItem(key) === text) localStorage.removeItem(key);
  }
}

function earlierKeys() {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(EARLIER));
  } catch {
    return [];  // refused, so there is nothing
  }
}

function earlier(text) {
  try {
    const { id, title = "", changed = 0, system = "", messages } = JSON.parse(text);
    const areRight = [id, title, system].every((part) => typeof part === "string")
      && messages.every(({ role, content }) => ["user", "assistant"].includes(role) && typeof content === "string");
    return areRight ? { id, title, changed: Number(changed) || 0, system, messages: messages.map(withoutCommand) } : null;
  } catch {
    return null;
  }
}

// Receipts of 0.1 and 0.2 have the server's command line with the API keys on it.
function withoutCommand(message) {
  if (!message.measured?.receipt) return message;
  const { command: _, ...receipt } = message.measured.receipt;
  return { ...message, measured: { ...message.measured, receipt } };
}

async function adoptInto(tables, { messages: _, ...row }, chain) {
  const known = await tables.messagesOf(row.id);
  const added = grown(known, chain);
  const stored = await tables.get("conversations", row.id) ?? { ...newConversation(), ...row };
  const all = [...known, ...added];
  const first = all.find(({ role, parent }) => role === "user" && parent === null)?.content ?? "";
  const model = all.findLast((message) => message.model)?.model ?? "";
  tables.put("conversations", { ...stored, opening: stored.opening || openingOf(first), model: stored.model || model, leaf: added.at(-1)?.id ?? stored.leaf ?? leafUnder(all) });
  for (const message of added) tables.put("messages", { ...message, conversation: row.id });
  return true;
}
