// Stands in for `tyto serve` before the page: its own files under its own policy, and answers that are written here.
// Receipts, profiles, doctor's checks and the planner's rows are what the program itself prints.
//
// A message's first word chooses the answer (ANSWERS); the model's name chooses whose receipt comes with it.

import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const PAGE = fileURLToPath(new URL("../../src/serve/page/", import.meta.url));
const TYPES = { html: "text/html; charset=utf-8", mjs: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };

export const HOSTILE = `<script>window.hacked = 1</script>
<img src=x onerror="window.hacked = 1"> <svg onload="window.hacked = 1"> <iframe src="javascript:window.hacked=1"></iframe>
[a](javascript:window.hacked=1) [b](data:text/html,<script>window.hacked=1</script>) <a href="javascript:window.hacked=1">c</a>
![x](https://nowhere.invalid/x.png) <style>body{display:none}</style> "><script>window.hacked=1</script>

\`\`\`"><img src=x onerror=window.hacked=1>
</code></pre><script>window.hacked = 1</script>
\`\`\`

| ${"<b>x</b> | ".repeat(40)}
| ${"--- | ".repeat(40)}
${`| ${"<img src=x onerror=window.hacked=1> | ".repeat(40)}\n`.repeat(60)}
${"> ".repeat(2000)}deep ${"**a ".repeat(2000)}
`;

const STORY = `## A lamp

A fox found a *lamp* in the **old** mill, and asked \`who()\` had left it. See <https://example.org>.

1. She rubbed it.
   - Nothing came.
   - Then something did.
2. She ran.

\`\`\`python
def lamp(fox):
    return "light" if fox else None
\`\`\`

| step | ms |
|:-----|---:|
| rub  | 1.5 |
| run  | 20 |

> And that was that.
`;

const MODELS = ["owlet", "virtual", "refused", "fallen"];

const ANSWERS = {
  Hostile: HOSTILE,
  Think: "<think>\nThe fox is a *fox*.\n</think>\n\nIt is a fox.",
  Gate: "one two three four five six",
  Slow: "one two three four ".repeat(500),
};

// What the program prints, once.
async function printed(tyto) {
  const folder = mkdtempSync(join(tmpdir(), "tyto-page-"));
  const run = async (...flags) => (await promisify(execFile)(tyto, flags, { timeout: 300_000, maxBuffer: 64 << 20 })).stdout;
  const profile = async (device) => {
    const file = (name) => join(folder, `${device}.${name}`);
    await run("profile", "--device", device, "-p", "Tell me a story.", "-n", "12", "--json", file("json"), "--html", file("html"), "--receipt", file("receipt"));
    const html = readFileSync(file("html"), "utf8");
    const style = /<style>[^]*?<\/style>/.exec(html)[0];
    const svg = /<svg [^]*?<\/svg>/.exec(html)[0].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ').replace(">", `>${style}`);
    return { json: readFileSync(file("json"), "utf8"), html, svg, receipt: JSON.parse(readFileSync(file("receipt"), "utf8")) };
  };
  const data = {
    owlet: await profile("cpu"), virtual: await profile("vnpu"),
    doctor: JSON.parse(await run("doctor", "--json")), plan: JSON.parse(await run("plan", "--machine", "strix", "--no-measure", "--json")),
  };
  data.refused = { ...data.owlet, receipt: { ...data.owlet.receipt, plausibility: { ...data.owlet.receipt.plausibility, verdict: "refused", reasons: ["cpu decode: it needs 307 GB/s of at most 256"] } } };
  data.fallen = { ...data.virtual, receipt: { ...data.virtual.receipt, recoveries: 1 } };
  rmSync(folder, { recursive: true });
  return data;
}

class Mock {
  constructor(data) {
    this.data = data;
    this.key = null;        // asked for, where it is set
    this.failures = 0;      // requests to refuse next
    this.models = MODELS;
    this.gates = [];        // answers to "Gate", which wait after the first pieces until open() is called
    this.aborted = 0;       // streams whose client went away
    this.bodies = [];       // the bodies of the requests for answers
    this.receipts = new Map();
    this.policy = [...readFileSync(join(PAGE, "page_files.h"), "utf8").split("kPagePolicy =")[1].matchAll(/"([^"]*)"/g)].map((part) => part[1]).join("");
  }

  open() {
    for (const gate of this.gates.splice(0)) gate();
  }

  answer(request, response) {
    const path = decodeURIComponent(new URL(request.url, "http://x").pathname);
    const name = path === "/" ? "index.html" : path.replace(/^\/page\//, "");
    if (readdirSync(PAGE).includes(name)) {
      response.writeHead(200, { "content-type": TYPES[name.split(".").pop()], "content-security-policy": this.policy });
      return response.end(readFileSync(join(PAGE, name)));
    }
    if (this.key && request.headers.authorization !== `Bearer ${this.key}`) return fail(response, 401, "This server needs an API key.");
    if (path === "/v1/chat/completions") return this.chat(request, response);
    const receipt = /^\/v1\/receipts\/([^/]+)(?:\/(.+))?$/.exec(path);
    if (receipt) return this.receipt(response, this.receipts.get(receipt[1]), receipt[2]);
    const values = {
      "/v1/models": { object: "list", data: this.models.map((id) => ({ id, object: "model", meta: { weight_type: "bf16", n_params: 11e6, size: 22555648, n_ctx: 2048 } })) },
      "/props": {
        default_generation_settings: { n_ctx: 2048, params: { temperature: 0.699999988, top_k: 40, top_p: 0.899999976, min_p: 0, repeat_penalty: 1 } },
        build_info: "tyto-0.1.0",
        models: this.models.map((name) => ({ name, loaded: true, failure: null, slots: 8, kv_pages: 64, kv_pages_in_use: 3, devices: (this.data[name] ?? this.data.owlet).receipt.devices.map((device) => ({ name: device.name, virtual: device.virtual })) })),
      },
      "/slots": [{ id: 7, model: "owlet", is_processing: true, prompt_tokens: 20, cached_tokens: 4, generated_tokens: 3, seconds: 0.25 }],
      "/doctor": this.data.doctor, "/plan": this.data.plan,
      "/v1/receipts": { receipts: [...this.receipts].reverse().map(([id, { model, receipt: of }]) => ({ id, time: of.time, model, line: `executed on ${of.devices.map((device) => device.name).join("+")}`, badge: of.virtual ? "virtual" : "real" })) },
    };
    if (!(path in values)) return fail(response, 404, "There is no such address.");
    send(response, "application/json", JSON.stringify(values[path]));
  }

  receipt(response, found, file) {
    if (!found) return fail(response, 404, "That receipt is unknown, or too old.");
    if (!file) return send(response, "application/json", JSON.stringify(found.receipt));
    const files = { "profile.json": ["application/json", found.json], "profile.html": ["text/html", found.html], "dataflow.svg": ["image/svg+xml", found.svg] };
    send(response, ...files[file]);
  }

  async chat(request, response) {
    let text = "";
    for await (const piece of request) text += piece;
    const body = JSON.parse(text);
    this.bodies.push({ ...body });
    body.model ??= this.models[0];  // as the server does: the page may ask before it has the list
    if (this.failures > 0) {
      --this.failures;
      return fail(response, 429, "server: 72 requests run or wait, and 72 may; try again later", { "retry-after": "2" });
    }
    if (!this.models.includes(body.model)) return fail(response, 404, `model: '${body.model}' is not served here; there is ${this.models.join(", ")}`);
    const word = body.messages.at(-1).content.split(" ")[0];
    const id = `chatcmpl-${this.bodies.length}`;
    const from = this.data[body.model] ?? this.data.owlet;
    let isGone = false;
    response.on("close", () => { if (!response.writableEnded) { isGone = true; ++this.aborted; } });
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (data) => response.write(`data: ${JSON.stringify({ id, object: "chat.completion.chunk", model: body.model, ...data })}\n\n`);
    const pieces = (ANSWERS[word] ?? STORY).match(/[^]{1,7}/g);
    for (let index = 0; index < pieces.length && !isGone; ++index) {
      event({ choices: [{ index: 0, delta: { content: pieces[index] }, finish_reason: null }],
        timings: timings(from.receipt, index + 1, index * 8 + Math.sin(index) * 2) });
      if (word === "Gate" && index === 1) await new Promise((resolve) => this.gates.push(resolve));
      if (word === "Break" && index === 3) return response.destroy();
      if (word === "Slow" || index % 64 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    if (isGone) return;
    this.receipts.set(id, { model: body.model, ...from });
    event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], receipt: from.receipt });
    event({ choices: [], usage: { prompt_tokens: 14, completion_tokens: pieces.length }, receipt: from.receipt });
    response.end("data: [DONE]\n\n");
  }
}

// As the server names them: a simulation's time is not called a prediction's.
function timings(receipt, tokens, ms) {
  const counts = { cache_n: 6, prompt_n: 8, predicted_n: tokens };
  if (receipt.virtual) return { ...counts, clock: "simulation wall time", simulation_prompt_ms: 12.5, simulation_predicted_ms: ms };
  return { ...counts, prompt_ms: 12.5, predicted_ms: ms, predicted_per_second: tokens > 1 ? (tokens - 1) * 1000 / ms : null };
}

function send(response, type, body) {
  response.writeHead(200, { "content-type": type });
  response.end(body);
}

function fail(response, status, message, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify({ error: { message, type: "error", code: status } }));
}

// {url, mock, close}
export async function startMock(tyto) {
  const mock = new Mock(await printed(tyto));
  const server = createServer((request, response) => mock.answer(request, response));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, mock, close: () => { server.closeAllConnections(); server.close(); } };
}
