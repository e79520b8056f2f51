// Draws code with highlighting. A library cuts it into tokens; it is loaded when it is first needed.
import { useEffect, useReducer } from "preact/hooks";
import { html } from "./html.js";
import { CopyIcon } from "./copy.js";
import { DiffText, isDiff } from "./diff.js";

const MOST = 20_000; // characters; longer code is shown as it is
const MOST_TOKENS = 2_500;
const NAMES = {
  bash: "bash sh shell zsh console shell-session",
  c: "c h cpp c++ hpp cc cxx csharp cs",
  css: "css scss less",
  docker: "docker dockerfile",
  go: "go golang",
  html: "html htm svg vue",
  http: "http",
  ini: "ini cfg conf properties",
  java: "java kt kotlin scala",
  js: "js javascript jsx mjs cjs node",
  json: "json jsonc json5 jsonl ndjson",
  lua: "lua",
  make: "make makefile",
  md: "md markdown",
  pl: "pl perl",
  py: "py python python3 pyi pycon",
  rs: "rs rust",
  sql: "sql postgresql mysql sqlite psql",
  toml: "toml",
  ts: "ts typescript tsx",
  xml: "xml xsl rss",
  yaml: "yaml yml",
};
const LANGUAGES = new Map(Object.entries(NAMES).flatMap(([name, words]) => words.split(" ").map((word) => [word, name])));

let library = null; // languages.js; false while it is loaded
const waiting = new Set();

async function load() {
  library = false;
  try {
    library = await import("./languages.js");
    for (const draw of waiting) draw();
  } catch {
    library = null; // the code is shown without colours
  }
}

/** Return the language of a word after a fence, or of a file name; null if it is unknown. */
export function languageOf(word) {
  const name = /^[\w+#-]+/.exec(word ?? "")?.[0].toLowerCase();
  return LANGUAGES.get(name) ?? null;
}

export const languageOfFile = (path) => languageOf(/\.(\w+)$/.exec(path)?.[1] ?? /(\w+)$/.exec(path)?.[1]);

/** Return `[text, type]` pairs; null while the library is loaded. */
function tokensOf(text, name) {
  if (!library) {
    if (library === null) load();
    return null;
  }
  const found = [];
  const run = library.tokenizer(text, library.RULES.get(name), (piece, type = null) => {
    if (!piece) return;
    const last = found.at(-1);
    if (last && (last[1] === type || !piece.trim())) last[0] += piece;
    else found.push([piece, type]);
  });
  for (let step = run.next(); !step.done; ) step = run.next(library.RULES.get(step.value));
  return found.length > MOST_TOKENS ? null : found;
}

function coloured(text, name) {
  try {
    const tokens = tokensOf(text, name);
    // The library must not lose text.
    if (tokens && tokens.reduce((sum, [piece]) => sum + piece.length, 0) === text.length) {
      return tokens.map(([piece, type], index) => (type === null ? piece : html`<span key=${index} class=${`s-${type}`}>${piece}</span>`));
    }
  } catch {
    // The rules do not fit the text: it is shown as it is.
  }
  return text;
}

/** Draws code. `lang` is a word such as "python"; unknown ones are not coloured. A block has a button that copies it. */
export function Code({ text, lang, isBlock = false }) {
  const [, draw] = useReducer((number) => number + 1, 0);
  const isChange = lang === "diff" || lang === "patch" || isDiff(text);
  const name = text.length > MOST || isChange ? null : languageOf(lang);
  useEffect(() => {
    if (name === null) return undefined;
    waiting.add(draw);
    return () => waiting.delete(draw);
  }, [name]);
  const content = isChange ? html`<${DiffText} text=${text} />` : name === null ? text : coloured(text, name);
  if (!isBlock) return content;
  const label = lang ? `code, ${lang.slice(0, 40)}` : "code";
  return html`<div class="copied">
    ${isChange ? content : html`<pre class="codeblock" tabindex="0" aria-label=${label}><code>${content}</code></pre>`}
    <${CopyIcon} text=${() => text} label="Copy the code" />
  </div>`;
}
