// Parts of a page that the server draws again; what a person is at stays.
// @ts-check

/** @type {Map<string, ReturnType<typeof setTimeout>>} */
const planned = new Map();

/** Fetch parts of the page again, soon and each of them once. @param {string[]} names */
export function redraw(...names) {
  for (const name of names) {
    if (planned.has(name)) continue;
    planned.set(name, setTimeout(() => {
      planned.delete(name);
      void fetchPart(name, location.href);
    }, 150));
  }
}

/** @type {Map<string, number>} the newest request for each part: an answer that was overtaken is thrown away */
const turns = new Map();

/** Fetch one part of the page. Gives null when a later request has overtaken this one, false when it failed. @param {string} name @param {string} url @returns {Promise<boolean | null>} */
export async function fetchPart(name, url) {
  const place = document.querySelector(`[data-fragment="${name}"]`);
  if (!(place instanceof HTMLElement)) return false;
  const turn = (turns.get(name) ?? 0) + 1;
  turns.set(name, turn);
  try {
    const answer = await fetch(url, { headers: { "X-Fragment": name } });
    const text = await answer.text();
    if (turns.get(name) !== turn) return null;
    if (!answer.ok || answer.redirected) return false;
    if (name === "questions") fillQuestions(place, text);
    else fill(place, text);
    return true;
  } catch {
    return turns.get(name) === turn ? false : null; // the connection's state is shown by the stream
  }
}

/** Put a part's markup (our own template: everything foreign in it is escaped there) and keep what a person is at: the focus, an open menu. @param {HTMLElement} place @param {string} text */
export function fill(place, text) {
  const fresh = document.createElement("template");
  fresh.innerHTML = text;
  const focused = place.contains(document.activeElement) ? nameOf(document.activeElement) : "";
  if (place.querySelector("details.menu[open]")) fresh.content.querySelector("details.menu")?.setAttribute("open", "");
  place.replaceChildren(fresh.content);
  if (focused && !place.contains(document.activeElement)) {
    const again = place.querySelector(focused);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
  }
}

/** A question does not change while it is open, and an answer may be half given: those that stay are not touched. @param {HTMLElement} place @param {string} text */
function fillQuestions(place, text) {
  const fresh = document.createElement("template");
  fresh.innerHTML = text;
  const idOf = (/** @type {Element} */ each) => each.getAttribute("data-request");
  const asked = new Map([...fresh.content.querySelectorAll("[data-request]")].map((each) => [idOf(each), each]));
  for (const shown of place.querySelectorAll("[data-request]")) if (!asked.delete(idOf(shown))) shown.remove();
  const earlier = place.querySelector(".answered");
  for (const each of asked.values()) place.insertBefore(each, earlier);
  const answered = fresh.content.querySelector(".answered");
  if (earlier?.outerHTML !== answered?.outerHTML) {
    if (earlier?.hasAttribute("open")) answered?.setAttribute("open", "");
    earlier?.remove();
    if (answered) place.append(answered);
  }
  const open = place.querySelectorAll("[data-request]").length;
  document.title = `${open ? `(${open}) ` : ""}${document.title.replace(/^\(\d+\) /, "")}`;
}

/** Say by which selector an element is found again after its part was drawn anew. @param {Element | null} element */
function nameOf(element) {
  if (!element) return "";
  if (element.id) return `#${CSS.escape(element.id)}`;
  for (const name of ["data-tab", "href", "data-opens", "value", "aria-label"]) {
    const value = element.getAttribute(name);
    if (value) return `${element.tagName.toLowerCase()}[${name}="${CSS.escape(value)}"]`;
  }
  return element.tagName.toLowerCase();
}
