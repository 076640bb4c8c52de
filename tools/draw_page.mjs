// The page of `tyto serve` after two questions, as a PNG: node draw_page.mjs URL PICTURE NODE_MODULES

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [url, picture, modules] = process.argv.slice(2);
const { chromium } = await import(pathToFileURL(join(resolve(modules), "playwright-core/index.mjs")));
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 760 }, reducedMotion: "reduce" });
page.setDefaultTimeout(60_000);
await page.goto(url);
await page.waitForSelector(".models option", { state: "attached" });
for (const [number, text] of ["Who are you?", "Tell me a story about a fox who finds a lamp."].entries()) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
  await page.waitForFunction((wanted) => document.querySelectorAll("article, .answer").length >= wanted &&
    !document.querySelector("button[aria-label='Stop'], .stop:not([hidden])"), number + 1);
  await page.waitForTimeout(3000);
}
await page.screenshot({ path: picture });
await browser.close();
