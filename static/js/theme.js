// Before the first paint: the theme that this browser remembers. A classic script, so that nothing flashes.
(() => {
  document.documentElement.dataset.script = "";
  try {
    const name = localStorage.getItem("theme");
    if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
  } catch {
    // a private window keeps no choice: the system's theme it is
  }
})();
