// The session of one attempt, built from its events. Everything a stranger wrote becomes text, never markup.
// @ts-check

import { compare } from "./edits.js";
import { Prose } from "./prose.js";
import { took } from "./shell.js";

/** @typedef {{seq: number, at: string, kind: string, node?: string | null, attempt?: string | null, data: Record<string, any>}} Event */

const ITEMS_SHOWN = 4000; // older ones leave the page
const TEXT_SHOWN = 200_000; // characters of one piece; of more, the end is shown
const ROWS_SHOWN = 300; // lines of the edits of one call
const CALLS_GROUPED = 200;
const PASSING = new Set(["queued", "provisioning", "starting", "finishing", "needs_input"]); // said by what follows
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

// What may go on in the next chunk: the first half of a line end or of an escape sequence.
const UNFINISHED = /(?:\r|\u001b(?:\[[0-?]*[ -/]*|\][^\u0007\u001b]{0,200})?)$/;

/** Make text safe to look at: no escape sequences, no control or direction characters. @param {unknown} text */
export function readable(text) {
  return String(text ?? "").replace(/\r\n?/g, "\n").replace(ESCAPES, "").replace(CONTROLS, "�");
}

/** @param {string} name @param {string} [css] @param {string} [text] */
function make(name, css = "", text = "") {
  const element = document.createElement(name);
  if (css) element.className = css;
  if (text) element.textContent = text;
  return element;
}

/** @param {string} name */
export function glyph(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "g");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#g-${name}`);
  svg.append(use);
  return svg;
}

/** @param {string} at */
const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

/** Draw an edit as the lines that changed, at most ``room`` of them. @param {{path?: unknown, old?: unknown, new?: unknown, line?: unknown}} block @param {number} room */
function edit(block, room) {
  const { lines, added, removed, counted } = compare(readable(block.old), readable(block.new), Number(block.line ?? 1));
  const table = /** @type {HTMLTableElement} */ (make("table", "code"));
  for (const { kind, text, old, now } of lines.slice(0, room)) {
    const row = make("tr");
    row.dataset.k = kind;
    const numbers = [old, now].map((number) => make("td", "ln", String(number ?? "")));
    row.append(...numbers, make("td", "sg", { add: "+", del: "−", "": "" }[kind]), make("td", "tx", text));
    table.append(row);
  }
  const holder = make("div", "edit");
  holder.tabIndex = 0;
  holder.append(table);
  const hidden = lines.length - table.rows.length;
  if (hidden > 0) holder.append(make("p", "note", `${hidden} more lines are not shown here; the diff has them`));
  const counts = [];
  if (counted && added) counts.push(make("span", "add", `+${added}`));
  if (counted && removed) counts.push(make("span", "del", `−${removed}`));
  return { parts: [make("p", "note mono", readable(block.path)), holder], counts, rows: table.rows.length };
}

const TOOL_SIGNS = {
  pending: ["pending", "idle"],
  in_progress: ["run", "run"],
  completed: ["ok", "ok"],
  failed: ["bad", "bad"],
};

/** How each kind of event is shown. @type {Record<string, (into: Transcript, data: Record<string, any>, event: Event) => unknown>} */
const KINDS = {
  "session.message": (into, data, event) => into.grow(`m${data.id}`, data, () => into.said(event, data)),
  "session.thought": (into, data) => into.grow(`t${data.id}`, data, () => into.folded("Thought")),
  "session.prompt": (into, data) => into.prompt(data),
  "session.plan": (into, data) => into.plan(data),
  "session.tool": (into, data, event) => into.tool(event, data),
  "session.note": (into, data) => into.mark(readable(data.text)),
  output: (into, data) => into.stream(data),
  "output.truncated": (into, data) => into.mark(`${data.dropped_bytes} bytes of output were left out`, "bad"),
  "attempt.state": (into, data, event) => PASSING.has(data.state) || into.mark(into.stateWords(event, data), data.failure ? "bad" : ""),
  "request.opened": (into, data) => into.mark(`asks: ${readable(data.title)}`, "ask"),
  "request.closed": (into, data) => into.mark(`question ${data.state}${data.actor ? ` by ${readable(data.actor)}` : ""}`),
  "artefact.stored": (into, data) => into.mark(`artefact ${readable(data.name)} stored`),
  "artefact.refused": (into, data) => into.mark(`artefact ${readable(data.name)} refused: ${readable(data.reason)}`, "bad"),
};

export class Transcript {
  /** @param {HTMLElement} root @param {string} node @param {AbortSignal} signal ends its listening to the page */
  constructor(root, node, signal) {
    this.root = root;
    this.node = node;
    /** @type {Map<string, HTMLElement>} */
    this.texts = new Map();
    /** @type {WeakMap<HTMLElement, {length: number, held: Map<string, string>}>} of the pieces that still grow */
    this.growing = new WeakMap();
    /** @type {WeakMap<HTMLElement, Prose>} what was written by an agent or a person, not by a program */
    this.proses = new WeakMap();
    /** @type {Map<string, {row: HTMLElement, data: Record<string, any>, at: string}>} */
    this.tools = new Map();
    /** @type {HTMLElement | null} */
    this.group = null;
    /** @type {HTMLElement | null} */
    this.output = null;
    /** @type {Set<HTMLElement>} outputs that have grown since the reader was last brought to their end */
    this.grown = new Set();
    this.notice = make("p", "turn-mark");
    this.count = 0; // entries so far
    this.calls = 0; // tool calls that are shown
    this.dropped = 0;
    this.following = true;
    root.addEventListener("scroll", () => this.setFollowing(root.scrollHeight - root.scrollTop - root.clientHeight < 40), { signal });
    document.getElementById("follow")?.addEventListener("click", () => {
      this.setFollowing(!this.following);
      this.toEnd();
    }, { signal });
    const show = document.getElementById("show");
    if (show instanceof HTMLSelectElement) {
      root.dataset.show = show.value;
      show.addEventListener("change", () => {
        root.dataset.show = show.value;
        this.toEnd();
      }, { signal });
    }
  }

  /** @param {boolean} on */
  setFollowing(on) {
    this.following = on;
    document.getElementById("follow")?.setAttribute("aria-pressed", String(on));
  }

  toEnd() {
    if (!this.following) return;
    this.root.scrollTop = this.root.scrollHeight;
    for (const output of this.grown) output.scrollTop = output.scrollHeight;
    this.grown.clear();
  }

  clear() {
    this.root.replaceChildren();
    this.texts.clear();
    this.tools.clear();
    this.grown.clear();
    this.group = this.output = null;
    this.count = this.calls = this.dropped = 0;
  }

  /** @param {Event[]} events */
  add(events) {
    for (const event of events) this.one(event);
    this.trim();
    const count = document.getElementById("session-count");
    if (count) count.textContent = this.count === 1 ? "1 entry" : `${this.count} entries`;
    this.toEnd();
  }

  /** @param {Event} event */
  one(event) {
    KINDS[event.kind]?.(this, event.data ?? {}, event);
  }

  /** @param {Event} event @param {Record<string, any>} data */
  stateWords(event, data) {
    const base = data.base_commit ? `, from ${String(data.base_commit).slice(0, 7)}` : "";
    const why = data.failure ? `: ${readable(data.failure.code)}, ${readable(data.failure.message)}` : "";
    return `attempt ${readable(event.attempt)} ${readable(data.state).replace("_", " ")}${base}${why} · ${clock(event.at)}`;
  }

  /** @param {HTMLElement} element */
  put(element) {
    this.root.append(element);
    this.count += 1;
    return element;
  }

  /** @param {string} words @param {string} [tone] */
  mark(words, tone = "") {
    this.group = this.output = null;
    const line = make("p", "turn-mark");
    if (tone) line.dataset.tone = tone;
    line.append(make("span", "", words));
    this.put(line);
  }

  /** Append to the piece with this id, or begin it. @param {string} key @param {Record<string, any>} data @param {() => HTMLElement} begin */
  grow(key, data, begin) {
    let place = this.texts.get(key);
    if (!place) {
      this.group = this.output = null;
      place = begin();
      this.texts.set(key, place);
    }
    this.append(place, data.text);
  }

  /** Add a chunk of one channel to a piece; beyond TEXT_SHOWN its beginning goes. @param {HTMLElement} place @param {unknown} text @param {string} [channel] */
  append(place, text, channel = "") {
    const known = this.growing.get(place) ?? { length: 0, held: new Map() };
    this.growing.set(place, known);
    const raw = (known.held.get(channel) ?? "") + String(text ?? "");
    const held = UNFINISHED.exec(raw)?.[0] ?? "";
    known.held.set(channel, held);
    const chunk = readable(raw.slice(0, raw.length - held.length)).slice(-TEXT_SHOWN);
    if (!chunk) return;
    const prose = this.proses.get(place);
    if (prose) return prose.add(chunk);
    place.append(chunk);
    known.length += chunk.length;
    while (known.length > TEXT_SHOWN) known.length -= this.cut(place);
  }

  /** Take the oldest chunk out of a piece and say that something is missing. Gives its length. @param {HTMLElement} place */
  cut(place) {
    if (!(place.firstChild instanceof HTMLElement)) place.prepend(make("span", "note", "… what came before is not shown …\n"));
    const oldest = place.childNodes[1];
    oldest.remove();
    return oldest.textContent?.length ?? 0;
  }

  /** @param {Event} event @param {Record<string, any>} data */
  said(event, data) {
    const piece = make("div", data.role === "user" ? "said is-member" : "said");
    const who = make("p", "who");
    who.append(make("b", "", data.role === "user" ? "you" : this.node), make("time", "", clock(event.at)));
    const text = this.prose();
    piece.append(who, text);
    this.put(piece);
    return text;
  }

  prose() {
    const place = make("div", "prose");
    this.proses.set(place, new Prose(place, TEXT_SHOWN));
    return place;
  }

  /** A line that opens to show words. @param {string} name */
  folded(name) {
    const piece = make("details", "disc thought");
    const text = this.prose();
    piece.append(make("summary", "", name), text);
    this.put(piece);
    return text;
  }

  /** @param {Record<string, any>} data */
  prompt(data) {
    this.group = this.output = null;
    this.append(this.folded("Prompt"), data.text);
  }

  /** @param {Record<string, any>} data */
  plan(data) {
    const [panel, list, count] = ["plan", "plan-list", "plan-count"].map((id) => document.getElementById(id));
    if (!panel || !list || !count || !Array.isArray(data.entries)) return;
    const done = data.entries.filter((entry) => entry.status === "completed").length;
    count.textContent = `${done} of ${data.entries.length}`;
    list.replaceChildren(
      ...data.entries.map((entry) => {
        const [name, tone] = TOOL_SIGNS[/** @type {keyof typeof TOOL_SIGNS} */ (entry.status)] ?? ["wait", "idle"];
        const item = make("li");
        item.dataset.tone = tone;
        item.append(glyph(name === "pending" ? "wait" : name), readable(entry.content));
        return item;
      }),
    );
    panel.hidden = false;
  }

  /** @param {Event} event @param {Record<string, any>} patch */
  tool(event, patch) {
    const known = this.tools.get(String(patch.id));
    const entry = known ?? { row: make("details", "disc tool"), data: {}, at: event.at };
    Object.assign(entry.data, Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== null && value !== undefined)));
    if (!known) {
      this.tools.set(String(patch.id), entry);
      this.calls += 1;
      this.toolGroup().querySelector(".tools-list")?.append(entry.row);
    }
    this.drawTool(entry, event.at);
    const group = entry.row.closest("details.tools");
    if (group instanceof HTMLElement) this.nameGroup(group);
  }

  toolGroup() {
    if (this.group && (this.group.lastElementChild?.childElementCount ?? 0) < CALLS_GROUPED) return this.group;
    this.group?.removeAttribute("open"); // a full one; its failures stay counted in its summary
    this.output = null;
    const group = make("details", "disc tools");
    group.setAttribute("open", "");
    group.append(make("summary"), make("div", "tools-list"));
    this.group = this.put(group);
    return group;
  }

  /** @param {HTMLElement} group */
  nameGroup(group) {
    const rows = /** @type {HTMLElement[]} */ ([...group.querySelectorAll("details.tool")]);
    const failed = rows.filter((row) => row.dataset.tone === "bad").length;
    group.dataset.tone = failed ? "bad" : "";
    const summary = group.querySelector("summary");
    if (!summary) return;
    summary.replaceChildren(make("b", "", rows.length === 1 ? "1 tool call" : `${rows.length} tool calls`));
    if (!failed) return;
    const state = make("span", "state small push");
    state.dataset.tone = "bad";
    state.append(glyph("bad"), `${failed} failed`);
    summary.append(state);
  }

  /** @param {{row: HTMLElement, data: Record<string, any>, at: string}} entry @param {string} at */
  drawTool(entry, at) {
    const { row, data } = entry;
    const [name, tone] = TOOL_SIGNS[/** @type {keyof typeof TOOL_SIGNS} */ (data.status)] ?? ["run", "run"];
    row.dataset.tone = tone;
    const summary = make("summary");
    const result = make("span", "res");
    const blocks = Array.isArray(data.content) ? data.content : data.content ? [data.content] : [];
    let room = ROWS_SHOWN;
    const shown = blocks.map((block) => {
      const drawn = this.content(block, room);
      room -= drawn.rows;
      return drawn;
    });
    for (const each of shown) result.append(...each.counts);
    if (data.exit_code !== undefined) result.append(`exit ${data.exit_code}`);
    result.append(glyph(name), make("span", "sr", String(data.status ?? "")));
    const ended = data.status === "completed" || data.status === "failed";
    const time = ended ? took((Date.parse(at) - Date.parse(entry.at)) / 1000) : "";
    summary.append(make("span", "verb", readable(data.kind ?? "tool")), make("span", "what", readable(data.title)), result, make("span", "t", time));
    const wasOpen = row.hasAttribute("open") || data.status === "failed";
    const hadFocus = row.firstElementChild !== null && row.firstElementChild === document.activeElement;
    row.replaceChildren(summary, ...shown.flatMap((each) => each.parts));
    row.toggleAttribute("open", wasOpen);
    if (hadFocus) summary.focus({ preventScroll: true });
  }

  /** Give what a piece of a call's content shows, and what it adds to the call's line. @param {any} block @param {number} room rows */
  content(block, room) {
    if (block?.type === "diff") return edit(block, room);
    const text = typeof block === "string" ? block : block?.text ?? block?.content?.text ?? JSON.stringify(block);
    return { parts: [make("pre", "out", readable(text).slice(0, TEXT_SHOWN))], counts: [], rows: 0 };
  }

  /** @param {Record<string, any>} data */
  stream(data) {
    if (!this.output) {
      this.group = null;
      const holder = make("div", "stream-out");
      this.output = make("pre", "out");
      this.output.tabIndex = 0;
      holder.append(this.output);
      this.put(holder);
    }
    const channel = String(data.stream ?? "");
    this.grown.add(this.output);
    if (data.text !== undefined) return this.append(this.output, data.text, channel);
    this.append(this.output, `${data.head ?? ""}\n… ${data.length} bytes, the whole output can be downloaded …\n${data.tail ?? ""}`, channel);
  }

  /** Let the oldest entries go when there are too many of them, or of tool calls inside them. */
  trim() {
    let gone = 0;
    while (this.root.childElementCount > ITEMS_SHOWN || this.calls > ITEMS_SHOWN) {
      const oldest = this.notice.isConnected ? this.notice.nextElementSibling : this.root.firstElementChild;
      if (!oldest || oldest === this.root.lastElementChild) break;
      this.calls -= oldest.querySelectorAll("details.tool").length;
      oldest.remove();
      gone += 1;
    }
    if (!gone) return;
    this.dropped += gone;
    this.notice.textContent = `${this.dropped} earlier entries are not shown`;
    if (!this.notice.isConnected) this.root.prepend(this.notice);
    for (const [id, text] of this.texts) if (!text.isConnected) this.texts.delete(id);
    for (const [id, { row }] of this.tools) if (!row.isConnected) this.tools.delete(id);
  }
}
