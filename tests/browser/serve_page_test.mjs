// The server's page in a real browser, headless: chat, profile, requests, two widths, dark mode, the keyboard alone.
//
//   node serve_page_test.mjs URL_OR_TYTO OUTPUT_FOLDER NODE_MODULES
//
// Of a URL, the server there is tested; of a program, a mock server with what the program prints, which can also fail and
// be hostile on demand. Screenshots stay in the output folder. Exit 77, with the reason, where there is no browser.

import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

import { HOSTILE, startMock } from "./mock_server.mjs";

const [target, output, modules] = process.argv.slice(2);
const BROWSER = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
if (!BROWSER) {
  console.log("SKIPPED: no chromium; `make test` installs it");
  process.exit(77);
}
const { chromium } = await import(pathToFileURL(join(resolve(modules), "playwright-core/index.mjs")));
const isReal = /^https?:/.test(target);
const ANSWER_MS = 120_000;

let server, browser;

before(async () => {
  mkdirSync(output, { recursive: true });
  server = isReal ? { url: target, close() {} } : await startMock(target);
  browser = await chromium.launch({
    executablePath: BROWSER,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
});

after(async () => {
  await browser?.close();
  server?.close();
});

// A page of its own, on which nothing may be reported, by the policy least of all. `expected` are errors of the network
// that the test brings about.
async function onPage(options, work, expected = /^$/) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const reported = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !expected.test(message.text())) reported.push(message.text()); });
  page.on("pageerror", (error) => reported.push(error.message));
  page.setDefaultTimeout(30_000);
  await page.goto(server.url);
  await page.waitForSelector(".models option", { state: "attached" });
  try {
    await work(page);
    assert.deepEqual(reported, []);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  } finally {
    await context.close();
  }
}

async function ask(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

async function answered(page) {
  await page.locator(".send:not(.stop)").waitFor({ timeout: ANSWER_MS });
}

async function choose(page, model) {
  if (!isReal) await page.getByLabel("Model", { exact: true }).selectOption(model);
}

const picture = (page, name) => page.screenshot({ path: join(output, `${name}.png`) });
const answers = (page) => page.locator(".turn.assistant");

async function assertFits(page) {
  const wide = await page.evaluate(() => [...document.querySelectorAll("body *")]
    .filter((element) => !element.closest(".scroll, pre, svg, .skip, .hidden-words, .drawer"))
    .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map((element) => `${element.tagName}.${element.className}`));
  assert.deepEqual(wide, []);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
}

test("an answer streams in, and its profile stands beside it", () => onPage({}, async (page) => {
  await ask(page, "Tell me a story.");
  await answered(page);
  const profile = page.locator(".profile");
  await profile.locator(".badge").first().waitFor();
  await profile.locator(".lane").first().waitFor();
  const words = await profile.innerText();
  for (const part of ["TTFT", "Tokens/s", "Dispatches", "Prompt"]) assert.ok(words.includes(part), `${part} in ${words}`);
  const beside = await profile.boundingBox(), text = await page.locator(".answer").boundingBox();
  assert.ok(beside.x >= text.x + text.width);
  await assertFits(page);
  await picture(page, "chat-1280");
}));

test("what is modelled is never called measured", { skip: isReal }, () => onPage({}, async (page) => {
  await choose(page, "virtual");
  await ask(page, "Tell me a story.");
  await answered(page);
  await page.locator(".lane").first().waitFor();
  assert.deepEqual(await page.locator(".profile .badge").allInnerTexts(), ["virtual device: modelled"]);
  const whose = await page.locator(".figures .whose").allInnerTexts();
  assert.ok(!whose.includes("measured"), whose.join());
  assert.ok(whose.includes("modelled") && whose.includes("simulation's wall time"), whose.join());
  assert.match(await page.locator(".plot .caption").innerText(), /simulation's wall time/);
  assert.match(await page.locator(".lane text").first().textContent(), /vnpu · modelled/);
  await picture(page, "virtual-1280");
}));

test("a refused speed is not shown, and a fall is", { skip: isReal }, () => onPage({}, async (page) => {
  await choose(page, "refused");
  await ask(page, "Tell me a story.");
  await answered(page);
  const words = await page.locator(".profile").innerText();
  assert.match(words, /refused/);
  assert.match(words, /307 GB\/s/);
  assert.ok(!words.includes("Tokens/s") && !words.includes("TTFT"), words);
  assert.equal(await page.locator(".profile svg").count(), 0);
  await choose(page, "fallen");
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.getByText("fell back").waitFor();
}));

test("markdown becomes elements", { skip: isReal }, () => onPage({}, async (page) => {
  await ask(page, "Tell me a story.");
  await answered(page);
  const answer = page.locator(".answer");
  for (const [selector, count] of [["h4", 1], ["strong", 1], ["ol > li", 2], ["li li", 2], ["figure.code", 1], ["td", 4], ["blockquote", 1], ["a", 1]])
    assert.equal(await answer.locator(selector).count(), count, selector);
  assert.equal(await answer.locator("a").getAttribute("rel"), "noopener noreferrer nofollow");
  assert.equal(await answer.locator(".language").innerText(), "python");
  await answer.getByRole("button", { name: "Copy" }).click();
  await answer.getByText("Copied").waitFor();
  await ask(page, "Think first.");
  await page.locator(".thinking summary").last().click();
  await page.locator(".thinking em").waitFor();
  assert.equal((await answers(page).last().locator(".answer > .markdown").innerText()).trim(), "It is a fox.");
}));

test("hostile text stays text", () => onPage({}, async (page) => {
  if (isReal) {
    await page.evaluate((content) => localStorage.setItem("tyto.conversation.x", JSON.stringify({ id: "x", title: content, changed: 1, system: content,
      messages: [{ role: "user", content }, { role: "assistant", content, model: content, measured: { points: [], timings: null, ttftMs: null, receipt: null } }] })), HOSTILE);
    await page.reload();
    await page.locator(".conversations .title").first().click();
  } else {
    await ask(page, "Hostile");
  }
  await answered(page);
  const made = await page.evaluate(() => document.querySelectorAll(".turn img, .turn iframe, .turn style, .turn script, .drawer img, .drawer script, .turn [onerror], .turn [onload], .markdown svg").length);
  assert.equal(made, 0);
  const links = await page.evaluate(() => [...document.querySelectorAll(".turn a")].map((link) => link.protocol));
  assert.ok(links.every((protocol) => /^https?:$/.test(protocol)), links.join());
  assert.ok((await page.locator(".answer").innerText()).includes("<script>window.hacked = 1</script>"));
  await assertFits(page);
  await picture(page, "hostile");
}));

test("stop, regenerate, edit", () => onPage({}, async (page) => {
  await ask(page, "Slow and long, please.");
  await page.locator(".answer .markdown p").first().waitFor({ timeout: ANSWER_MS });
  await page.keyboard.press("Escape");
  await answered(page);
  if (!isReal) {
    await page.getByText("You stopped it.").waitFor();
    await assert.doesNotReject(page.waitForFunction(() => document.querySelector(".answer").innerText.length > 0));
    assert.ok(server.mock.aborted >= 1);
  }
  await page.locator(".turn.user").hover();
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit the message").fill("Tell me another.");
  await page.getByRole("button", { name: "Send again" }).click();
  await page.waitForFunction(() => document.querySelector(".said").innerText === "Tell me another.");
  await answered(page);
  assert.equal(await page.locator(".turn").count(), 2);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await answered(page);
  assert.equal(await page.locator(".turn").count(), 2);
}));

test("errors are sentences, and can be tried again", { skip: isReal }, () => onPage({}, async (page) => {
  server.mock.failures = 1;
  await ask(page, "Tell me a story.");
  await page.getByText("64 requests are waiting already. Try again in 2 s.").waitFor();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("button", { name: "Regenerate" }).waitFor();
  assert.equal(await page.locator(".failure").count(), 0);
  await ask(page, "Break off.");
  await page.getByText("The connection broke off before the answer was complete.").waitFor();
}, /429|ERR_INCOMPLETE_CHUNKED_ENCODING/));

test("sampling, system prompt and history are sent", { skip: isReal }, () => onPage({}, async (page) => {
  await page.getByText("Settings").click();
  assert.equal(await page.getByLabel("Top-k").getAttribute("placeholder"), "40");
  assert.equal(await page.getByLabel("Temperature").getAttribute("placeholder"), "0.7");
  await page.getByLabel("System prompt of this").fill("Be brief.");
  await page.getByLabel("Temperature").fill("0.25");
  await page.getByLabel("Top-p").fill("7");
  await picture(page, "settings");
  await ask(page, "Think first.");
  await answered(page);
  await ask(page, "Again.");
  await answered(page);
  const body = server.mock.bodies.at(-1);
  assert.deepEqual(body.messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  assert.equal(body.messages[2].content, "It is a fox.");
  assert.equal(body.temperature, 0.25);
  assert.ok(!("top_p" in body) && !("seed" in body) && body.stream && body.receipt && body.profile);
}));

test("conversations are kept, renamed, exported and deleted", () => onPage({}, async (page) => {
  await ask(page, "The first one.");
  await answered(page);
  await page.keyboard.press("Control+k");
  assert.equal(await page.locator(".turn").count(), 0);
  await ask(page, "The second one.");
  await answered(page);
  await page.reload();
  assert.deepEqual(await page.locator(".conversations .title").allInnerTexts(), ["The second one.", "The first one."]);
  await page.getByRole("button", { name: "The first one.", exact: true }).click();
  assert.equal(await page.locator(".said").innerText(), "The first one.");
  await page.locator(".profile .badge").waitFor();
  await page.getByRole("button", { name: "Show device lanes" }).click();
  await page.locator(".lane").first().waitFor();
  await page.getByRole("button", { name: "Rename The first one." }).click();
  await page.getByLabel("New name").fill("Foxes");
  await page.keyboard.press("Enter");
  const exported = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export all" }).click();
  assert.equal((await exported).suggestedFilename(), "tyto-conversations.json");
  page.on("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Delete Foxes" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".conversations li").length === 1);
}));

test("a conversation that is deleted while it is answered stays deleted", { skip: isReal }, () => onPage({}, async (page) => {
  page.on("dialog", (dialog) => dialog.accept());
  await ask(page, "Slow and long, please.");
  await page.locator(".answer .markdown p").first().waitFor();
  await page.getByRole("button", { name: "Delete Slow" }).click();
  await answered(page);
  await page.reload();
  assert.equal(await page.locator(".conversations li").count(), 0);
}));

test("models, doctor and planner", () => onPage({}, async (page) => {
  await page.getByRole("link", { name: "Models" }).click();
  await page.locator(".check").first().waitFor({ timeout: ANSWER_MS });
  await page.getByText("TTFT, modelled").waitFor({ timeout: ANSWER_MS });
  assert.equal(await page.locator(".failure").count(), 0);
  assert.ok(await page.locator(".check.ok").count() > 3);
  if (!isReal) assert.match(await page.locator("main").innerText(), /virtual\s+loaded\s+vnpu \(virtual\), cpu/);
  await assertFits(page);
  await page.screenshot({ path: join(output, "machine-1280.png") });
}));

test("the last requests, with their dataflow", () => onPage({}, async (page) => {
  await choose(page, "virtual");
  await ask(page, "Tell me a story.");
  await answered(page);
  await page.getByRole("link", { name: "Requests" }).click();
  await page.locator(".requests a").first().waitFor();
  await picture(page, "requests-1280");
  await page.locator(".requests a").first().click();
  await page.locator("img.dataflow").waitFor();
  assert.ok(await page.locator("img.dataflow").evaluate((image) => image.decode().then(() => image.naturalWidth > 0)));
  assert.equal(await page.locator(".failure").count(), 0);
  await assertFits(page);
  await picture(page, "request-1280");
}));

test("a phone, with the drawer", () => onPage({ viewport: { width: 360, height: 740 }, hasTouch: true }, async (page) => {
  await ask(page, "Tell me a story.");
  await answered(page);
  await page.locator(".profile .badge").waitFor();
  await page.locator(".lane").first().waitFor();
  await assertFits(page);
  const below = await page.locator(".profile").boundingBox(), text = await page.locator(".answer").boundingBox();
  assert.ok(below.y >= text.y + text.height);
  await picture(page, "chat-360");
  await page.getByRole("button", { name: "Conversations" }).click();
  await page.getByRole("button", { name: "New chat" }).waitFor();
  await picture(page, "drawer-360");
  await page.keyboard.press("Escape");
  await page.locator("#curtain").waitFor({ state: "hidden" });
  for (const view of ["machine", "requests"]) {
    await page.goto(`${server.url}#${view}`);
    await page.locator(".section-body:not([aria-busy])").first().waitFor({ timeout: ANSWER_MS });
    await page.waitForFunction(() => !document.querySelector(".section-body[aria-busy]"), null, { timeout: ANSWER_MS });
    await assertFits(page);
    await picture(page, `${view}-360`);
  }
}));

test("light and dark", () => onPage({ colorScheme: "dark" }, async (page) => {
  const brightness = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3);
  assert.ok(await brightness() < 60);
  await choose(page, "virtual");
  await ask(page, "Tell me a story.");
  await answered(page);
  await page.locator(".lane").first().waitFor();
  await picture(page, "chat-dark");
  await page.getByRole("button", { name: "Theme: auto" }).click();
  assert.ok(await brightness() > 200);
  await page.reload();
  assert.ok(await brightness() > 200);
  await page.getByRole("button", { name: "Theme: light" }).click();
  assert.ok(await brightness() < 60);
}));

test("the keyboard alone", () => onPage({}, async (page) => {
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Message");
  await page.keyboard.type("Two");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("lines.");
  await page.keyboard.press("Enter");
  await answered(page);
  assert.equal(await page.locator(".said").innerText(), "Two\nlines.");
  const reached = new Set();
  for (let step = 0; step < 80; ++step) {
    await page.keyboard.press("Tab");
    const { name, isSeen } = await page.evaluate(() => {
      const element = document.activeElement, style = getComputedStyle(element);
      return { name: element.getAttribute("aria-label") ?? element.innerText, isSeen: element === document.body || style.outlineStyle !== "none" || element.matches(".prompt") };
    });
    assert.ok(isSeen, `the focus on ${name} cannot be seen`);
    reached.add(name.trim());
  }
  for (const name of ["Skip to the content", "Chat", "Requests", "Theme: auto", "New chat", "Edit", "Regenerate", "Message", "Model", "Settings", "Send"])
    assert.ok(reached.has(name), `${name} is not reached: ${[...reached].join(", ")}`);
}));

test("a key is asked for, and kept for the tab alone", { skip: isReal }, () => onPage({}, async (page) => {
  server.mock.key = "secret";
  try {
    await page.reload();
    await page.getByLabel("API key").fill("secret");
    await picture(page, "key");
    await page.keyboard.press("Enter");
    await ask(page, "Tell me a story.");
    await answered(page);
    assert.equal(await page.locator(".failure").count(), 0);
    assert.ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage }))).includes("secret"));
  } finally {
    server.mock.key = null;
  }
}, /401/));
