// What the type checker cannot see. No plug-ins: the rules are eslint's own.
const browser = [
  "AbortController", "AbortSignal", "CSS", "DOMParser", "Document", "Element", "HTMLAnchorElement", "HTMLButtonElement",
  "HTMLDialogElement", "HTMLElement", "HTMLInputElement", "HTMLSelectElement", "HTMLTextAreaElement", "IntersectionObserver", "Node",
  "NodeListOf", "URL", "URLSearchParams", "WebSocket", "addEventListener", "clearTimeout", "console", "document", "fetch", "history",
  "localStorage", "location", "matchMedia", "performance", "setInterval", "setTimeout",
];
const node = ["WebSocket", "process", "setTimeout"];
const known = (names) => Object.fromEntries(names.map((name) => [name, "readonly"]));

const rules = {
  "array-callback-return": "error",
  "consistent-this": "error",
  "curly": ["error", "multi-line"],
  "default-case-last": "error",
  "eqeqeq": "error",
  "no-alert": "error",
  "no-constant-binary-expression": "error",
  "no-constructor-return": "error",
  "no-dupe-else-if": "error",
  "no-duplicate-imports": "error",
  "no-else-return": "error",
  "no-empty": "error",
  "no-eval": "error",
  "no-fallthrough": "error",
  "no-implicit-coercion": "error",
  "no-implied-eval": "error",
  "no-loss-of-precision": "error",
  "no-new-func": "error",
  "no-param-reassign": "error",
  "no-promise-executor-return": "error",
  "no-redeclare": "error",
  "no-self-compare": "error",
  "no-shadow": "error",
  "no-template-curly-in-string": "error",
  "no-throw-literal": "error",
  "no-undef": "error",
  "no-unmodified-loop-condition": "error",
  "no-unreachable": "error",
  "no-unsafe-optional-chaining": "error",
  "no-unused-expressions": "error",
  "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
  "no-use-before-define": ["error", { functions: false, classes: false }],
  "no-useless-assignment": "error",
  "no-useless-escape": "error",
  "no-useless-return": "error",
  "no-var": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
  "prefer-template": "error",
  "valid-typeof": "error",
  "max-depth": ["error", 3],
  "max-lines": ["error", 400],
  "max-lines-per-function": ["error", { max: 50, skipComments: true }],
  "complexity": ["error", 15],
};
const linterOptions = { reportUnusedDisableDirectives: "error" };

export default [
  { files: ["static/js/*.js"], linterOptions, rules, languageOptions: { globals: known(browser) } },
  { files: ["static/js/theme.js"], languageOptions: { sourceType: "script" } },
  { files: ["tests/console/*.mjs"], linterOptions, rules: { ...rules, "no-promise-executor-return": "off" }, languageOptions: { globals: known(node) } },
];
