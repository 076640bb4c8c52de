// Ollama's own client against a server of ours.
//
//   node ollama_test.mjs BASE_URL NODE_MODULES

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const [url, modules] = process.argv.slice(2);
const { Ollama } = await import(pathToFileURL(join(modules, "ollama", "dist", "index.mjs")));
const client = new Ollama({ host: url });
const model = "owlet";
const messages = [{ role: "user", content: "Tell me a story." }];
const options = { temperature: 0, num_predict: 12 };

test("version, tags, show, ps", async () => {
  assert.match((await client.version()).version, /^\d+\./);
  const { models: [tag] } = await client.list();
  assert.equal(tag.name, `${model}:latest`);
  assert.match(tag.digest.slice(0, 12), /^[0-9a-f]{12}$/);  // what Ollama's own program shows of it
  assert.ok(tag.size > 0 && !Number.isNaN(new Date(tag.modified_at).getTime()));
  const shown = await client.show({ model });
  assert.ok(shown.capabilities.includes("completion"));
  assert.ok(shown.model_info["general.parameter_count"] > 0);
  assert.equal((await client.ps()).models[0].name, tag.name);
  assert.equal((await client.chat({ model: tag.name, messages, options })).done, true);
});

test("load and unload", async () => {
  const waitFor = async (count) => {
    for (let i = 0; i < 600 && (await client.ps()).models.length !== count; ++i) await new Promise((go) => setTimeout(go, 50));
    assert.equal((await client.ps()).models.length, count);
  };
  const ask = [(keep_alive) => client.generate({ model, prompt: "", keep_alive }), (keep_alive) => client.chat({ model, messages: [], keep_alive })];
  for (const request of ask) {
    assert.equal((await request(0)).done_reason, "unload");
    await waitFor(0);
    assert.equal((await request("5m")).done_reason, "load");
    await waitFor(1);
  }
  for await (const piece of await client.generate({ model, prompt: "", stream: true })) assert.equal(piece.done_reason, "load");
});

test("chat", async () => {
  const answer = await client.chat({ model, messages, options });
  assert.equal(answer.message.role, "assistant");
  assert.ok(answer.message.content.length > 0);
  assert.equal(answer.done, true);
  assert.ok(["stop", "length"].includes(answer.done_reason));
  assert.ok(answer.eval_count > 0 && answer.total_duration > 0 && answer.prompt_eval_count > 0);
});

test("a stream says the same", async () => {
  const whole = await client.chat({ model, messages, options });
  let text = "", last = null;
  for await (const piece of await client.chat({ model: `${model}:latest`, messages, options, stream: true })) {
    text += piece.message.content;
    last = piece;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done, true);
  assert.equal(last.eval_count, whole.eval_count);
});

test("generate, with the template and without", async () => {
  const answer = await client.generate({ model, prompt: "Tell me a story.", system: "Be brief.", options });
  assert.ok(answer.response.length > 0 && answer.done);
  let text = "";
  for await (const piece of await client.generate({ model, prompt: "Once", raw: true, options, stream: true })) text += piece.response;
  assert.ok(text.length > 0);
});

test("format", async () => {
  const any = await client.generate({ model, prompt: "Say.", raw: true, format: { type: "integer", minimum: 10, maximum: 99 }, options: { num_predict: 50 } });
  assert.match(any.response.trim(), /^\d\d$/);
});

test("log probabilities", async () => {
  const answer = await client.chat({ model, messages, options, logprobs: true, top_logprobs: 2 });
  assert.equal(answer.logprobs.map(({ token }) => token).join(""), answer.message.content);
  assert.equal(answer.logprobs[0].top_logprobs.length, 2);
});

test("tools: offered, called and answered", async () => {
  const tools = [{ type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } }];
  assert.equal((await client.chat({ model, messages, options, tools })).done, true);
  const called = { role: "assistant", content: "", tool_calls: [{ function: { name: "f", arguments: { x: 1 } } }] };
  const answer = await client.chat({ model, options, tools, messages: [...messages, called, { role: "tool", tool_name: "f", content: "2" }] });
  assert.equal(answer.done, true);
});

test("abort", async () => {
  const stream = await client.chat({ model, messages, options: { num_predict: 1500 }, stream: true });
  await assert.rejects(async () => {
    for await (const piece of stream) {
      assert.ok(piece.message);
      client.abort();
    }
  }, { name: "AbortError" });
});

test("embeddings", async () => {
  const { embeddings } = await client.embed({ model, input: ["a dog", "a cat"] });
  assert.equal(embeddings.length, 2);
  const { embedding } = await client.embeddings({ model, prompt: "a dog" });
  assert.deepEqual(embedding, embeddings[0]);
  const long = "word ".repeat(20_000);
  assert.equal((await client.embed({ model, input: long })).embeddings.length, 1);
  await assert.rejects(client.embed({ model, input: long, truncate: false }), /context length/);
  await assert.rejects(client.embed({ model, input: "a", dimensions: 3 }), /dimensions/);
});

test("errors are sentences", async () => {
  await assert.rejects(client.chat({ model: "llama9", messages }), (error) => error.status_code === 404 && /llama9/.test(error.message));
  await assert.rejects(client.chat({ model, messages: [{ role: "user", content: "x", images: ["aGk="] }] }),
    (error) => error.status_code === 400 && /text/.test(error.message));
});
