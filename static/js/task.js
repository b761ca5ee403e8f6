// The task page, alive: states of nodes, questions, delivery and one session follow the supervisor's events.
// @ts-check

import { announce } from "./news.js";
import { asShown, groupNodes, nodeMoved, nodeTried, showNodes, stateOf } from "./nodes.js";
import { fetchPart, fill, redraw } from "./parts.js";
import { createStream } from "./stream.js";
import { Transcript } from "./transcript.js";

/** @typedef {import("./transcript.js").Event} Event */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const words = JSON.parse(document.getElementById("vocabulary")?.textContent ?? "{}");
const socketUrl = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/tasks/${main.dataset.task}/console`;
const GRAPH_KINDS = [
  "graph.state", "graph.reopened", "gate.opened", "gate.closed", "node.state", "node.cutoff", "rework.asked",
  "attempt.state", "request.opened", "request.closed", "delivery.state", "artefact.uploaded",
];

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

// --- the stream of the graph ----------------------------------------------------------------------------------------

/** @param {any} state @param {{epoch: string}} about */
function onSnapshot(state, about) {
  epoch = about.epoch;
  showNodes(state.nodes ?? []);
  redraw("questions");
  if (main.dataset.source === "live") return openSession();
  main.dataset.source = "live"; // the page was drawn while nobody answered
  redraw("head", "delivery");
  void showDrawer(location.search || "?", false);
}

/** @param {Event[]} events */
function onEvents(events) {
  for (const event of events) {
    if (event.kind === "node.state") onNode(event);
    else if (event.kind === "rework.asked") showRounds(event.data);
    else if (event.kind === "attempt.state") onAttempt(event);
    else if (event.kind.startsWith("request.")) redraw("questions", "head");
    else if (event.kind === "delivery.state" || event.kind.startsWith("graph.")) redraw("delivery", "head");
  }
  if (events.some((event) => event.kind === "node.state")) groupNodes();
}

/** @param {Event} event */
function onNode(event) {
  if (!event.node) return;
  const { state } = event.data;
  nodeMoved(event.node, event);
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
  if (stateOf(shown) === "running") return;
  void showDrawer(`?node=${encodeURIComponent(node)}`, false);
}

/** @param {Event} event */
function onAttempt(event) {
  nodeTried(event);
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

asShown();
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
