// What agents write, read as the small part of Markdown that they use, while it arrives. Elements are made and text is
// set: nothing that a stranger wrote becomes markup.
// @ts-check

/** @typedef {{kind: string, element: HTMLElement, lines: string[], size: number, fence: string}} Block ``fence`` ends code */

const BLOCK_MOST = 8000; // characters; what is longer goes on in another block of its kind, so that drawing stays cheap
const DEPTH_MOST = 4;
const COLUMNS_MOST = 30; // what has more is no table that a person reads

// Each alternative ends at the next sign of its own, so that hostile text costs no more than its length.
const INLINE = /`([^`\n]+)`|\*\*(?=\S)([^*\n]*[^*\s])\*\*(?!\*)|(?<![\w*/.])\*(?=\S)([^*\n]*[^*\s])\*(?![\w*/.])|\[([^[\]\n]+)\]\((https?:\/\/[^\s()<>"'[\]]+)\)|(https?:\/\/[^\s()<>"'`*[\]]+)/gu;
const FENCE_END = /^ {0,3}(?:`{3,}|~{3,})[ \t]*$/;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*[\w+#.-]*[ \t]*$/;
const ITEM = /^([ \t]*)(?:[-*+]|(\d{1,9}[.)]))[ \t]+(.*)$/;
const ROW = /^[ \t]*\|(.*)\|[ \t]*$/;
const RULER = /^[\s|:-]+$/; // below a table's head

/** @param {string} name @param {string} [text] */
function make(name, text = "") {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  return element;
}

/** Give the nodes of a line's or paragraph's text. @param {string} text */
function inline(text) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let seen = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, code, strong, weak, words, target, bare] = found;
    nodes.push(text.slice(seen, found.index));
    seen = found.index + whole.length;
    if (code !== undefined) nodes.push(make("code", code));
    else if (strong !== undefined) nodes.push(make("strong", strong));
    else if (weak !== undefined) nodes.push(make("em", weak));
    else nodes.push(...link(whole, words ?? bare, target ?? bare));
  }
  nodes.push(text.slice(seen));
  return nodes;
}

/** Take away what ends the sentence and not the address. @param {string} address */
function withoutStops(address) {
  let end = address.length;
  while (end > 0 && ".,;:!?".includes(address[end - 1])) end -= 1;
  return address.slice(0, end);
}

/** A link says where it leads when its words do not. @param {string} whole @param {string} words @param {string} target */
function link(whole, words, target) {
  const bare = words === target;
  const address = bare ? withoutStops(target) : target;
  const url = URL.canParse(address) ? new URL(address) : null;
  if (!url || url.username || url.password) return [whole];
  const anchor = /** @type {HTMLAnchorElement} */ (make("a", bare ? address : words));
  anchor.href = url.href;
  anchor.rel = "noopener noreferrer nofollow";
  anchor.target = "_blank";
  return bare ? [anchor, target.slice(address.length)] : [anchor, ` (${url.host})`];
}

/** Say what a line begins or goes on with. @param {string} line @param {Block | null} open */
function kindOf(line, open) {
  if (/^\s*$/.test(line)) return "";
  if (FENCE.test(line)) return "code";
  if (/^#{1,6}[ \t]/.test(line)) return "head";
  if (/^[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*$/.test(line)) return "rule";
  if (ITEM.test(line)) return "list";
  if (ROW.test(line) && line.split("|").length <= COLUMNS_MOST + 2) return "table";
  if (line.startsWith(">")) return "quote";
  return open?.kind === "list" && /^[ \t]/.test(line) ? "list" : "text";
}

/** @type {Record<string, string>} */
const ELEMENTS = { code: "pre", head: "p", rule: "hr", list: "ul", table: "div", quote: "blockquote", text: "p" };

/** How the lines of each kind of block are drawn. @type {Record<string, (place: HTMLElement, lines: string[]) => void>} */
const DRAW = {
  code: (place, lines) => { place.textContent = lines.join("\n"); },
  head: (place, lines) => place.replaceChildren(make("strong", lines.join(" ").replace(/^#{1,6}[ \t]+/, ""))),
  rule: () => {},
  list: (place, lines) => place.replaceChildren(...items(lines)),
  table: (place, lines) => place.replaceChildren(table(lines)),
  quote: (place, lines) => place.replaceChildren(...inline(lines.map((line) => line.replace(/^>[ \t]?/, "")).join("\n"))),
  text: (place, lines) => place.replaceChildren(...inline(lines.join("\n"))),
};

/** @param {string[]} lines */
function items(lines) {
  /** @type {{depth: number, mark: string, text: string}[]} */
  const found = [];
  for (const line of lines) {
    const [, indent, mark, text] = ITEM.exec(line) ?? [];
    const last = found.at(-1);
    if (text !== undefined) found.push({ depth: Math.min(DEPTH_MOST, Math.floor(indent.replace(/\t/g, "    ").length / 2)), mark: mark ?? "•", text });
    else if (last) last.text += `\n${line.trim()}`;
  }
  return found.map(({ depth, mark, text }) => {
    const item = make("li");
    item.dataset.mark = mark;
    item.dataset.depth = String(depth);
    item.append(...inline(text));
    return item;
  });
}

/** @param {string[]} lines */
function table(lines) {
  const rows = lines.filter((line, at) => at !== 1 || !RULER.test(line)).map((line) => (ROW.exec(line)?.[1] ?? "").split("|"));
  const hasHead = lines.length > 1 && RULER.test(lines[1]);
  const drawn = make("table");
  for (const [at, cells] of rows.entries()) {
    const row = make("tr");
    for (const cell of cells) {
      const place = make(hasHead && at === 0 ? "th" : "td");
      place.append(...inline(cell.trim()));
      row.append(place);
    }
    drawn.append(row);
  }
  return drawn;
}

export class Prose {
  /** @param {HTMLElement} place @param {number} most characters that stay; of more, the end is shown */
  constructor(place, most) {
    this.place = place;
    this.most = most;
    this.rest = ""; // a line that has not ended
    /** @type {HTMLElement | null} what that line is drawn as until it has ended */
    this.draft = null;
    /** @type {Block | null} */
    this.open = null;
    /** @type {{element: HTMLElement, size: number}[]} */
    this.closed = [];
    this.size = 0;
    this.notice = make("p", "… what came before is not shown …");
    this.notice.className = "note";
  }

  /** Go on with the next chunk, wherever it was cut. @param {string} chunk */
  add(chunk) {
    this.draft?.remove();
    this.draft = null;
    const lines = (this.rest + chunk).split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.line(line);
    while (this.rest.length > BLOCK_MOST) {
      this.line(this.rest.slice(0, BLOCK_MOST));
      this.rest = this.rest.slice(BLOCK_MOST);
    }
    this.show();
    this.trim();
  }

  /** @param {string} line */
  line(line) {
    if (this.open?.fence) return line.trim().startsWith(this.open.fence) && FENCE_END.test(line) ? this.close() : this.keep(line);
    const kind = kindOf(line, this.open);
    if (!kind) return this.close();
    if (kind === "code") return this.begin("code", FENCE.exec(line)?.[1]);
    if (this.open?.kind !== kind || kind === "head" || kind === "rule") this.begin(kind);
    this.keep(line);
  }

  /** @param {string} line */
  keep(line) {
    if (!this.open) return;
    this.open.lines.push(line);
    this.open.size += line.length + 1;
    this.size += line.length + 1;
    if (this.open.size > BLOCK_MOST) this.begin(this.open.kind, this.open.fence);
  }

  /** @param {string} kind @param {string} [fence] what ends it, for code */
  begin(kind, fence = "") {
    this.close();
    const element = block(kind);
    this.place.append(element);
    this.open = { kind, element, lines: [], size: 0, fence };
  }

  close() {
    if (!this.open) return;
    DRAW[this.open.kind](this.open.element, this.open.lines);
    if (this.open.lines.length === 0) this.open.element.remove();
    else this.closed.push({ element: this.open.element, size: this.open.size });
    this.open = null;
  }

  /** Draw what is still being written: the open block, and the line that has not ended. */
  show() {
    const open = this.open;
    const rest = isEnding(this.rest, open?.fence ?? "") ? "" : this.rest;
    const kind = open?.fence ? "code" : kindOf(rest, open);
    const goesOn = open !== null && rest !== "" && open.kind === kind && kind !== "head";
    if (open) DRAW[open.kind](open.element, goesOn ? [...open.lines, rest] : open.lines);
    if (!rest || goesOn || !kind) return;
    this.draft = block(kind);
    if (kind !== "code") DRAW[kind](this.draft, [rest]);
    this.place.append(this.draft);
  }

  /** Let the oldest blocks go when there is too much. */
  trim() {
    while (this.size > this.most) {
      const oldest = this.closed.shift();
      if (!oldest) return;
      oldest.element.remove();
      this.size -= oldest.size;
      if (!this.notice.isConnected) this.place.prepend(this.notice);
    }
  }
}

/** Whether a line that has not ended is on its way to end this code. @param {string} rest @param {string} fence */
function isEnding(rest, fence) {
  const signs = rest.trim();
  return fence !== "" && signs !== "" && (fence.startsWith(signs) || (signs.startsWith(fence) && FENCE_END.test(rest)));
}

/** @param {string} kind */
function block(kind) {
  const element = make(ELEMENTS[kind]);
  element.className = kind === "code" ? "out" : kind === "rule" ? "" : `words is-${kind}`;
  if (kind === "code" || kind === "table") element.tabIndex = 0; // what scrolls is reached by the keyboard
  return element;
}
