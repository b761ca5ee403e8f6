// The task list: rows are read again while the page is looked at, and never move under the pointer.
// @ts-check

const rows = document.getElementById("rows");
const state = document.getElementById("list-state");
const EVERY = 5000; // milliseconds

/** @param {Element} row */
const idOf = (row) => row.getAttribute("data-task") ?? "";

/** @param {Element} fresh */
function patch(fresh) {
  const shown = new Map([...document.querySelectorAll("tr[data-task]")].map((row) => [idOf(row), row]));
  let unseen = 0;
  for (const row of fresh.querySelectorAll("tr[data-task]")) {
    const old = shown.get(idOf(row));
    if (!old) unseen += 1;
    else if (!old.matches(":hover, :focus-within") && old.innerHTML !== row.innerHTML) old.innerHTML = row.innerHTML;
  }
  return unseen;
}

/** @param {number} count */
function say(count) {
  if (!state) return;
  state.textContent = "";
  if (count === 0) return;
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = count === 1 ? "1 new task" : `${count} new tasks`;
  state.append(link);
}

async function refresh() {
  if (document.hidden || !rows) return;
  try {
    const answer = await fetch(location.href, { headers: { "X-Fragment": "rows" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    say(patch(page.body));
  } catch {
    if (state) state.textContent = "not connected; trying again";
  }
}

setInterval(refresh, EVERY);

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
