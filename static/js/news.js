// What happens on a page, for those who hear it.
// @ts-check

/** @type {string[]} */
let news = [];
let lastNews = -Infinity;

/** Tell a screen reader, at most once in five seconds. @param {string} what */
export function announce(what) {
  news.push(what);
  if (news.length > 1) return;
  setTimeout(() => {
    const place = document.getElementById("news");
    if (place) place.textContent = news.length > 4 ? `${news.length} changes, the last: ${news.at(-1)}` : news.join(", ");
    news = [];
    lastNews = performance.now();
  }, Math.max(100, 5000 - (performance.now() - lastNews)));
}
