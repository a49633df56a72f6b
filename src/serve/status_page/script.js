// Follows /events and replaces the changed parts of the page. The page is complete without this script.
//
// The browser runs this file twice: in each tab, and as a shared worker, which follows /events once for all tabs. Over
// HTTP/1 a browser opens only six connections to a server, so more tabs with a stream each would stay blank. Nobody
// follows /events while no tab is visible.

const SILENCE_MS = 40_000;
const RETRY_MS = 5_000;

// Follows /events between start() and stop(). Calls tell() with { parts }, the changed markup by name, { live: true } or
// { live: false }. now() is what a tab has to know that begins to listen now.
function follow(tellAll) {
  let source, retry, live, parts = {}, lastHeard = 0;
  const tell = (message) => {
    live = message.live;
    tellAll(message);
  };
  const heard = () => { lastHeard = Date.now(); };
  function open() {
    clearTimeout(retry);
    source?.close();
    source = new EventSource("events");
    heard();
    source.onopen = () => { heard(); tell({ live: true }); };
    source.addEventListener("parts", (event) => {
      heard();
      const sent = Object.entries(JSON.parse(event.data));
      const changed = Object.fromEntries(sent.filter(([name, html]) => parts[name] !== html));
      Object.assign(parts, changed);
      tell({ parts: changed, live: true });
    });
    source.addEventListener("tick", () => { heard(); tell({ live: true }); });
    // The server ends the stream in order, because another browser waits for a place.
    source.addEventListener("again", () => { source.close(); retry = setTimeout(open, 200); });
    source.onerror = () => {
      tell({ live: false });
      // The browser reconnects automatically, except after an answer that is not a stream.
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY_MS);
    };
  }
  setInterval(() => {
    if (!source || Date.now() - lastHeard < SILENCE_MS) return;
    tell({ live: false });
    open();
  }, RETRY_MS);
  return {
    start() { if (!source) open(); },
    stop() { clearTimeout(retry); source?.close(); source = live = undefined; parts = {}; },
    now: () => ({ parts, live }),
  };
}

// The shared worker: passes what it hears on to the visible tabs. A tab that ended without a word is silent.
function serveTabs() {
  const tabs = new Map();
  const stream = follow((message) => tabs.forEach((_, tab) => tab.postMessage(message)));
  const leave = (tab) => {
    tabs.delete(tab);
    if (tabs.size === 0) stream.stop();
  };
  self.onconnect = ({ ports: [tab] }) => {
    tab.onmessage = ({ data: { visible } }) => {
      if (!visible) return leave(tab);
      const isNew = !tabs.has(tab);
      tabs.set(tab, Date.now());
      stream.start();
      if (isNew) tab.postMessage(stream.now());
    };
  };
  setInterval(() => tabs.forEach((heardAt, tab) => { if (Date.now() - heardAt > SILENCE_MS) leave(tab); }), RETRY_MS);
}

// Follows /events through the shared worker; in a browser that cannot start it, by itself.
function followShared(tell) {
  if (!globalThis.SharedWorker) return follow(tell);
  const worker = new SharedWorker("status.js");
  let own, isStarted = false;
  worker.port.onmessage = ({ data }) => { if (!own) tell(data); };
  worker.onerror = () => {
    own ??= follow(tell);
    if (isStarted) own.start();
  };
  const set = (visible) => {
    isStarted = visible;
    worker.port.postMessage({ visible });
    if (own) visible ? own.start() : own.stop();
  };
  setInterval(() => { if (isStarted) worker.port.postMessage({ visible: true }); }, RETRY_MS);
  return { start: () => set(true), stop: () => set(false) };
}

const WORDS = { c: "complete", a: "complete, due again", d: "needs a recheck", p: "partly read", n: "not read" };
const shown = {};

function say(text, isLost) {
  const live = document.getElementById("live");
  if (live.textContent !== text) live.textContent = text;
  live.classList.toggle("lost", isLost);
}

// Replaces a part and restores what the reader did to it: opened details, scroll positions, focus, selected days.
function replace(old, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
  if (!fresh) return;
  const all = (part, what) => [...part.querySelectorAll(what)];
  const focusable = "a, summary, [tabindex]";
  const focused = all(old, focusable).indexOf(document.activeElement);
  const opened = all(old, "details").map((details) => details.open);
  const scrolled = all(old, ".scroll").map((box) => [box.scrollLeft, box.scrollTop]);
  const days = all(old, ".calendar").map((box) => box.dataset.at);
  old.replaceWith(fresh);
  all(fresh, "details").forEach((details, at) => { details.open = opened[at] ?? false; });
  all(fresh, ".scroll").forEach((box, at) => { if (scrolled[at]) [box.scrollLeft, box.scrollTop] = scrolled[at]; });
  all(fresh, ".calendar").forEach((box, at) => { if (days[at] !== undefined) showDay(box, Number(days[at])); });
  if (focused >= 0) all(fresh, focusable)[focused]?.focus({ preventScroll: true });
}

function showMessage({ parts = {}, live }) {
  for (const [name, html] of Object.entries(parts)) {
    const old = document.getElementById(name);
    if (!old || shown[name] === html) continue;
    shown[name] = html;
    replace(old, html);
  }
  const word = document.querySelector("#verdict .word")?.lastChild?.textContent.trim();
  if (word) document.title = document.title.replace(/^[^:]*/, word);
  if (live === true) say("Live.", false);
  if (live === false) say("The connection is lost; the page is out of date. Reconnecting.", true);
}

// Selects a day of a calendar: writes its state below the calendar and marks its square.
function showDay(box, at) {
  const svg = box.querySelector("svg");
  const days = svg.dataset.days;
  at = Math.max(0, Math.min(days.length - 1, at));
  box.dataset.at = at;
  const [left, top, step] = ["left", "top", "step"].map((name) => Number(svg.dataset[name]));
  const date = new Date((Number(box.dataset.first) + at) * 86_400_000).toISOString().slice(0, 10);
  const read = box.nextElementSibling;
  read.textContent = `${date}: ${WORDS[days[at]] ?? "unknown"}`;
  const cursor = svg.querySelector(".cursor") ?? svg.appendChild(document.createElementNS(svg.namespaceURI, "rect"));
  cursor.setAttribute("class", "cursor");
  const size = step - 1;
  for (const [name, value] of [["x", left + Math.floor(at / 7) * step - 1], ["y", top + (at % 7) * step - 1], ["width", size], ["height", size]]) {
    cursor.setAttribute(name, value);
  }
}

const STEPS = { ArrowLeft: -7, ArrowRight: 7, ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };
// The tab: listens to the reader, and follows /events while it is visible.
function showPage() {
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".calendar");
    if (!box || !(event.key in STEPS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const last = box.querySelector("svg").dataset.days.length - 1;
    showDay(box, (box.dataset.at === undefined ? last : Number(box.dataset.at)) + (box.dataset.at === undefined ? 0 : STEPS[event.key]));
  });
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.(".calendar svg");
    if (!svg) return;
    const { left, top, step } = svg.dataset;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const [column, row] = [Math.floor((point.x - left) / step), Math.floor((point.y - top) / step)];
    if (column < 0 || row < 0 || row > 6 || column * 7 + row >= svg.dataset.days.length) return;
    showDay(svg.closest(".calendar"), column * 7 + row);
  });
  const stream = followShared(showMessage);
  const follows = () => (document.hidden ? stream.stop() : stream.start());
  document.addEventListener("visibilitychange", follows);
  addEventListener("pagehide", () => stream.stop());
  addEventListener("pageshow", follows);
  follows();
}

if (globalThis.document) showPage();
else serveTabs();
