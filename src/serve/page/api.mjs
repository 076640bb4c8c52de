// The server's endpoints. Whatever goes wrong is a ServerError whose message is a sentence for the reader.

import { recall, remember } from "./preferences.mjs";

const BASE = new URL("..", import.meta.url);
const KEY = "tyto.key";
const LONGEST_SILENCE_MS = 600_000;  // a stream's: a long prompt on a slow device says nothing for minutes

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function address(path) {
  return new URL(path.replace(/^\//, ""), BASE).href;
}

// For this tab alone: it is gone when the tab is.
export function setKey(key) {
  remember(KEY, key, "session");
}

export function hasKey() {
  return Boolean(recall(KEY, "session"));
}

async function explain(response, key) {
  let message = "";
  try {
    message = (await response.json()).error.message;
  } catch {
    // A proxy's page, say.
  }
  if (response.status === 401) return key ? "The server did not accept the API key." : message || "The server asks for an API key.";
  return waitWords(message || `The server answered ${response.status} ${response.statusText}.`, response.headers.get("retry-after"));
}

// A refusal and when to come back, which is said once.
export function waitWords(message, seconds) {
  if (!/^\d+$/.test(seconds ?? "")) return message;
  const fact = message.replace(/[\s;,.]*(please )?\btry again later[\s.]*$/i, "").replace(/[\s.]+$/, "");
  return `${fact ? `${fact}. ` : ""}Try again in ${seconds} s.`;
}

async function request(path, options) {
  const key = recall(KEY, "session");
  let response;
  try {
    response = await fetch(address(path), { cache: "no-store", ...options, headers: { ...(key && { authorization: `Bearer ${key}` }), ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name === "TimeoutError") throw new ServerError(0, "The server did not answer in time.");
    throw new ServerError(0, "The server cannot be reached. Is tyto serve still running?");
  }
  if (response.ok) return response;
  const error = new ServerError(response.status, await explain(response, key));
  if (response.status === 401 && recall(KEY, "session") === key) dispatchEvent(new CustomEvent("tyto-key-needed", { detail: { wasWrong: Boolean(key) } }));
  throw error;
}

export async function getJson(path, timeoutMs = 20_000) {
  return (await request(path, { signal: AbortSignal.timeout(timeoutMs) })).json();
}

export async function getText(path, timeoutMs = 20_000) {
  return (await request(path, { signal: AbortSignal.timeout(timeoutMs) })).text();
}

// Events of a streamed answer, parsed, until [DONE].
export async function* stream(path, body, abort) {
  let timer;
  const expectMore = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(new ServerError(0, "The server has been silent for ten minutes.")), LONGEST_SILENCE_MS);
  };
  try {
    expectMore();
    const response = await request(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: abort.signal,
    });
    for await (const data of eventsOf(response.body, expectMore)) {
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ServerError(event.error.code ?? 0, event.error.message ?? "The server broke the answer off.");
      yield event;
    }
    throw new ServerError(0, "The connection broke off before the answer was complete.");
  } catch (error) {
    if (abort.signal.aborted || error instanceof ServerError) throw error;
    throw new ServerError(0, "The connection broke off before the answer was complete.");
  } finally {
    clearTimeout(timer);
  }
}

// The data of each server-sent event.
async function* eventsOf(bytes, onPiece) {
  const reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  let line = "", data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onPiece();
    const lines = (line + value).split("\n");
    line = lines.pop();
    for (const ended of lines.map((text) => text.replace(/\r$/, ""))) {
      if (ended.startsWith("data:")) data.push(ended.slice(5).trimStart());
      if (ended !== "" || data.length === 0) continue;
      yield data.join("\n");
      data = [];
    }
  }
}
