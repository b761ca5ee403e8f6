// What an edit changed, line by line, for the small passages that agents send.
// @ts-check

/** @typedef {{kind: "" | "add" | "del", text: string, old: number | null, now: number | null}} Line ``old``, ``now``: its number there */

const COMPARED_MOST = 250_000; // pairs of lines; above it everything old goes and everything new comes
const SHORTENED = /… \d+ left out …/; // by the sandbox: what is missing cannot be counted

/** Compare two passages that begin at the line ``first``. ``counted`` is false where a part of them is missing. @param {string} before @param {string} after @param {number} first */
export function compare(before, after, first) {
  const [old, now] = [split(before), split(after)];
  const kinds = old.length * now.length > COMPARED_MOST ? replaced(old, now) : common(old, now);
  const lines = numbered(kinds, old, now, first);
  const count = (/** @type {string} */ kind) => lines.filter((line) => line.kind === kind).length;
  return { lines, added: count("add"), removed: count("del"), counted: !SHORTENED.test(before) && !SHORTENED.test(after) };
}

/** @param {string} text */
function split(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop(); // a line end ends a line and begins none
  return lines;
}

/** Put texts and numbers to kinds. @param {Line["kind"][]} kinds @param {string[]} old @param {string[]} now @param {number} first @returns {Line[]} */
function numbered(kinds, old, now, first) {
  let [i, j] = [0, 0];
  return kinds.map((kind) => {
    const [inOld, inNow] = [kind !== "add", kind !== "del"];
    const line = { kind, text: inNow ? now[j] : old[i], old: inOld ? first + i : null, now: inNow ? first + j : null };
    [i, j] = [i + Number(inOld), j + Number(inNow)];
    return line;
  });
}

/** @param {string[]} old @param {string[]} now @returns {Line["kind"][]} */
function replaced(old, now) {
  return [...old.map(() => /** @type {const} */ ("del")), ...now.map(() => /** @type {const} */ ("add"))];
}

/** Keep the longest common subsequence (the textbook's table, filled from the end). @param {string[]} old @param {string[]} now @returns {Line["kind"][]} */
function common(old, now) {
  const width = now.length + 1;
  const longest = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      longest[at] = old[i] === now[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  /** @type {Line["kind"][]} */
  const kinds = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    const at = i * width + j;
    const same = i < old.length && j < now.length && old[i] === now[j];
    const goes = !same && (j === now.length || (i < old.length && longest[at + width] >= longest[at + 1]));
    kinds.push(same ? "" : goes ? "del" : "add");
    [i, j] = [i + Number(same || goes), j + Number(!goes)];
  }
  return kinds;
}
