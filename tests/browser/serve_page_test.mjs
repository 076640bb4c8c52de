// The server's page in a real browser, headless: chat, profile, requests, two widths, dark mode, the keyboard alone.
//
//   node serve_page_test.mjs URL_OR_TYTO OUTPUT_FOLDER NODE_MODULES
//
// With a URL, the server there is tested; with a program, a mock server with what the program prints, which can also fail
// and be hostile on demand. Screenshots stay in the output folder. Exit 77, with the reason, where there is no browser.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
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
// that the test brings about; `another` opens a further tab of the same browser. `script` runs before the page's own.
async function onPage({ script, ...options }, work, expected = /^$/) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  if (script) await context.addInitScript(script);
  const reported = [];
  const another = async () => {
    const page = await context.newPage();
    page.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !expected.test(message.text())) reported.push(message.text()); });
    page.on("pageerror", (error) => reported.push(error.message));
    page.setDefaultTimeout(30_000);
    await page.goto(server.url);
    await page.waitForSelector(".models option", { state: "attached" });
    return page;
  };
  try {
    const page = await another();
    await work(page, another);
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

// Waits until the questions that are shown are these, and no answer is under way.
async function asked(page, ...texts) {
  await page.waitForFunction((wanted) => JSON.stringify([...document.querySelectorAll(".said")].map((said) => said.textContent)) === wanted
    && document.querySelectorAll(".turn.assistant:not(:has([aria-busy]))").length === JSON.parse(wanted).length, JSON.stringify(texts));
}

const titles = (page, ...wanted) => page.waitForFunction((texts) =>
  JSON.stringify([...document.querySelectorAll(".conversations .title")].map((title) => title.textContent)) === texts, JSON.stringify(wanted));
const row = (page, title) => page.getByRole("button", { name: title, exact: true });
const said = (page) => page.locator(".said").allTextContents();
const lastAnswer = (page) => page.locator(".answer > .markdown").last().innerText();

async function exported(page) {
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export all" }).click();
  return JSON.parse(readFileSync(await (await download).path(), "utf8"));
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
  await page.getByText("server: 72 requests run or wait, and 72 may. Try again in 2 s.", { exact: true }).waitFor();
  await picture(page, "failed-1280");
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("button", { name: "Regenerate" }).waitFor();
  assert.equal(await page.locator(".failure").count(), 0);
  assert.equal(await page.locator(".versions").count(), 0);  // nothing is left of what failed without a word
  await ask(page, "Break off.");
  await page.getByText("The connection broke off before the answer was complete.").waitFor();
}, /429|ERR_INCOMPLETE_CHUNKED_ENCODING/));

test("sampling, system prompt and history are sent", { skip: isReal }, () => onPage({}, async (page) => {
  await page.getByText("Settings").click();
  assert.equal(await page.getByLabel("Top-k").getAttribute("placeholder"), "40");
  assert.equal(await page.getByLabel("Temperature").getAttribute("placeholder"), "0.7");
  await page.getByLabel("System prompt of this").fill("Be brief.");
  await page.getByLabel("Temperature").fill("0.33");
  await page.getByLabel("Top-p").fill("0.925");
  await page.getByLabel("Min-p").fill("0.025");
  await page.getByLabel("Repeat penalty").fill("1.08");
  await picture(page, "settings");
  await ask(page, "Think first.");
  await answered(page);
  await ask(page, "Again.");
  await answered(page);
  const body = server.mock.bodies.at(-1);
  assert.deepEqual(body.messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  assert.equal(body.messages[2].content, "It is a fox.");
  const { temperature, top_p, min_p, repeat_penalty } = body;
  assert.deepEqual({ temperature, top_p, min_p, repeat_penalty }, { temperature: 0.33, top_p: 0.925, min_p: 0.025, repeat_penalty: 1.08 });
  assert.ok(!("seed" in body) && body.stream && body.receipt && body.profile);
}));

test("sampling values that make no sense are named, and nothing is sent with them", { skip: isReal }, () => onPage({}, async (page) => {
  await page.getByText("Settings").click();
  const before = server.mock.bodies.length;
  for (const [label, value, words] of [["Top-p", "7", "Top-p: 7 is not between 0 and 1."], ["Temperature", "-0.5", "Temperature: -0.5 is not between 0 and 1000."],
    ["Top-k", "2.5", "Top-k: 2.5 is not a whole number."], ["Seed", "1e", "Seed: this is not a number."], ["Repeat penalty", "0", "is not between 0.000001 and 1000."]]) {
    const field = page.getByLabel(label, { exact: true });
    await field.fill("");
    await field.pressSequentially(value);
    await ask(page, "Tell me a story.");
    await page.locator(".composer-notice").getByText(`${words} Nothing was sent.`).waitFor();
    assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "Tell me a story.");
    if (label === "Top-p") await picture(page, "sampling-wrong-1280");
    await field.focus();
    for (let count = 0; count < 5; ++count) await page.keyboard.press("Backspace");
  }
  assert.equal(server.mock.bodies.length, before);
  await ask(page, "Tell me a story.");
  await answered(page);
  assert.equal(server.mock.bodies.length, before + 1);
  assert.equal(await page.locator(".composer-notice").innerText(), "");
}));

test("conversations are kept, renamed, exported and deleted", () => onPage({}, async (page) => {
  await ask(page, "The first one.");
  await answered(page);
  await page.keyboard.press("Control+k");
  assert.equal(await page.locator(".turn").count(), 0);
  await ask(page, "The second one.");
  await answered(page);
  await page.reload();
  await titles(page, "The second one.", "The first one.");
  await asked(page, "The second one.");  // the one that was open
  await row(page, "The first one.").click();
  await asked(page, "The first one.");
  assert.equal(await page.locator("h1").count(), 1);
  await page.locator(".profile .badge").waitFor();
  await page.getByRole("button", { name: "Show device lanes" }).click();
  await page.locator(".lane").first().waitFor();
  await page.getByRole("button", { name: "Rename The first one." }).click();
  await page.getByLabel("New name").fill("Foxes");
  await page.keyboard.press("Enter");
  await titles(page, "The second one.", "Foxes");
  assert.equal(await page.locator("h1").textContent(), "Foxes");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export all" }).click();
  assert.equal((await download).suggestedFilename(), "tyto-conversations.json");
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
  await page.getByText("Conversations are kept in this browser").waitFor();
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
  // The planner's table is wider than the page: its shaded side says so until its end is in view.
  const planner = page.locator(".scroll").filter({ hasText: "TTFT, modelled" });
  const right = async () => {
    const { x, y, width } = await planner.boundingBox();
    return (await page.screenshot({ clip: { x: x + width - 6, y: y + 4, width: 6, height: 6 } })).toString("base64");
  };
  await planner.scrollIntoViewIfNeeded();
  assert.ok(await planner.evaluate((box) => box.scrollWidth > box.clientWidth + 100));
  const shaded = await right();
  await planner.screenshot({ path: join(output, "planner-1280.png") });
  await planner.evaluate((box) => { box.scrollLeft = box.scrollWidth; });
  assert.notEqual(await right(), shaded);
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
    await page.getByText("This server asks for a key").waitFor();
    await page.getByLabel("API key").fill("guessed");
    await page.keyboard.press("Enter");
    await page.getByText("The server did not accept that key").waitFor();
    await picture(page, "key");
    await page.getByLabel("API key").fill("secret");
    await page.keyboard.press("Enter");
    await ask(page, "Tell me a story.");
    await answered(page);
    assert.deepEqual(await page.locator(".failure").allInnerTexts(), []);
    assert.ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage }))).includes("secret"));
  } finally {
    server.mock.key = null;
  }
}, /401/));

test("two tabs add to each other's work", () => onPage({}, async (page, another) => {
  await ask(page, "From A 1");
  await answered(page);
  const other = await another();
  await row(other, "From A 1").click();
  await asked(other, "From A 1");
  await ask(page, "From A 2");
  await asked(other, "From A 1", "From A 2");
  await answered(other);
  await ask(other, "From B 1");
  await asked(page, "From A 1", "From A 2", "From B 1");
  await answered(other);
  await page.waitForFunction(() => document.querySelectorAll(".turn.assistant .profile dd").length > 3);
  for (const tab of [page, other]) {
    await tab.reload();
    await asked(tab, "From A 1", "From A 2", "From B 1");
  }
  if (isReal) return;
  await ask(page, "Gate");
  await other.getByText("Another tab is receiving this answer.").waitFor();
  await other.getByRole("button", { name: "Stop" }).click();
  await page.getByText("You stopped it.").waitFor();
  await other.getByText("You stopped it.").waitFor();
  await ask(page, "Gate");
  await other.getByText("Another tab is receiving this answer.").waitFor();
  await page.reload();
  await other.getByText("It stopped: the page was closed or reloaded.").waitFor();
  page.on("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Delete From A 1" }).click();
  await other.getByText("That conversation was deleted in another tab.").waitFor();
  assert.deepEqual(await said(other), []);
}));

test("stories are offered where Owlet is chosen, and a click asks for one", { skip: isReal }, () => onPage({}, async (page) => {
  await choose(page, "virtual");
  await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  assert.equal(await page.locator(".welcome button").count(), 0);
  await choose(page, "owlet");
  await page.getByRole("heading", { name: "Which story would you like to hear?" }).waitFor();
  assert.equal(await page.locator(".welcome button").count(), 3);
  await picture(page, "stories-1280");
  await page.getByRole("button", { name: "a fox who finds a lamp" }).click();
  await answered(page);
  assert.equal((await said(page))[0], "Tell me a story about a fox who finds a lamp.");
}));

test("an answer goes on while another conversation is shown", { skip: isReal }, () => onPage({}, async (page) => {
  await ask(page, "Gate one");
  await page.getByText("one two").waitFor();
  await page.getByRole("button", { name: "New chat" }).click();
  await page.locator(".welcome").waitFor();
  await ask(page, "Think first.");
  await answered(page);
  assert.equal(await lastAnswer(page), "It is a fox.");
  assert.equal(await page.locator(".conversations .busy").count(), 1);
  await picture(page, "background-1280");
  await row(page, "Gate one").click();
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await page.getByText("one two").waitFor();
  await page.keyboard.press("Control+k");
  await page.locator(".welcome").waitFor();
  server.mock.open();
  await page.waitForFunction(() => !document.querySelector(".conversations .busy"));
  for (const again of [false, true]) {
    if (again) await page.reload();
    await row(page, "Gate one").click();
    await asked(page, "Gate one");
    assert.equal(await lastAnswer(page), "one two three four five six");
    assert.equal(await page.locator(".turn .note").count(), 0);
  }
}));

test("a reload keeps what had arrived", { skip: isReal }, () => onPage({}, async (page) => {
  await ask(page, "Gate");
  await page.getByText("one two").waitFor();
  await page.reload();
  await asked(page, "Gate");
  assert.equal(await lastAnswer(page), "one two three");
  await page.getByText("It stopped: the page was closed or reloaded.").waitFor();
  server.mock.open();
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.waitForFunction(() => document.querySelector(".answer").innerText.includes("one two"));
  server.mock.open();
  await answered(page);
  assert.equal(await lastAnswer(page), "one two three four five six");
  assert.equal(await page.locator(".versions").innerText(), "‹\n2/2\n›");
}));

test("edited questions and other answers are branches", () => onPage({}, async (page) => {
  await ask(page, "First");
  await answered(page);
  await ask(page, "Second");
  await answered(page);
  await page.locator(".turn.user").first().hover();
  await page.getByRole("button", { name: "Edit" }).first().click();
  await page.getByLabel("Edit the message").fill("First, edited");
  await page.keyboard.press("Enter");
  await asked(page, "First, edited");
  await answered(page);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await answered(page);
  await asked(page, "First, edited");
  const versions = () => page.locator(".versions").allInnerTexts();
  assert.deepEqual((await versions()).map((text) => text.replaceAll("\n", "")), ["‹2/2›", "‹2/2›"]);
  await picture(page, "branches-1280");
  await page.getByRole("button", { name: "Earlier version" }).first().click();
  await asked(page, "First", "Second");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Later version");  // the keyboard stays there
  await page.reload();
  await asked(page, "First", "Second");
  await page.getByRole("button", { name: "Later version" }).click();
  await asked(page, "First, edited");
  if (!isReal) assert.deepEqual(server.mock.bodies.at(-1).messages, [{ role: "user", content: "First, edited" }]);
  const [{ messages, leaf }] = await exported(page);
  assert.equal(messages.length, 7);
  assert.ok(messages.every(({ parent }) => parent === null || messages.some(({ id }) => id === parent)));
  assert.equal(leaf, messages.at(-1).id);
}));

test("branches on a phone, in the dark", { skip: isReal }, () => onPage({ viewport: { width: 390, height: 740 }, hasTouch: true, colorScheme: "dark" }, async (page) => {
  await ask(page, "Think first.");
  await answered(page);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await answered(page);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit the message").fill("Think again.");
  await page.getByRole("button", { name: "Send again" }).click();
  await answered(page);
  await page.getByRole("button", { name: "Earlier version" }).first().click();
  await asked(page, "Think first.");
  await page.evaluate(() => { document.querySelector(".chat-scroll").scrollTop = 0; });
  await assertFits(page);
  await picture(page, "branches-390-dark");
  server.mock.failures = 1;
  await ask(page, "And then?");
  await page.locator(".failure").waitFor();
  await page.evaluate(() => document.querySelector(".failure").scrollIntoView());
  await assertFits(page);
  await picture(page, "failed-390-dark");
}, /429/));

test("a failed answer is not sent on, and can be tried again", { skip: isReal }, () => onPage({}, async (page) => {
  server.mock.failures = 1;
  await ask(page, "Lost?");
  await page.locator(".failure").waitFor();
  await ask(page, "Think next.");
  await answered(page);
  assert.deepEqual(server.mock.bodies.at(-1).messages, [{ role: "user", content: "Think next." }]);
  await ask(page, "Break off.");
  await page.getByText("The connection broke off before the answer was complete.").waitFor();
  await ask(page, "Go on.");
  await answered(page);
  assert.deepEqual(server.mock.bodies.at(-1).messages.map(({ content }) => content), ["Think next.", "It is a fox.", "Go on."]);
  await page.reload();
  await asked(page, "Lost?", "Think next.", "Break off.", "Go on.");
  await page.getByRole("button", { name: "Try again" }).first().click();
  await asked(page, "Lost?");
  await answered(page);
  assert.deepEqual(server.mock.bodies.at(-1).messages, [{ role: "user", content: "Lost?" }]);
  await page.getByRole("button", { name: "Earlier version" }).click();
  await asked(page, "Lost?", "Think next.", "Break off.", "Go on.");
}, /429|ERR_INCOMPLETE_CHUNKED_ENCODING/));

// As earlier versions wrote them, under tyto.conversation.ID.
const MEASURED = { id: "chatcmpl-1", ttftMs: 12, timings: { prompt_n: 4, predicted_n: 3, predicted_ms: 20 }, points: [], receipt: null };
const EARLIER = [
  { id: "one", title: "", changed: 1700000000000, system: "Be brief.", messages: [
    { role: "user", content: "Who?\nAnd why?" }, { role: "assistant", model: "virtual", content: "A fox.", thinking: "Hm.", measured: MEASURED, finish: "stop" },
    { role: "user", content: "Lost" }, { role: "user", content: "Then?" }, { role: "assistant", model: "virtual", content: "", measured: MEASURED, finish: "", failure: "It was busy." }] },
  { id: "two", title: "Named", changed: 1700000001000, system: "", messages: [{ role: "user", content: "Hello." }] },
];
const keepEarlier = (page, all) => page.evaluate((conversations) => {
  for (const conversation of conversations) localStorage.setItem(`tyto.conversation.${conversation.id}`, JSON.stringify(conversation));
}, all);
const earlierKeys = (page) => page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("tyto.conversation.")).sort());

test("conversations of earlier versions are taken over once", { skip: isReal }, () => onPage({}, async (page) => {
  const { command, ...receipt } = server.mock.data.owlet.receipt;
  assert.equal(typeof command, "string");
  const [one, two] = structuredClone(EARLIER);
  one.messages[1].measured = { ...MEASURED, receipt: { ...receipt, command: "tyto serve --api-key of-an-earlier-version" } };
  await keepEarlier(page, [one, two]);
  await page.evaluate(() => localStorage.setItem("tyto.conversation.broken", '{"id": "broken", "messages": [{"role": "user"'));
  for (let time = 0; time < 2; ++time) {
    await page.reload();
    await titles(page, "Named", "Who?");
    await row(page, "Who?").click();
    await asked(page, "Who?\nAnd why?", "Lost", "Then?");
    assert.deepEqual(await page.locator(".turn .failure").allInnerTexts(), ["No answer to this was kept.", "It was busy."]);
    assert.deepEqual(await earlierKeys(page), ["tyto.conversation.broken"]);
    await page.getByText("Some conversations of an earlier version cannot be read.").waitFor();
  }
  assert.equal(await page.locator(".thinking").first().innerText(), "Reasoning");
  assert.equal(await page.locator("#system").inputValue(), "Be brief.");
  assert.equal(await page.locator(".models").inputValue(), "virtual");
  const all = await exported(page);
  assert.deepEqual(all.map(({ title, changed, messages }) => [title, changed, messages.length]), [["Named", 1700000001000, 2], ["", 1700000000000, 6]]);
  assert.deepEqual(all[1].messages[1].measured, { ...MEASURED, receipt });
  assert.ok(!JSON.stringify(all).includes("of-an-earlier-version"));
  // A tab of the earlier version goes on with its own copy.
  await keepEarlier(page, [{ ...EARLIER[1], messages: [...EARLIER[1].messages, { role: "assistant", content: "Hello to you." }] }]);
  await page.reload();
  await row(page, "Named").click();
  await page.getByText("Hello to you.").waitFor();
  assert.deepEqual(await said(page), ["Hello."]);
}));

for (const [name, script] of [
  ["refused", () => { IDBFactory.prototype.open = () => { throw new DOMException("The user denied permission.", "SecurityError"); }; }],
  ["failing", () => { IDBFactory.prototype.open = () => {
    const request = { error: new DOMException("Internal error.", "UnknownError") };
    setTimeout(() => request.onerror());
    return request;
  }; }],
]) {
  test(`without a database (${name}) the page says so, and works`, { skip: isReal }, () => onPage({ script }, async (page) => {
    page.on("dialog", (dialog) => dialog.accept());
    await keepEarlier(page, EARLIER.slice(1));
    await page.reload();
    await page.getByText("This browser lets the page store nothing").waitFor();
    await titles(page, "Named");
    assert.deepEqual(await earlierKeys(page), ["tyto.conversation.two"]);
    await ask(page, "Gate one");
    await page.getByText("one two").waitFor();
    await row(page, "Named").click();
    await asked(page, "Hello.");
    server.mock.open();
    await page.waitForFunction(() => !document.querySelector(".conversations .busy"));
    await row(page, "Gate one").click();
    await asked(page, "Gate one");
    assert.equal(await lastAnswer(page), "one two three four five six");
    await page.getByText("This browser lets the page store nothing").waitFor();
    await picture(page, `storage-${name}`);
    assert.deepEqual((await exported(page)).map(({ messages }) => messages.length), [2, 2]);
  }));
}

test("without any storage the page works", { skip: isReal }, () => onPage({ script: () => {
  for (const name of ["indexedDB", "localStorage", "sessionStorage"])
    Object.defineProperty(window, name, { get() { throw new DOMException("Access is denied.", "SecurityError"); } });
} }, async (page) => {
  await ask(page, "Think first.");
  await answered(page);
  await page.getByText("This browser lets the page store nothing").waitFor();
  await titles(page, "Think first.");
  await page.keyboard.press("Control+k");
  await row(page, "Think first.").click();
  await asked(page, "Think first.");
}));

test("without room nothing is lost, and it is stored once there is some", { skip: isReal }, () => onPage({ script: () => {
  const put = IDBObjectStore.prototype.put;
  IDBObjectStore.prototype.put = function (row) {
    if (window.isFull) throw new DOMException("No room.", "QuotaExceededError");
    return put.call(this, row);
  };
} }, async (page) => {
  page.on("dialog", (dialog) => dialog.accept());
  for (const text of ["Before", "Other"]) {
    await ask(page, text);
    await answered(page);
    await page.keyboard.press("Control+k");
  }
  await page.evaluate(() => { window.isFull = true; });
  await row(page, "Before").click();
  await asked(page, "Before");
  await ask(page, "Think first.");
  await answered(page);
  await page.getByText("This browser has no room for more conversations.").waitFor();
  await picture(page, "no-room-1280");
  await row(page, "Other").click();
  await asked(page, "Other");
  await row(page, "Before").click();
  await asked(page, "Before", "Think first.");
  assert.deepEqual((await exported(page)).map(({ messages }) => messages.length), [4, 2]);
  await page.evaluate(() => { window.isFull = false; });
  await page.getByRole("button", { name: "Delete Other" }).click();
  await page.waitForFunction(() => document.querySelector(".composer-notice").innerText === "");
  await page.reload();
  await titles(page, "Before");
  await asked(page, "Before", "Think first.");
  assert.equal(await lastAnswer(page), "It is a fox.");
}));

test("models are kept with conversations, and other ones of a restarted server are noticed", { skip: isReal }, () => onPage({}, async (page) => {
  const chosen = (name) => page.waitForFunction((model) => document.querySelector(".models").value === model, name);
  await ask(page, "With owlet.");
  await answered(page);
  await page.keyboard.press("Control+k");
  await choose(page, "virtual");
  await ask(page, "With virtual.");
  await answered(page);
  await row(page, "With owlet.").click();
  await chosen("owlet");
  await row(page, "With virtual.").click();
  await chosen("virtual");
  await page.reload();
  await asked(page, "With virtual.");
  await chosen("virtual");
  await page.keyboard.press("Control+k");
  await chosen("virtual");
  const { models } = server.mock;
  server.mock.models = ["second", "third"];
  try {
    await ask(page, "Who is there?");
    await page.getByText("The server serves other models now: second, third. virtual, which was chosen here, is not served now: second will answer.").waitFor();
    assert.deepEqual(await page.locator(".models option").allInnerTexts(), ["second", "third"]);
    await picture(page, "other-models-1280");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByRole("button", { name: "Regenerate" }).waitFor();
    assert.equal(server.mock.bodies.at(-1).model, "second");
    await chosen("second");
  } finally {
    server.mock.models = models;
  }
}, /404/));
