// Follows /events and replaces the changed parts of the page. The page is complete without this script.

const live = document.getElementById("live");
const WORDS = { c: "complete", a: "complete, due again", d: "needs a recheck", p: "partly read", n: "not read" };
const SILENCE_MS = 40_000;
let lastHeard = Date.now();
let source;

function say(text, isLost) {
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

function listen() {
  source = new EventSource("events");
  source.onopen = () => { lastHeard = Date.now(); say("Live.", false); };
  source.addEventListener("parts", (event) => {
    lastHeard = Date.now();
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const old = document.getElementById(name);
      if (old) replace(old, html);
    }
    const word = document.querySelector("#verdict .word")?.lastChild?.textContent.trim();
    if (word) document.title = `${word}: studysync`;
    say("Live.", false);
  });
  source.addEventListener("tick", () => { lastHeard = Date.now(); say("Live.", false); });
  source.onerror = () => {
    say("The connection is lost; the page is out of date. Reconnecting.", true);
    // The browser reconnects automatically, except after an answer that is not a stream.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  };
}

setInterval(() => {
  if (Date.now() - lastHeard < SILENCE_MS || source.readyState === EventSource.CLOSED) return;
  lastHeard = Date.now();
  say("The connection is lost; the page is out of date. Reconnecting.", true);
  source.close();
  listen();
}, 5000);

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

listen();
