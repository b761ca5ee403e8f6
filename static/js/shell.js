// What every page has: the theme switch, menus that close, dialogs, times that tick. Every page works without it.
// @ts-check

const root = document.documentElement;
const THEMES = ["system", "light", "dark"];

/** @param {string} name */
function setTheme(name) {
  if (name === "system") delete root.dataset.theme;
  else root.dataset.theme = name;
  try {
    if (name === "system") localStorage.removeItem("theme");
    else localStorage.setItem("theme", name); // the administration reads the same two words
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
  closest(event.target, "[data-dismisses]")?.closest("li")?.remove();
});

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (event.target instanceof Node && !menu.contains(event.target)) menu.removeAttribute("open");
  }
  const opener = closest(event.target, "[data-opens]");
  if (opener instanceof HTMLElement) {
    opener.closest("details.menu")?.removeAttribute("open");
    const dialog = document.getElementById(opener.dataset.opens ?? "");
    if (dialog instanceof HTMLDialogElement) {
      event.preventDefault(); // without a script the link shows it
      dialog.showModal();
      for (const field of dialog.querySelectorAll("input[data-confirms]")) confirm(field);
    }
  }
  const open = closest(event.target, "[data-closes]")?.closest("dialog");
  if (open?.open) {
    event.preventDefault();
    open.close();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.removeAttribute("open");
  }
});

document.addEventListener("input", (event) => confirm(closest(event.target, "[data-confirms]")));

/** What cannot be undone waits for the typed word. @param {Element | null | undefined} field */
function confirm(field) {
  if (!(field instanceof HTMLInputElement)) return;
  const button = document.getElementById(field.dataset.confirms ?? "");
  if (button instanceof HTMLButtonElement) button.disabled = field.value !== field.dataset.word;
}

/** @param {number} seconds */
export function inWords(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [Math.floor(whole / 60), Math.floor(whole / 3600), Math.floor(whole / 86400)];
  if (hours === 0) return `${minutes}:${String(whole % 60).padStart(2, "0")}`;
  if (days === 0) return `${hours} h ${String(minutes % 60).padStart(2, "0")}`;
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** How long something took. @param {number} seconds */
export function took(seconds) {
  if (seconds < 0.05) return "<0.1 s";
  return seconds < 9.95 ? `${seconds.toFixed(1)} s` : inWords(seconds);
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

// A success needs no dismissal; a refusal stays until it was read.
setTimeout(() => {
  for (const done of document.querySelectorAll(".messages li[data-tone=ok]:not(:hover, :focus-within)")) done.remove();
}, 8000);
