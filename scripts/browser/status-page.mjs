// Tests the status page, a report and the book as a person sees them. Usage: node status-page.mjs PROGRAM FOLDER BOOK

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join } from "node:path";

import { chromium } from "playwright-core";

import { Program } from "./program.mjs";

const [program, pictures, book] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
const TOKEN = "status-token-of-the-browser-test";
const IDLE = 'schedule = "off"\nwake_secs = 1\nflush_secs = 1\n';
// The run begins at the next full minute.
const EVERY_MINUTE = 'schedule = "* * * * *"\njitter_secs = 0\nflush_secs = 1\n';
const PHONE = { width: 390, height: 844 };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    ...(process.getuid() === 0 ? ["--no-sandbox"] : []),
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ],
});

let passed = 0;
let failed = 0;
async function test(name, body) {
  const contexts = [];
  const problems = [];
  const open = async (address, options = {}) => {
    const context = await browser.newContext(options);
    contexts.push(context);
    const page = await context.newPage();
    page.on("console", (message) => { if (["error", "warning"].includes(message.type())) problems.push(message.text()); });
    page.on("pageerror", (error) => problems.push(String(error)));
    const answer = await page.goto(address);
    return { page, answer };
  };
  try {
    await body(open, problems);
    assert.deepEqual(problems, [], "the console is empty");
    passed += 1;
    console.log(`ok: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${name}\n${error.stack}`);
  }
  await Promise.all(contexts.map((context) => context.close()));
}

// Evaluates axe through the debugger, which the page's content security policy does not restrict.
async function violations(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
}

// The options of commands that are on two lines.
const broken = (page) => page.evaluate(() => [...document.querySelectorAll(".option")].filter((option) => option.getClientRects().length > 1).map((option) => option.textContent));

const picture = (page, name) => page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
const under = new Program(program);
try {
  await under.start({ sandbox: ["--responses", "6000", "--days", "200", "--latency-ms", "700", "--hostile-share", "0.01"], serve: IDLE });
  const { address } = under;

  await test("a failed night shows in the words of the run", async (open) => {
    const report = JSON.parse(under.command(["sync", "--json"], 4, { STUDYSYNC_API_KEY: "another" }).stdout);
    const { page } = await open(address);
    await page.getByText(report.why).first().waitFor();
    assert.match(await page.locator("#verdict").innerText(), /Failing/);
    assert.ok((await page.locator("#verdict").innerText()).includes(report.hint), "it says what to do");
    assert.equal(await page.title(), "Failing: studysync default");
    assert.deepEqual(await violations(page), []);
    await picture(page, "failed-light");
  });

  under.command(["sync"], 0);
  for (const [name, options] of [
    ["desktop-light", { viewport: { width: 1280, height: 900 } }],
    ["desktop-dark", { viewport: { width: 1280, height: 900 }, colorScheme: "dark" }],
    ["phone-light", { viewport: PHONE }],
    ["phone-dark", { viewport: PHONE, colorScheme: "dark" }],
    ["without-script", { javaScriptEnabled: false }],
  ]) {
    await test(`${name}: it fits, and axe finds nothing`, async (open) => {
      const { page, answer } = await open(address, options);
      assert.equal(answer.status(), 200);
      await page.getByText("Healthy").first().waitFor();
      await picture(page, name);
      const wide = await page.locator("body").evaluate((body) => body.scrollWidth - document.documentElement.clientWidth).catch(() => 0);
      assert.ok(wide <= 0, `nothing is wider than the window: ${wide}`);
      if (options.javaScriptEnabled === false) {
        assert.match(await page.content(), /<noscript><meta http-equiv="refresh" content="10">|http-equiv="refresh"/);
        assert.ok((await page.locator("#runs tbody tr").count()) >= 2, "all parts are there");
        return;
      }
      assert.deepEqual(await violations(page), []);
    });
  }

  under.command(["report", "--from", "90d", "--verbatims", "3", "--by", "browser", "--out", "report.html"], 0);
  for (const [name, options] of [
    ["report-light", { viewport: { width: 1280, height: 900 } }],
    ["report-dark", { viewport: { width: 1280, height: 900 }, colorScheme: "dark" }],
    ["report-phone", { viewport: PHONE }],
  ]) {
    await test(`${name}: it fits, axe finds nothing, and arrow keys show values`, async (open) => {
      const { page } = await open(`file://${join(under.folder, "report.html")}`, options);
      const wide = await page.evaluate(() => document.body.scrollWidth - document.documentElement.clientWidth);
      assert.ok(wide <= 0, `nothing is wider than the window: ${wide}`);
      const days = page.locator('input[name="answers-values"]');
      await days.first().focus();
      await page.keyboard.press("ArrowRight");
      const shown = await days.nth(1).evaluate((day) => getComputedStyle(day, "::after").display);
      assert.equal(shown, "block", "the next day shows its value");
      await picture(page, name);
      await page.evaluate(() => document.querySelectorAll("details").forEach((part) => (part.open = true)));
      assert.ok(await page.locator(".option").count() > 0, "it names options");
      assert.deepEqual(await broken(page), []);
      assert.deepEqual(await violations(page), []);
    });
  }

  await test("all of it is reached by keyboard, in the order of the page", async (open) => {
    const { page } = await open(address);
    await page.getByText("Live.").waitFor();
    const order = [];
    for (let step = 0; step < 60; step += 1) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const focused = document.activeElement;
        if (!focused || focused === document.body) return null;
        const outline = getComputedStyle(focused).outlineStyle;
        return { part: focused.closest("section, footer")?.id || "footer", what: focused.className || focused.tagName, outline };
      });
      if (at === null) break;
      assert.notEqual(at.outline, "none", `the focus is seen: ${at.what}`);
      order.push(at);
    }
    const parts = [...new Set(order.map((at) => at.part))];
    assert.deepEqual(parts, ["streams", "trust", "runs", "rejects", "footer"]);
    const calendar = page.locator(".calendar").first();
    await calendar.focus();
    const today = async () => (await page.locator(".day-read").first().innerText()).slice(0, 10);
    await page.keyboard.press("End");
    const last = await today();
    await page.keyboard.press("ArrowUp");
    const before = await today();
    await page.keyboard.press("ArrowLeft");
    const week = await today();
    const days = (from, to) => (Date.parse(from) - Date.parse(to)) / 86_400_000;
    assert.deepEqual([days(last, before), days(before, week)], [1, 7]);
    await picture(page, "calendar-by-keyboard");
  });

  await test("nine tabs of one browser are live, and hidden ones have no stream", async (open) => {
    const { page } = await open(address);
    const tabs = [page];
    while (tabs.length < 9) {
      const tab = await page.context().newPage();
      await tab.goto(address, { timeout: 10_000 });
      tabs.push(tab);
    }
    for (const tab of tabs) await tab.getByText("Live.").waitFor({ timeout: 10_000 });
    const setHidden = (tab, hidden) => tab.evaluate((value) => {
      Object.defineProperty(document, "hidden", { value, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    const streams = async () => {
      await page.waitForTimeout(12_000);
      return under.connections();
    };
    assert.equal(await streams(), 1, "one stream for all tabs");
    for (const tab of tabs) await setHidden(tab, true);
    assert.equal(await streams(), 0, "no stream without a visible tab");
    await setHidden(tabs[3], false);
    assert.equal(await streams(), 1);
    assert.match(await tabs[3].locator("#live").innerText(), /Live/);
  });

  await test("a stopped serve shows as a lost connection", async (open, problems) => {
    const { page } = await open(address);
    await page.getByText("Live.").waitFor();
    under.stop();
    await page.getByText("The connection is lost").waitFor({ timeout: 20_000 });
    // The browser itself logs that it cannot connect.
    problems.splice(0, problems.length, ...problems.filter((problem) => !/ERR_|Failed to load/.test(problem)));
  });
} finally {
  under.stop();
}

const live = new Program(program);
try {
  await live.start({ sandbox: ["--responses", "40000", "--days", "100", "--latency-ms", "700"], serve: EVERY_MINUTE });
  await test("a run is followed without the page being loaded again", async (open) => {
    const { page } = await open(live.address);
    await page.evaluate(() => { window.isTheSame = true; });
    await page.getByText("Live.").waitFor();
    await page.locator("#streams details summary").first().click();
    await page.locator("#under-way progress").waitFor({ timeout: 70_000 });
    const lines = new Set();
    for (let look = 0; look < 60 && lines.size < 4; look += 1) {
      const line = await page.locator("#under-way .line").innerText({ timeout: 1000 }).catch(() => null);
      if (line !== null) lines.add(line);
      await page.waitForTimeout(250);
    }
    await picture(page, "under-way-light");
    assert.deepEqual(await violations(page), []);
    await page.getByText("Nothing is under way.").waitFor({ timeout: 120_000 });
    assert.ok(lines.size >= 3, `the progress moved: ${[...lines]}`);
    assert.match(await page.locator("#runs tbody tr").first().innerText(), /sync/);
    assert.ok(await page.evaluate(() => window.isTheSame), "it was not loaded again");
    assert.ok(await page.locator("#streams details").first().evaluate((details) => details.open), "what was opened stays open");
  });
} finally {
  live.stop();
}

const guarded = new Program(program);
try {
  await guarded.start({ sandbox: ["--responses", "50"], serve: IDLE, environment: { STUDYSYNC_STATUS_TOKEN: TOKEN } });
  await test("a browser signs in once with the token", async (open, problems) => {
    const { page, answer } = await open(guarded.address);
    assert.equal(answer.status(), 401);
    // The browser itself logs the status of the page.
    problems.splice(0);
    assert.deepEqual(await violations(page), []);
    await picture(page, "sign-in");
    await page.getByLabel("Token").fill(TOKEN);
    await page.keyboard.press("Enter");
    await page.getByText("Live.").waitFor();
    assert.ok(!page.url().includes(TOKEN));
    await page.reload();
    await page.getByText("Live.").waitFor();
  });
} finally {
  guarded.stop();
}
// The pages of the book, without the ones that repeat all others.
const TYPES = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".json": "application/json", ".png": "image/png", ".svg": "image/svg+xml" };
const pages = readdirSync(book, { recursive: true }).filter((name) => name.endsWith(".html") && !/^(404|print|toc)/.test(name)).sort();
const server = createServer((request, answer) => {
  try {
    const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const content = readFileSync(join(book, path));
    answer.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(content);
  } catch {
    answer.writeHead(404).end();
  }
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
for (const [name, options, shown] of [
  ["book-phone", { viewport: PHONE }, pages],
  ["book-phone-dark", { viewport: PHONE, colorScheme: "dark" }, pages.filter((page) => page.startsWith("guide/"))],
  ["book-light", { viewport: { width: 1280, height: 900 } }, pages.filter((page) => page.startsWith("guide/"))],
]) {
  await test(`${name}: axe finds nothing on ${shown.length} pages, and each fits`, async (open) => {
    assert.ok(shown.length > 10, `${shown.length} pages`);
    const address = `http://127.0.0.1:${server.address().port}`;
    const { page } = await open(`${address}/index.html`, options);
    const found = [];
    for (const path of shown) {
      await page.goto(`${address}/${path}`);
      found.push(...(await violations(page)).map((violation) => `${path}: ${violation}`));
      found.push(...(await broken(page)).map((option) => `${path}: ${option} is on two lines`));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (wide > 0) found.push(`${path}: ${wide} pixels wider than the window`);
      if (path === "guide/questions.html") await picture(page, name);
    }
    assert.deepEqual(found, []);
  });
}
server.close();

await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
