// What is known of the nodes, shown wherever the page shows them: bar, graph, list, drawer.
// @ts-check

import { took } from "./shell.js";
import { glyph } from "./transcript.js";

/** @typedef {import("./transcript.js").Event} Event */
/** @typedef {{word: string, glyph: string, tone: string, shape: string}} Sign */
/** ``begun`` and ``ended``: when its present generation did. ``tries``: its attempts. @typedef {{state: string, generation: number, begun: string | null, ended: string | null, tries: number, failure: string}} Seen */

const words = JSON.parse(document.getElementById("vocabulary")?.textContent ?? "{}");

/** @type {Map<string, Seen>} */
const nodes = new Map();

/** @param {Seen} seen */
const timeOf = ({ begun, ended }) => (begun && ended ? took((Date.parse(ended) - Date.parse(begun)) / 1000) : "");

/** @param {string} key */
export const stateOf = (key) => nodes.get(key)?.state ?? "waiting";

/** Begin with the states that the server has drawn. */
export function asShown() {
  for (const row of document.querySelectorAll("a.node-row")) {
    const state = row.getAttribute("data-state") ?? "waiting";
    nodes.set(row.getAttribute("data-node") ?? "", { state, generation: 1, begun: null, ended: null, tries: 0, failure: "" });
  }
}

/** Show all nodes of a snapshot. @param {any[]} views */
export function showNodes(views) {
  for (const view of views) showNode(view.key, seenIn(view));
  groupNodes();
}

/** @param {any} node of a snapshot @returns {Seen} */
function seenIn(node) {
  const tries = (node.attempts ?? []).filter((/** @type {string} */ id) => id.split(".").at(-2) === String(node.generation)).length;
  const failure = node.failure?.code ?? "";
  return { state: node.state, generation: node.generation, begun: node.started_at, ended: node.ended_at, tries, failure };
}

/** A node is in another state, or works again from its beginning. @param {string} key @param {Event} event */
export function nodeMoved(key, { at, data }) {
  const known = nodes.get(key);
  const generation = data.generation ?? known?.generation ?? 1;
  const before = known && known.generation === generation ? known : { begun: null, tries: 0 };
  const begun = before.begun ?? (data.state === "running" || data.state === "needs_input" ? at : null);
  const ended = words.ended.includes(data.state) ? at : null;
  showNode(key, { state: data.state, generation, begun, ended, tries: before.tries, failure: data.failure?.code ?? "" });
}

/** Count the attempts of a node's present generation. @param {Event} event */
export function nodeTried(event) {
  const key = event.node ?? "";
  const known = nodes.get(key);
  const [generation, number] = (event.attempt ?? "").split(".").slice(-2).map(Number);
  if (known?.generation === generation && number > known.tries) showNode(key, { ...known, tries: number });
}

/** Show a node as what is now known of it: in the bar, the graph, the list, the drawer. @param {string} key @param {Seen} seen */
function showNode(key, seen) {
  /** @type {Sign | undefined} */
  const sign = words.node?.[seen.state];
  if (!sign) return;
  nodes.set(key, seen);
  const name = CSS.escape(key);
  for (const bar of document.querySelectorAll(`[data-bar="${name}"]`)) setSign(bar, sign, "k");
  const box = document.querySelector(`.flow-svg a[data-node="${name}"]`);
  if (box) showBox(box, sign, seen);
  for (const edge of document.querySelectorAll(`.flow-svg [data-from="${name}"]`)) {
    const base = edge.classList.contains("head") ? "head" : "edge";
    edge.setAttribute("class", seen.state === "succeeded" ? `${base} ${base}-done` : base);
  }
  const row = document.querySelector(`a.node-row[data-node="${name}"]`);
  if (row) showRow(row, sign, seen);
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

/** @param {Element} box @param {Sign} sign @param {Seen} seen */
function showBox(box, sign, seen) {
  setSign(box, sign, "s");
  box.querySelector("use")?.setAttribute("href", `#g-${sign.glyph}`);
  const line = box.querySelector(".sub");
  const note = sign.shape === "wait" ? line?.getAttribute("data-note") : noteOf(seen);
  if (line) line.textContent = note ? `${sign.word} · ${note}` : sign.word;
}

/** What stands beside the word of a node that has begun. @param {Seen} seen */
function noteOf(seen) {
  if (seen.state === "failed" && seen.failure) return seen.failure.replaceAll("_", " ").slice(0, 16);
  if (seen.ended) return timeOf(seen);
  return seen.tries > 1 ? `attempt ${seen.tries}` : "";
}

/** @param {Element} row @param {Sign} sign @param {Seen} seen */
function showRow(row, sign, seen) {
  row.setAttribute("data-tone", sign.tone);
  row.toggleAttribute("data-dim", sign.shape === "wait" || sign.shape === "skip");
  row.querySelector("use")?.setAttribute("href", `#g-${sign.glyph}`);
  const name = row.querySelector(".name");
  let round = row.querySelector(".round");
  if (seen.generation > 1 && name) {
    if (!round) name.after(" ", (round = Object.assign(document.createElement("span"), { className: "round" })));
    round.textContent = `gen ${seen.generation}`;
  }
  const time = row.querySelector(".t");
  if (!time) return;
  time.replaceChildren(Object.assign(document.createElement("span"), { className: "sr", textContent: sign.word }), timeOf(seen));
  if (seen.begun && !seen.ended) {
    const ticking = document.createElement("time");
    ticking.dataset.since = seen.begun;
    time.append(ticking);
  }
}

/** Put the rows under the headings that their states belong to; the focus stays where it is. */
export function groupNodes() {
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
