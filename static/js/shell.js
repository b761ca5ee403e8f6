// What every page has: the theme switch, menus that close, dialogs, times that tick. Every page works without it.
// @ts-check

const root = document.documentElement;
const THEMES = ["system", "light", "dark"];

/** @param {string} name */
function setTheme(name) {
  if (name === "system") delete root.dataset.theme;
  else root.dataset.theme = name;
  try {
    localStorage.setItem("theme", name);
  } catch {
    // a private window keeps no choice
  }
  nameTheme();
}

function nameTheme() {
  for (const button of document.querySelectorAll("[data-theme-toggle]")) {
    button.setAttribute("aria-label", `Theme: ${root.dataset.theme ?? "system"}`);
  }
}

/** @param {EventTarget | null} target @param {string} selector */
const closest = (target, selector) => (target instanceof Element ? target.closest(selector) : null);

nameTheme();
document.addEventListener("click", (event) => {
  if (closest(event.target, "[data-theme-toggle]")) {
    setTheme(THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length]);
  }
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (event.target instanceof Node && !menu.contains(event.target)) menu.removeAttribute("open");
  }
  const opener = closest(event.target, "[data-opens]");
  if (opener instanceof HTMLElement) {
    opener.closest("details.menu")?.removeAttribute("open");
    const dialog = document.getElementById(opener.dataset.opens ?? "");
    if (dialog instanceof HTMLDialogElement) dialog.showModal();
  }
  if (closest(event.target, "[data-closes]")) /** @type {HTMLDialogElement | null} */ (closest(event.target, "dialog"))?.close();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) menu.removeAttribute("open");
});

document.addEventListener("input", (event) => {
  const field = closest(event.target, "[data-confirms]");
  if (!(field instanceof HTMLInputElement)) return;
  const button = document.getElementById(field.dataset.confirms ?? "");
  if (button instanceof HTMLButtonElement) button.disabled = field.value !== field.dataset.word;
});

/** @param {number} seconds */
export function inWords(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [Math.floor(whole / 60), Math.floor(whole / 3600), Math.floor(whole / 86400)];
  if (hours === 0) return `${minutes}:${String(whole % 60).padStart(2, "0")}`;
  if (days === 0) return `${hours} h ${String(minutes % 60).padStart(2, "0")}`;
  return `${days} d ${hours % 24} h`;
}

const served = Date.parse(document.querySelector("meta[name=server-time]")?.getAttribute("content") ?? "");
const offset = Number.isNaN(served) ? 0 : served - Date.now();

/** The server's clock, as far as this page knows it. In milliseconds. */
export const serverNow = () => Date.now() + offset;

function tick() {
  for (const each of document.querySelectorAll("[data-since]")) {
    const since = Date.parse(each.getAttribute("data-since") ?? "");
    if (!Number.isNaN(since)) each.textContent = inWords((serverNow() - since) / 1000);
  }
  for (const each of document.querySelectorAll("[data-until]")) {
    const until = Date.parse(each.getAttribute("data-until") ?? "");
    if (Number.isNaN(until)) continue;
    const left = (until - serverNow()) / 1000;
    each.textContent = left > 0 ? inWords(left) : "0:00";
    const holder = each.closest("[data-countdown]");
    if (holder instanceof HTMLElement) holder.dataset.tone = left < 3600 ? "bad" : left < 86400 ? "ask" : "idle";
  }
}
setInterval(tick, 1000);
tick();
