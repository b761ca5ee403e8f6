// The task page, alive: states of nodes, questions, delivery and one session follow the supervisor's events.
// @ts-check

import { announce } from "./news.js";
import { fetchPart, fill, redraw } from "./parts.js";
import { createStream } from "./stream.js";
import { glyph, Transcript } from "./transcript.js";

/** @typedef {import("./transcript.js").Event} Event */
/** @typedef {{word: string, glyph: string, tone: string, shape: string}} Sign */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const words = JSON.parse(document.getElementById("vocabulary")?.textContent ?? "{}");
const socketUrl = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/tasks/${main.dataset.task}/console`;
const GRAPH_KINDS = [
  "graph.state", "graph.reopened", "gate.opened", "gate.closed", "node.state", "node.cutoff", "rework.asked",
  "attempt.state", "request.opened", "request.closed", "delivery.state", "artefact.uploaded",
];

/** @type {Map<string, {state: string, generation: number}>} */
const nodes = new Map();
/** @type {{close: () => void} | null} */
let session = null;
/** @type {AbortController | null} of the listeners of the session that is shown */
let listening = null;
let epoch = "";

/** Whether somebody has begun to write in the drawer: then it does not move on by itself. */
function isWriting() {
  const fields = /** @type {NodeListOf<HTMLTextAreaElement>} */ (document.querySelectorAll(".drawer textarea"));
  return [...fields].some((field) => field.value !== field.defaultValue || field === document.activeElement);
}

// --- nodes ----------------------------------------------------------------------------------------------------------

/** @param {string} key @param {string} state @param {number} generation @param {string | null} since */
function showNode(key, state, generation, since) {
  /** @type {Sign | undefined} */
  const sign = words.node?.[state];
  if (!sign) return;
  nodes.set(key, { state, generation });
  const name = CSS.escape(key);
  for (const bar of document.querySelectorAll(`[data-bar="${name}"]`)) setSign(bar, sign, "k");
  const box = document.querySelector(`.flow-svg a[data-node="${name}"]`);
  if (box) showBox(box, sign);
  for (const edge of document.querySelectorAll(`.flow-svg [data-from="${name}"]`)) {
    const base = edge.classList.contains("head") ? "head" : "edge";
    edge.setAttribute("class", state === "succeeded" ? `${base} ${base}-done` : base);
  }
  const row = document.querySelector(`a.node-row[data-node="${name}"]`);
  if (row) showRow(row, sign, generation, since);
  const badge = document.querySelector(`[data-node-badge="${name}"]`);
  if (badge instanceof HTMLElement) {
    badge.dataset.tone = sign.tone;
    badge.replaceChildren(glyph(sign.glyph), document.createTextNode(sign.word));
  }
}

/** @param {Element} element @param {Sign} sign @param {string} attribute */
function setSign(element, sign, attribute) {
  element.setAttribute(`data-${attribute}`, sign.shape);
  element.setAttribute("data-tone", sign.tone);
}

/** @param {Element} box @param {Sign} sign */
function showBox(box, sign) {
  setSign(box, sign, "s");
  box.querySelector("use")?.setAttribute("href", `#g-${sign.glyph}`);
  const line = box.querySelector(".sub");
  const note = sign.shape === "wait" ? line?.getAttribute("data-note") : "";
  if (line) line.textContent = note ? `${sign.word} · ${note}` : sign.word;
}

/** @param {Element} row @param {Sign} sign @param {number} generation @param {string | null} since */
function showRow(row, sign, generation, since) {
  row.setAttribute("data-tone", sign.tone);
  row.toggleAttribute("data-dim", sign.shape === "wait" || sign.shape === "skip");
  row.querySelector("use")?.setAttribute("href", `#g-${sign.glyph}`);
  const name = row.querySelector(".name");
  let round = row.querySelector(".round");
  if (generation > 1 && name) {
    if (!round) name.after(" ", (round = Object.assign(document.createElement("span"), { className: "round" })));
    round.textContent = `gen ${generation}`;
  }
  const time = row.querySelector(".t");
  if (!time) return;
  time.replaceChildren(Object.assign(document.createElement("span"), { className: "sr", textContent: sign.word }));
  if (since && (sign.shape === "run" || sign.shape === "ask")) {
    const ticking = document.createElement("time");
    ticking.dataset.since = since;
    time.append(ticking);
  }
}

/** Put the rows under the headings that their states belong to; the focus stays where it is. */
function regroup() {
  const list = document.getElementById("node-groups");
  if (!list) return;
  const focused = document.activeElement;
  const rows = new Map([...list.querySelectorAll("a.node-row")].map((row) => [row.getAttribute("data-node") ?? "", row]));
  const order = [...document.querySelectorAll("[data-bar]")].map((bar) => bar.getAttribute("data-bar") ?? "");
  const groups = words.groups.map((/** @type {[string, string[]]} */ [title, states]) => {
    const members = order.filter((key) => states.includes(nodes.get(key)?.state ?? "waiting") && rows.has(key));
    return members.length ? drawGroup(title, members.map((key) => /** @type {Element} */ (rows.get(key)))) : null;
  });
  list.replaceChildren(...groups.filter(Boolean));
  if (focused instanceof HTMLElement && document.activeElement !== focused) focused.focus({ preventScroll: true });
  const done = order.filter((key) => words.ended.includes(nodes.get(key)?.state ?? "")).length;
  const count = document.getElementById("nodes-done");
  if (count) count.textContent = `${done} of ${order.length} nodes done`;
}

/** @param {string} title @param {Element[]} rows */
function drawGroup(title, rows) {
  const section = Object.assign(document.createElement("section"), { className: "node-group" });
  const heading = document.createElement("h3");
  heading.append(
    Object.assign(document.createElement("span"), { textContent: title }),
    Object.assign(document.createElement("span"), { className: "num", textContent: String(rows.length) }),
  );
  const list = Object.assign(document.createElement("ul"), { className: "list" });
  for (const row of rows) {
    const item = document.createElement("li");
    item.append(row);
    list.append(item);
  }
  section.append(heading, list);
  return section;
}

// --- the stream of the graph ----------------------------------------------------------------------------------------

/** @param {any} state @param {{epoch: string}} about */
function onSnapshot(state, about) {
  epoch = about.epoch;
  for (const node of state.nodes ?? []) showNode(node.key, node.state, node.generation, node.ended_at ? null : node.started_at);
  regroup();
  redraw("questions");
  if (main.dataset.source === "live") return openSession();
  main.dataset.source = "live"; // the page was drawn while nobody answered
  redraw("head", "delivery");
  void showDrawer(location.search || "?", false);
}

/** @param {Event[]} events */
function onEvents(events) {
  for (const event of events) {
    if (event.kind === "node.state") nodeMoved(event);
    else if (event.kind === "rework.asked") showRounds(event.data);
    else if (event.kind === "attempt.state") attemptMoved(event);
    else if (event.kind.startsWith("request.")) redraw("questions", "head");
    else if (event.kind === "delivery.state" || event.kind.startsWith("graph.")) redraw("delivery", "head");
  }
  if (events.some((event) => event.kind === "node.state")) regroup();
}

/** @param {Event} event */
function nodeMoved(event) {
  if (!event.node) return;
  const { state, generation } = event.data;
  showNode(event.node, state, generation ?? nodes.get(event.node)?.generation ?? 1, event.at);
  if (state !== "ready") announce(`${event.node}: ${words.node?.[state]?.word ?? ""}`);
  follow(event.node, state);
}

/** @param {Record<string, any>} data */
function showRounds(data) {
  const text = document.querySelector(`[data-rounds="${CSS.escape(String(data.by))}"]`);
  if (text) text.textContent = `round ${data.round} of ${data.max_rounds}`;
}

const panel = () => /** @type {HTMLElement | null} */ (document.querySelector(".drawer .tabpanel"));
const chosen = () => new URLSearchParams(location.search);

/** While nobody has chosen a node, the drawer shows what works now. @param {string} node @param {string} state */
function follow(node, state) {
  if (chosen().has("node") || state !== "running" || panel()?.dataset.node === node || isWriting()) return;
  const shown = panel()?.dataset.node ?? "";
  if (nodes.get(shown)?.state === "running") return;
  void showDrawer(`?node=${encodeURIComponent(node)}`, false);
}

/** @param {Event} event */
function attemptMoved(event) {
  const shown = panel();
  if (!shown || event.node !== shown.dataset.node || chosen().has("attempt")) return;
  const isNew = event.attempt !== shown.dataset.attempt;
  const ended = words.attempt_ended.includes(event.data.state);
  const begun = event.data.state === "running";
  const redrawn = shown.dataset.shows === "details" || (ended && shown.dataset.shows !== "session");
  if ((isNew || redrawn) && !isWriting()) void showDrawer(`?node=${encodeURIComponent(event.node ?? "")}&tab=${shown.dataset.shows}`, false);
  else if (ended || begun) void redrawHeadOfDrawer();
}

/** The buttons beside a node change when its attempt ends; its transcript must stay. */
async function redrawHeadOfDrawer() {
  const shown = panel();
  if (!shown) return;
  const url = `?node=${encodeURIComponent(shown.dataset.node ?? "")}&attempt=${encodeURIComponent(shown.dataset.attempt ?? "")}&tab=session`;
  try {
    const answer = await fetch(url, { headers: { "X-Fragment": "drawer" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".drawer-head");
    const head = document.querySelector(".drawer .drawer-head");
    if (answer.ok && fresh && head instanceof HTMLElement && panel() === shown && !head.querySelector("details[open]")) fill(head, fresh.innerHTML);
  } catch {
    // shown again with the next move
  }
}

// --- the drawer and its session -------------------------------------------------------------------------------------

/** Show another node, attempt or tab. ``leaving``: until it is there, nobody can press a button of the node that was shown. @param {string} query @param {boolean} remember */
async function showDrawer(query, remember, leaving = false) {
  const drawer = document.querySelector(".drawer");
  if (leaving) drawer?.toggleAttribute("inert", true);
  const drawn = await fetchPart("drawer", location.pathname + query);
  if (drawn !== null) drawer?.toggleAttribute("inert", false);
  if (drawn === false && remember) location.search = query;
  if (!drawn) return;
  if (remember) history.pushState(null, "", query);
  const node = panel()?.dataset.node;
  for (const link of document.querySelectorAll("[data-node]")) {
    if (link.tagName.toLowerCase() !== "a") continue;
    if (link.getAttribute("data-node") === node) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  showInGraph();
  openSession();
}

/** Scroll a large graph, and nothing else, to the node that is looked at. */
function showInGraph() {
  const [scroller, box] = [document.querySelector(".graph-scroll"), document.querySelector(".flow-svg a[aria-current] .box")];
  if (!scroller || !box) return;
  const [outer, inner] = [scroller.getBoundingClientRect(), box.getBoundingClientRect()];
  if (inner.left < outer.left || inner.right > outer.right) scroller.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
  if (inner.top < outer.top || inner.bottom > outer.bottom) scroller.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
}

/** Follow the attempt that is shown from its first event on. @param {number} [again] how often it has begun anew */
function openSession(again = 0) {
  session?.close();
  listening?.abort();
  session = listening = null;
  const shown = panel();
  const place = document.getElementById("transcript");
  if (!shown || !place || shown.dataset.shows !== "session" || !shown.dataset.attempt || !epoch) return;
  listening = new AbortController();
  const transcript = new Transcript(place, shown.dataset.node ?? "", listening.signal);
  transcript.clear();
  const first = Number(shown.dataset.firstSeq || 1);
  session = createStream({
    url: socketUrl,
    since: { epoch, seq: Math.max(0, first - 1) },
    filter: { attempts: [shown.dataset.attempt] },
    onSnapshot: (/** @type {any} */ _, /** @type {{epoch: string}} */ about) => {
      epoch = about.epoch;
      if (again < 3) openSession(again + 1); // a gap or another log: only its own beginning tells the whole
      else transcript.clear();
    },
    onEvents: (/** @type {Event[]} */ events) => transcript.add(events),
    onState: () => {},
  });
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest(`a[href^="?"]`) : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  const isInside = link.closest(".drawer") !== null;
  void showDrawer(link.getAttribute("href") ?? "?", true, !isInside).then(() => {
    if (!isInside && matchMedia("(max-width: 67.99rem)").matches) document.querySelector(".drawer")?.scrollIntoView({ block: "start" });
  });
});
document.addEventListener("change", (event) => {
  if (event.target instanceof HTMLSelectElement && event.target.id === "attempt") {
    const shown = panel();
    void showDrawer(`?node=${encodeURIComponent(shown?.dataset.node ?? "")}&attempt=${encodeURIComponent(event.target.value)}&tab=${shown?.dataset.shows}`, true);
  }
});
addEventListener("popstate", () => void showDrawer(location.search || "?", false));

// --- how fresh this page is -----------------------------------------------------------------------------------------

const GONE = new Set([4410, 4503]);
let lastState = "";

/** @param {import("./stream.js").State} state */
function onState(state) {
  const [dot, word, note] = ["live-dot", "live-word", "live-note"].map((id) => document.getElementById(id));
  if (!dot || !word || !note) return;
  dot.dataset.state = state.state;
  word.textContent = state.state === "closed" ? "not live any more" : state.state;
  if (state.state !== lastState && lastState) announce(`page: ${word.textContent}`);
  lastState = state.state;
  main.toggleAttribute("data-away", state.state === "unreachable"); // the last picture, in grey
  if (GONE.has(state.code)) redraw("head", "delivery", "questions");
  note.textContent = state.state === "live" && state.seq ? `event ${state.seq.toLocaleString("en-GB")}` : state.detail ?? "";
}

for (const row of document.querySelectorAll("a.node-row")) nodes.set(row.getAttribute("data-node") ?? "", { state: row.getAttribute("data-state") ?? "waiting", generation: 1 });

showInGraph();
if (main.dataset.follows !== undefined) {
  createStream({
    url: socketUrl,
    since: null,
    filter: { kinds: GRAPH_KINDS },
    onSnapshot,
    onEvents,
    onState,
    onTask: () => redraw("head", "delivery", "questions"),
  });
}
