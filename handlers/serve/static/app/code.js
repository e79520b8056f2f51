// Draws code with highlighting. A worker cuts it into tokens, one text after the other; it is started when it is first needed.
import { useEffect, useReducer, useRef } from "preact/hooks";
import { html } from "./html.js";
import { CopyIcon } from "./copy.js";
import { DiffText, isDiff } from "./diff.js";

const MOST = 20_000; // characters; longer code is shown as it is
const PATIENCE = 3_000; // milliseconds: a text that takes longer is shown as it is
const MOST_KEPT = 100; // texts
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

// What browsers with Trusted Types ask for: only this script may become a worker.
const SCRIPT = document.querySelector("meta[name=languages]").content;
const policy = globalThis.trustedTypes?.createPolicy("lanebus", { createScriptURL: () => SCRIPT });

const kept = new Map(); // `language text` → `[text, type]` pairs; null if it is shown as it is. The oldest is dropped
const waiting = new Map(); // `language text` → the functions that draw it
let worker = null;
let isReady = false;
let current = null; // what the worker cuts now
let timer = null;

function end() {
  worker?.terminate();
  worker = null;
  isReady = false;
}

function settle(tokens) {
  clearTimeout(timer);
  const key = current;
  current = null;
  kept.set(key, tokens);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  const draws = waiting.get(key) ?? [];
  waiting.delete(key);
  for (const draw of draws) draw();
  next();
}

function start() {
  const started = new Worker(policy ? policy.createScriptURL("") : SCRIPT, { type: "module" });
  worker = started;
  worker.onmessage = ({ data }) => {
    if (started !== worker) return; // it was ended while this was on its way
    if (data !== "ready") settle(data);
    else {
      isReady = true;
      next();
    }
  };
  worker.onerror = () => {
    end(); // it could not be loaded: what waits is shown without colours
    waiting.clear();
  };
}

function next() {
  if (current !== null || waiting.size === 0) return;
  if (worker === null) start();
  if (!isReady) return;
  current = waiting.keys().next().value;
  const [name] = current.split(" ", 1);
  timer = setTimeout(() => {
    end();
    settle(null);
  }, PATIENCE);
  worker.postMessage({ name, text: current.slice(name.length + 1) });
}

function ask(key, draw) {
  if (kept.has(key)) return undefined;
  if (!waiting.has(key)) waiting.set(key, new Set());
  waiting.get(key).add(draw);
  next();
  return () => {
    const draws = waiting.get(key);
    draws?.delete(draw);
    if (draws?.size === 0 && key !== current) waiting.delete(key);
  };
}

/** Return the language of a word after a fence, or of a file name; null if it is unknown. */
export function languageOf(word) {
  const name = /^[\w+#-]+/.exec(word ?? "")?.[0].toLowerCase();
  return LANGUAGES.get(name) ?? null;
}

export const languageOfFile = (path) => languageOf(/\w+$/.exec(path.slice(-20))?.[0]); // a search takes the square of a length

/** Return what a text is drawn as: its coloured tokens. While it grows, those of its beginning are shown. */
function useColours(text, name) {
  const [, draw] = useReducer((number) => number + 1, 0);
  const last = useRef(["", null]);
  const key = name === null ? null : `${name} ${text}`;
  useEffect(() => (key === null ? undefined : ask(key, draw)), [key]);
  if (key === null) return text;
  const tokens = kept.get(key);
  if (tokens !== undefined) last.current = [text, tokens];
  const [start, shown] = last.current;
  if (!shown || !text.startsWith(start)) return text;
  return [...shown, [text.slice(start.length), null]].map(([piece, type], index) => (type === null ? piece : html`<span key=${index} class=${`s-${type}`}>${piece}</span>`));
}

/** Draws code. `lang` is a word such as "python"; unknown ones are not coloured. A block has a button that copies it. */
export function Code({ text, lang, isBlock = false }) {
  const isChange = lang === "diff" || lang === "patch" || isDiff(text);
  const name = text.length > MOST || isChange ? null : languageOf(lang);
  const colours = useColours(text, name);
  const content = isChange ? html`<${DiffText} text=${text} />` : colours;
  if (!isBlock) return content;
  const label = lang ? `code, ${lang.slice(0, 40)}` : "code";
  return html`<div class="copied">
    ${isChange ? content : html`<pre class="codeblock" tabindex="0" aria-label=${label}><code>${content}</code></pre>`}
    <${CopyIcon} text=${() => text} label="Copy the code" />
  </div>`;
}
