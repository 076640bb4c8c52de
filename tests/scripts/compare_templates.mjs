// Renders the chat templates that models really ship with Tyto and with @huggingface/jinja, an
// independent implementation, and compares the bytes. RENDERER is tests/support/render_templates.cc, a
// process for all renderings of a template; `tyto template` has to say the same of the first.
//
//   node compare_templates.mjs TYTO_BINARY RENDERER TEMPLATES_DIR NODE_MODULES_DIR
//
// TEMPLATES_DIR is models/templates of a llama.cpp checkout. Templates that exist only as string
// literals in its tests/test-chat-template.cpp are read from there. Nothing of either is committed.
// Two errors count as equal: a template that refuses a conversation must refuse it in both.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const BOS = "<s>";
const EOS = "</s>";
const DATE = "2025-03-07";

// Where the other implementation leaves what Jinja2 with transformers' settings renders; Tyto
// follows Jinja2 (an entry is checked against Jinja2 3.1 before it is added). Without a
// conversation, the whole template is left out; with `tools`, its conversations with tools.
const DEVIATIONS = [
  { template: "ByteDance-Seed-OSS", why: "it refuses numbers as keys of a mapping" },
  { template: "meetkai-functionary-medium-v3.1", why: "its selectattr refuses none" },
  { template: "tencent-Hy3", why: "it has no str.format" },
  {
    template: "HuggingFaceTB-SmolLM3-3B",
    conversation: "white space around",
    why: "its lstrip ignores which characters to strip",
  },
  {
    template: "Qwen-QwQ-32B",
    conversation: "white space around",
    why: "its lstrip ignores which characters to strip",
  },
  {
    template: "test: bofenghuang/vigogne-2-70b-chat",
    conversation: "empty texts",
    why: "an empty string equals false in it",
  },
  {
    template: "test: CohereForAI/c4ai-command-r-plus",
    conversation: "empty texts",
    why: "an empty string equals false in it",
  },
  { template: "Apriel-1.6-15b-Thinker-fixed", tools: true, why: "it makes no string of a mapping" },
  { template: "unsloth-Apriel-1.5", tools: true, why: "it makes no string of a mapping" },
  { template: "Kimi-K2-Instruct", tools: true, why: "it cannot append to a list" },
  { template: "Kimi-K2-Thinking", tools: true, why: "it cannot append to a list" },
  { template: "LFM2.5-8B-A1B", tools: true, why: "it prints true, not True" },
  { template: "deepseek-ai-DeepSeek-V4", tools: true, why: "an empty mapping is true in it" },
  { template: "deepseek-ai-DeepSeek-V4-Flash-0731", tools: true, why: "an empty mapping is true in it" },
  { template: "meetkai-functionary-medium-v3.2", tools: true, why: "it does not unpack what items yields" },
  { template: "openbmb-MiniCPM5-1B", tools: true, why: "it has no filter min" },
];

// The families Tyto promises; it is a failure not to find one of them.
const REQUIRED = [
  "meta-llama-Llama-3.1-8B-Instruct",
  "meta-llama-Llama-3.2-3B-Instruct",
  "meta-llama-Llama-3.3-70B-Instruct",
  "Qwen-Qwen2.5-7B-Instruct",
  "Qwen-Qwen3-0.6B",
  "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
  "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
  "microsoft-Phi-3.5-mini-instruct",
  "mistralai-Mistral-Nemo-Instruct-2407",
  "test: Phi-3-mini",
  "test: mistralai/Mistral-7B-Instruct-v0.2 (NOTE: Old pre-v1 without a system prompt)",
  "test: mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)",
];

// Own templates in the shape of models whose template is in neither source.
const OWN = {
  "own: TinyLlama and Zephyr shape": `{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% else %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if add_generation_prompt and loop.last %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
`,
  "own: SmolLM2 shape":
    "{% for message in messages %}{% if messages[0]['role'] != 'system' and loop.first %}" +
    "{{ '<|im_start|>system\nYou are a small model<|im_end|>\n' }}{% endif %}" +
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}" +
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
};

const system = (content) => ({ role: "system", content });
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content });

const CONVERSATIONS = {
  "system and user": [system("You are a helpful owl."), user("Who are you?")],
  "user only": [user("Name three birds.")],
  "several turns": [
    system("Be brief."),
    user("Hi"),
    assistant("Hello."),
    user("And now?"),
    assistant("Still here."),
    user("Good night"),
  ],
  "ends with the assistant": [user("Hi"), assistant("Hello."), user("Bye"), assistant("Bye.")],
  "long": [
    system("Count."),
    ...Array.from({ length: 61 }, (_, i) => {
      const content = `Turn ${i}: ${"the owl counts mice, ".repeat(i % 9)}${i}`;
      return i % 2 === 0 ? user(content) : assistant(content);
    }),
  ],
  "unicode and special characters": [
    system("Größe — 日本語 \"double\" 'single' back\\slash \t tab <b>&amp;</b> {{ x }} {% if %} {# c #}"),
    user("🦉 e\u0301 \u00A0between\u00A0 \u3000wide ‮right <|im_end|> [INST] </s>"),
    assistant("<think>\nhm, 1 < 2\n</think>\n\nÇa va."),
    user("line\n\n  indented\r\nwindows"),
  ],
  "white space around": [
    system("  \n\t padded \n\n"),
    user("\n\n hello\t \n"),
    assistant("   answer \n "),
    user("   "),
  ],
  "empty texts": [system(""), user("")],
  "roles out of order": [assistant("first"), user("second"), user("third")],
};

const TOOLS = [
  {
    type: "function",
    function: {
      name: "find_owls",
      description: "Owls near a place: \"barn\", Größe, <b>&</b>, it's 日本語.",
      parameters: {
        type: "object",
        properties: {
          place: { type: "string", description: "Where to look" },
          most: { type: "integer", description: "How many", default: 3 },
          kind: { type: "string", enum: ["barn", "snowy"], description: "Which" },
        },
        required: ["place"],
      },
    },
  },
  {
    type: "function",
    function: { name: "hoot", description: "Hoots.", parameters: { type: "object", properties: { loud: { type: "boolean", description: "How" } } } },
  },
];

const call = (id, name, args) => ({ id, type: "function", function: { name, arguments: args } });
const calls = (...tool_calls) => ({ role: "assistant", content: "", tool_calls });
const result = (id, name, content) => ({ role: "tool", tool_call_id: id, name, content });

// With tools. The ids have the nine characters that Mistral's templates insist on.
const TOOL_CONVERSATIONS = {
  "tools": [system("You are a helpful owl."), user("Who is near?")],
  "tools without a system text": [user("Who is near?")],
  "a call and its result": [
    user("Who is near Oslo?"),
    calls(call("call00001", "find_owls", { place: "Oslo \"west\" é", most: 2, kind: "barn", near: [1.5, true] })),
    result("call00001", "find_owls", '{"owls": ["barn", "<|im_end|>"]}'),
    assistant("A barn owl."),
    user("Thanks"),
  ],
  "two calls at once": [
    system("Be brief."),
    user("Oslo and Rome?"),
    calls(call("call00001", "find_owls", { place: "Oslo" }), call("call00002", "find_owls", { place: "Rome" })),
    result("call00001", "find_owls", "none"),
    result("call00002", "find_owls", "one"),
  ],
  "a call without arguments": [user("Hoot!"), calls(call("call00001", "hoot", {}))],
};

// The other implementation asks the clock; make it the date that Tyto is given.
function freezeClock() {
  const RealDate = Date;
  globalThis.Date = class extends RealDate {
    constructor(...args) {
      if (args.length === 0) super(`${DATE}T00:00:00`);
      else super(...args);
    }
  };
}

// C++ string literals, neighbours joined, at the start of `text`.
function readLiterals(text) {
  const escapes = { n: "\n", t: "\t", r: "\r", '"': '"', "'": "'", "\\": "\\" };
  let result = "";
  let rest = text.replace(/^\s*(U8C\()?(u8)?/, "");
  for (let match; (match = rest.match(/^\s*(?:u8)?"((?:[^"\\]|\\.)*)"/s)); ) {
    result += match[1].replace(/\\(.)/gs, (_, c) => escapes[c] ?? c);
    rest = rest.slice(match[0].length);
  }
  return result;
}

function templatesInTests(path) {
  const source = readFileSync(path, "utf8");
  const found = {};
  for (const match of source.matchAll(/^\s*\/\* \.name= \*\/ "((?:[^"\\]|\\.)*)"/gm)) {
    const after = source.slice(match.index + match[0].length);
    const start = after.match(/\/\* \.template_str ?=? ?\*\//);
    found[`test: ${match[1]}`] = readLiterals(after.slice(start.index + start[0].length));
  }
  return found;
}

function collectTemplates(folder) {
  const all = { ...OWN };
  for (const file of readdirSync(folder).sort()) {
    if (file.endsWith(".jinja")) all[basename(file, ".jinja")] = readFileSync(join(folder, file), "utf8");
  }
  return { ...all, ...templatesInTests(join(folder, "..", "..", "tests", "test-chat-template.cpp")) };
}

function renderOther(Template, source, { messages, tools }, generation) {
  try {
    const text = new Template(source).render({
      messages,
      tools: tools ?? null,
      documents: null,
      add_generation_prompt: generation,
      bos_token: BOS,
      eos_token: EOS,
    });
    return { bytes: Buffer.from(text, "utf8") };
  } catch (error) {
    return { error: String(error.message) };
  }
}

function renderTyto(binary, templateFile, { file, toolsFile }, generation) {
  const args = ["template", "--file", templateFile, "--messages", file, "--date", DATE];
  if (toolsFile) args.push("--tools", toolsFile);
  args.push("--bos-token", BOS, "--eos-token", EOS);
  if (!generation) args.push("--no-generation-prompt");
  const run = spawnSync(binary, args, { maxBuffer: 1 << 28 });
  if (run.status === 0) return { bytes: run.stdout };
  const error = String(run.stderr).trim();
  if (run.status === 1 && !error.includes("\n")) return { error };
  return { error, crashed: `exit status ${run.status ?? run.signal}: ${error.slice(0, 300)}` };
}

// A result for each pair of a conversation and whether the assistant's turn is opened.
function renderAll(renderer, templateFile, jobsFile, pairs) {
  const jobs = pairs.map(({ conversation: { file, toolsFile }, generation }) => ({
    messages: file,
    tools: toolsFile ?? "",
    generation,
  }));
  writeFileSync(jobsFile, JSON.stringify(jobs));
  const run = spawnSync(renderer, [templateFile, jobsFile, DATE, BOS, EOS], { maxBuffer: 1 << 28 });
  if (run.status !== 0) {
    const crashed = `exit status ${run.status ?? run.signal}: ${String(run.stderr).trim().slice(0, 300)}`;
    return pairs.map(() => ({ error: crashed, crashed }));
  }
  return JSON.parse(run.stdout).map(({ text, error }) => (error ? { error } : { bytes: Buffer.from(text, "utf8") }));
}

// Empty when the two agree, otherwise what differs.
function difference(tyto, other) {
  if (tyto.crashed) return tyto.crashed;
  if (tyto.error && other.error) return "";
  if (tyto.error) return `only tyto refuses: ${tyto.error}`;
  if (other.error) return `only the other refuses: ${other.error}`;
  const at = [...tyto.bytes].findIndex((byte, i) => byte !== other.bytes[i]);
  if (at < 0 && tyto.bytes.length === other.bytes.length) return "";
  const from = Math.max(0, (at < 0 ? tyto.bytes.length : at) - 20);
  const show = (bytes) => JSON.stringify(bytes.subarray(from, from + 60).toString());
  return `byte ${at < 0 ? tyto.bytes.length : at}: ${show(tyto.bytes)}, the other ${show(other.bytes)}`;
}

async function main() {
  const [binary, renderer, folder, modules] = process.argv.slice(2);
  if (!modules) {
    console.error("usage: node compare_templates.mjs TYTO_BINARY RENDERER TEMPLATES_DIR NODE_MODULES_DIR");
    return 2;
  }
  const module = join(modules, "@huggingface", "jinja", "dist", "index.js");
  const { Template } = await import(pathToFileURL(module));
  freezeClock();
  const scratch = mkdtempSync(join(tmpdir(), "tyto-templates-"));
  let passed = 0;
  let failed = 0;
  try {
    const toolsFile = join(scratch, "tools.json");
    writeFileSync(toolsFile, JSON.stringify(TOOLS));
    const conversations = [
      ...Object.entries(CONVERSATIONS).map(([name, messages]) => ({ name, messages })),
      ...Object.entries(TOOL_CONVERSATIONS).map(([name, messages]) => ({ name, messages, tools: TOOLS, toolsFile })),
    ].map((each, i) => ({ ...each, file: join(scratch, `messages-${i}.json`) }));
    for (const { file, messages } of conversations) writeFileSync(file, JSON.stringify(messages));
    const templates = collectTemplates(folder);
    for (const name of REQUIRED.filter((each) => !templates[each])) {
      failed += 1;
      console.log(`FAILED  ${name}: not found`);
    }
    for (const [name, source] of Object.entries(templates)) {
      const templateFile = join(scratch, "template.jinja");
      writeFileSync(templateFile, source);
      const left = DEVIATIONS.filter((each) => each.template === name);
      const leavesOut = (deviation, each) =>
        deviation.tools ? each.tools : (deviation.conversation ?? each.name) === each.name;
      const compared = conversations.filter((each) => !left.some((l) => leavesOut(l, each)));
      for (const { conversation, tools, why } of left) {
        const part = conversation ?? (tools ? "tools" : "");
        console.log(`skipped ${name}${part ? `, ${part}` : ""}: ${why}`);
      }
      if (compared.length === 0) continue;
      const problems = [];
      let refused = 0;
      const pairs = compared.flatMap((conversation) => [true, false].map((generation) => ({ conversation, generation })));
      const rendered = renderAll(renderer, templateFile, join(scratch, "jobs.json"), pairs);
      const command = renderTyto(binary, templateFile, pairs[0].conversation, pairs[0].generation);
      const unlike = difference(command, rendered[0]);
      if (unlike) problems.push(`tyto template: ${unlike}`);
      pairs.forEach(({ conversation, generation }, i) => {
        const other = renderOther(Template, source, conversation, generation);
        if (rendered[i].error && other.error) refused += 1;
        const problem = difference(rendered[i], other);
        if (problem) problems.push(`${conversation.name}: ${problem}`);
      });
      const runs = pairs.length;
      if (problems.length === 0) {
        passed += 1;
        console.log(`ok      ${name}: ${runs} renderings, ${refused} refused by both`);
      } else {
        failed += 1;
        console.log(`FAILED  ${name}: ${problems.length} of ${runs}; ${problems[0]}`);
      }
    }
  } finally {
    rmSync(scratch, { recursive: true });
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0 && passed > 0 ? 0 : 1;
}

process.exitCode = await main();
