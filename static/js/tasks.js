// The task list: rows are read again while the page is looked at, and never move under the pointer.
// @ts-check

const state = document.getElementById("list-state");
const EVERY = 5000; // milliseconds

/** @param {Element} row */
const idOf = (row) => row.getAttribute("data-task") ?? "";

/** @param {Element} shown @param {Element | null | undefined} fresh */
function patch(shown, fresh) {
  if (!fresh || shown.innerHTML === fresh.innerHTML || shown.matches(":hover, :focus-within")) return;
  shown.innerHTML = fresh.innerHTML; // our own template: everything foreign in it is escaped there
}

/** Bring what is shown up to date; give the number of tasks that are not, or stand under another heading. @param {Document} fresh */
function patchRows(fresh) {
  const shown = new Map([...document.querySelectorAll("tr[data-task]")].map((row) => [idOf(row), row]));
  let unseen = 0;
  for (const row of fresh.querySelectorAll("tr[data-task]")) {
    const old = shown.get(idOf(row));
    if (old) patch(old, row);
    if (!old || old.getAttribute("data-rank") !== row.getAttribute("data-rank")) unseen += 1;
  }
  return unseen;
}

/** Show what a task asks, once its row is looked at; only its supervisor knows. */
const looking = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    looking.unobserve(target);
    void showAsks(target);
  }
});

/** @param {Element} row */
async function showAsks(row) {
  const place = document.querySelector(`tr[data-asks="${CSS.escape(idOf(row))}"]`);
  const link = row.querySelector("a.task-title");
  if (!(place instanceof HTMLElement) || !(link instanceof HTMLAnchorElement) || !place.firstElementChild) return;
  try {
    const answer = await fetch(link.href, { headers: { "X-Fragment": "asks" } });
    if (!answer.ok || answer.redirected) return;
    place.firstElementChild.innerHTML = await answer.text(); // our own template: everything foreign in it is escaped there
    place.hidden = place.querySelector(".ask-line") === null;
  } catch {
    // the badge says that something is asked; the task's page says what
  }
}

for (const place of document.querySelectorAll("tr[data-asks]")) {
  if (place.previousElementSibling) looking.observe(place.previousElementSibling);
}

/** Take away what is not asked any more, and ask again where the number of questions is another. @param {Document} fresh */
function patchAsks(fresh) {
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("tr[data-asks]"))) {
    const now = fresh.querySelector(`tr[data-asks="${CSS.escape(place.dataset.asks ?? "")}"]`);
    const count = now?.getAttribute("data-count") ?? "";
    if (count === place.dataset.count) continue;
    place.dataset.count = count;
    if (now && place.previousElementSibling) void showAsks(place.previousElementSibling);
    else place.hidden = true;
  }
}

/** @param {number} count */
function say(count) {
  if (!state) return;
  state.textContent = "";
  if (count === 0) return;
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = count === 1 ? "1 update" : `${count} updates`;
  state.append(link);
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const unseen = patchRows(fresh);
    patchAsks(fresh);
    for (const id of ["views", "bell"]) {
      const part = document.getElementById(id);
      if (part) patch(part, fresh.getElementById(id));
    }
    document.title = fresh.title;
    say(unseen);
  } catch {
    if (state) state.textContent = "not connected; trying again";
  }
}

setInterval(refresh, EVERY);
document.addEventListener("visibilitychange", refresh);

document.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLElement && event.target.closest("input, textarea, select")) return;
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("f-q")?.focus();
  }
  if (event.key === "j" || event.key === "k") {
    const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("a.task-title")]);
    const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))]?.focus();
  }
});
