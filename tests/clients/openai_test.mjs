// OpenAI's own client against a server of ours.
//
//   node openai_test.mjs BASE_URL NODE_MODULES

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const [url, modules] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(join(modules, "openai", "index.mjs")));
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const model = "owlet";
const messages = [{ role: "user", content: "Tell me a story." }];
const greedy = { model, messages, temperature: 0, max_tokens: 12 };

const SCHEMA = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 12 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

test("models", async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map(({ id }) => id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("chat", async () => {
  const answer = await client.chat.completions.create(greedy);
  assert.equal(answer.object, "chat.completion");
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.ok(["stop", "length"].includes(answer.choices[0].finish_reason));
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.equal(typeof answer.usage.prompt_tokens_details.cached_tokens, "number");
});

test("a stream says the same, and then its usage", async () => {
  const whole = await client.chat.completions.create(greedy);
  const stream = await client.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } });
  let text = "", finish = null, usage = null;
  for await (const piece of stream) {
    text += piece.choices[0]?.delta?.content ?? "";
    finish = piece.choices[0]?.finish_reason ?? finish;
    usage = piece.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the client's own collector of streams", async () => {
  const runner = client.chat.completions.stream(greedy);
  const answer = await runner.finalChatCompletion();
  assert.ok(answer.choices[0].message.content.length > 0);
});

test("choices and seeds", async () => {
  const ask = () => client.chat.completions.create({ model, messages, temperature: 1, seed: 7, n: 3, max_tokens: 8 });
  const [first, second] = [await ask(), await ask()];
  const texts = (answer) => answer.choices.map((choice) => choice.message.content);
  assert.equal(first.choices.length, 3);
  assert.deepEqual(texts(first), texts(second));
  assert.ok(new Set(texts(first)).size > 1);
});

test("stop strings", async () => {
  const { choices: [{ message: { content } }] } = await client.chat.completions.create({ ...greedy, max_tokens: 24 });
  const stop = content.trim().split(" ")[2];
  const cut = await client.chat.completions.create({ ...greedy, max_tokens: 24, stop });
  assert.equal(cut.choices[0].message.content, content.slice(0, content.indexOf(stop)));
  assert.equal(cut.choices[0].finish_reason, "stop");
});

test("log probabilities", async () => {
  const answer = await client.chat.completions.create({ ...greedy, logprobs: true, top_logprobs: 3 });
  const { content } = answer.choices[0].logprobs;
  assert.equal(Buffer.from(content.flatMap(({ bytes }) => bytes)).toString(), answer.choices[0].message.content);
  for (const entry of content) {
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.top_logprobs[0].token, entry.token);  // greedy takes the most probable
    assert.ok(entry.logprob <= 0);
  }
});

test("a banned token does not come", async () => {
  const { choices: [{ logprobs }] } = await client.chat.completions.create({ ...greedy, max_tokens: 1, logprobs: true });
  const { token } = logprobs.content[0];
  const { tokens } = await (await fetch(`${url}/tokenize`, { method: "POST", body: JSON.stringify({ content: token }) })).json();
  const other = await client.chat.completions.create({ ...greedy, max_tokens: 1, logprobs: true, logit_bias: { [tokens[0]]: -100 } });
  assert.notEqual(other.choices[0].logprobs.content[0].token, token);
});

test("tools: errors in a schema name their place", async () => {
  const parameters = { type: "object", properties: { v: { type: "string", maxLength: 70_000 } } };
  const tools = [{ type: "function", function: { name: "f", parameters } }];
  await assert.rejects(client.chat.completions.create({ ...greedy, tools, tool_choice: "required" }),
    (error) => error.param === "tools[0].function.parameters.properties.v.maxLength" && !/grammar|line/.test(error.message));
});

test("json_schema", async () => {
  const answer = await client.chat.completions.create({
    model, messages, max_tokens: 200, seed: 1,
    response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema: SCHEMA } },
  });
  assert.equal(answer.choices[0].finish_reason, "stop");
  const person = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual(Object.keys(person).sort(), ["age", "name"]);
  assert.ok(Number.isInteger(person.age) && typeof person.name === "string");
});

test("tools: a call that must be made, whole and streamed", async () => {
  const body = { model, messages, tools: [TOOL], tool_choice: "required", max_tokens: 200, seed: 3 };
  const answer = await client.chat.completions.create(body);
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(call.type, "function");
  assert.equal(call.function.name, "get_weather");
  assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
  const streamed = await client.chat.completions.stream(body).finalChatCompletion();
  assert.deepEqual(JSON.parse(streamed.choices[0].message.tool_calls[0].function.arguments), JSON.parse(call.function.arguments));
  const next = await client.chat.completions.create({
    ...greedy, tools: [TOOL], tool_choice: "none",
    messages: [...messages, answer.choices[0].message, { role: "tool", tool_call_id: call.id, content: "Sunny." }],
  });
  assert.notEqual(next.choices[0].finish_reason, "tool_calls");
});

test("abort", async () => {
  const stream = await client.chat.completions.create({ ...greedy, max_tokens: 1500, ignore_eos: true, stream: true });
  for await (const piece of stream) {
    assert.ok(piece.id);
    stream.controller.abort();
  }
  for (let tries = 0; tries < 200; ++tries) {
    if ((await (await fetch(`${url}/slots`)).json()).length === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail("the request goes on without a client");
});

test("completions", async () => {
  const answer = await client.completions.create({ model, prompt: ["Once", "There"], max_tokens: 4, temperature: 0, echo: true });
  assert.equal(answer.object, "text_completion");
  assert.ok(answer.choices[0].text.startsWith("Once") && answer.choices[1].text.startsWith("There"));
});

test("embeddings, as floats and as the client's default", async () => {
  const input = ["a dog", "a cat"];
  const floats = await client.embeddings.create({ model, input, encoding_format: "float" });
  const packed = await client.embeddings.create({ model, input });
  const [dog] = floats.data;
  assert.ok(Math.abs(dog.embedding.reduce((sum, value) => sum + value * value, 0) - 1) < 1e-3);
  assert.deepEqual(Array.from(packed.data[0].embedding), dog.embedding.map(Math.fround));
  assert.ok(floats.usage.prompt_tokens > 0);
});

test("errors are what the client knows", async () => {
  await assert.rejects(client.chat.completions.create({ ...greedy, temperature: "hot" }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature" && error.type === "invalid_request_error");
  await assert.rejects(client.chat.completions.create({ ...greedy, model: "gpt-9" }),
    (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  await assert.rejects(client.chat.completions.create({ ...greedy, messages: [{ role: "user", content: "word ".repeat(20_000) }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded" && /\d+ tokens.*\d+ tokens/.test(error.message));
  await assert.rejects(client.chat.completions.create({ ...greedy, max_tokens: 1500, ignore_eos: true, timeout_ms: 1 }),
    (error) => error.status === 504 && error.code === "timeout");
});
