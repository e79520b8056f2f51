// Draws Markdown. A library cuts the text into tokens, and this code makes virtual nodes of them: no text becomes HTML.
// HTML in the text is shown as it is written. Links go to http, https and mailto only, and pictures are links.
import { useContext, useEffect, useReducer } from "preact/hooks";
import { html } from "./html.js";
import { Code } from "./code.js";
import { visible } from "./format.js";
import { OfEntry, TextShare } from "./of_entry.js";

const MOST = 20_000; // characters; longer texts are shown as they are
const MOST_LINES = 600;
// The texts of an entry share the next three bounds.
const MOST_CELLS = 2_000; // of tables: a row of one character has a cell for each column
const MOST_TOKENS = 5_000; // each becomes an element or two
const MOST_WORK = 1_000_000; // see `workOf`
const MOST_DEPTH = 24;
const MOST_KEPT = 200; // texts whose tokens are kept
const SYNTAX = /[*_`#>[\]|~\\]|^[ \t]*(?:[-+]|\d{1,9}[.)])[ \t]|^[ \t]*(?:---|===)|https?:\/\/|www\.|\S@\S/m;
const DEEP = /^[ \t]*(?:(?:[>*+-]|\d{1,9}[.)])[ \t]*){16}/m;
const MARKS = /[*_~`[<]/g;
const LONG_WORD = /[\w.!#$%&'*+/=?`{|}~-]{64,}/g; // as far as it could be the name of an address with an @
const PIECE = 4; // characters of code that become an element of their own

let marked = null;
let loading = null;
const kept = new Map(); // tokens by share and text

const load = () => (loading ??= import("marked").then((module) => (marked = module)));

/** Estimate what the library does for a paragraph: it searches the rest at each mark, and a word at each of its letters. */
function workOf(text) {
  const words = (text.match(LONG_WORD) ?? []).reduce((sum, word) => sum + word.length ** 2, 0);
  return text.length * (text.match(MARKS)?.length ?? 0) + words / 16;
}

/** Count tokens with all that they hold. */
function counted(tokens) {
  let sum = 0;
  for (const token of tokens ?? []) {
    const rows = token.type === "table" ? [token.header, ...token.rows] : [];
    sum += 1 + (token.type === "code" ? token.text.length / PIECE : counted(token.tokens) + counted(token.items));
    for (const row of rows) sum += counted(row);
  }
  return sum;
}

/** Return the tokens of a text; null if it would take too many, or the library cannot read it. */
function read(text, share) {
  const tokenizer = new marked.Tokenizer();
  let [cells, work] = [MOST_CELLS * share, MOST_WORK * share];
  tokenizer.table = (source) => {
    const match = tokenizer.rules.block.table.exec(source);
    if (match) cells -= match[2].split("|").length * (1 + (match[3] ?? "").split("\n").length);
    if (cells < 0) throw new RangeError("too many cells"); // before they are made
    return marked.Tokenizer.prototype.table.call(tokenizer, source);
  };
  try {
    const lexer = new marked.Lexer({ gfm: true, tokenizer });
    lexer.blockTokens(text, lexer.tokens);
    for (let index = 0; index < lexer.inlineQueue.length; index += 1) {
      const { src, tokens } = lexer.inlineQueue[index];
      const more = workOf(src);
      if (more > work) {
        tokens.push({ type: "text", raw: src, text: src });
        continue;
      }
      work -= more;
      lexer.inlineTokens(src, tokens);
    }
    return counted(lexer.tokens) > MOST_TOKENS * share ? null : lexer.tokens;
  } catch {
    return null;
  }
}

function tokensOf(text, share) {
  const key = `${share} ${text}`;
  if (kept.has(key)) return kept.get(key);
  const tokens = read(text, share);
  kept.set(key, tokens);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return tokens;
}

/** Return a link that may be opened; null for any other. */
function safe(href) {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url : null;
  } catch {
    return null; // a relative link leads nowhere
  }
}

function Link({ token, depth }) {
  const url = safe(token.href);
  if (url === null) return token.raw;
  const place = url.protocol === "mailto:" ? url.pathname : url.host;
  // The text may name another place than the one that it leads to, before an @, in its path or in letters that look alike.
  // It says the place only if it is the address itself, as the browser reads it.
  const isSaid = [place, url.href, url.href.replace(/\/$/, "")].includes(token.text) && !url.username && !url.password;
  const isHidden = visible(token.text) !== token.text; // such characters could also turn round what follows
  const text = isHidden ? visible(token.text) : inline(token.tokens, depth, token.text);
  return html`<a href=${url.href} target="_blank" rel="noopener noreferrer nofollow" title=${visible(url.href)}>${token.type === "image" ? `picture: ${visible(token.text) || url.pathname}` : text}</a>${isSaid ? null : html`<bdi class="host" dir="ltr"> (${visible(place)})</bdi>`}`;
}

function inline(tokens, depth, text) {
  if (!tokens || depth > MOST_DEPTH) return text;
  return tokens.map((token, key) => Inline({ token, key, depth: depth + 1 }));
}

function Inline({ token, key, depth }) {
  switch (token.type) {
    case "strong":
      return html`<strong key=${key}>${inline(token.tokens, depth, token.text)}</strong>`;
    case "em":
      return html`<em key=${key}>${inline(token.tokens, depth, token.text)}</em>`;
    case "del":
      return html`<del key=${key}>${inline(token.tokens, depth, token.text)}</del>`;
    case "codespan":
      return html`<code key=${key}>${token.text}</code>`;
    case "br":
      return "\n";
    case "link":
    case "image":
      return html`<${Link} key=${key} token=${token} depth=${depth} />`;
    case "text":
      return inline(token.tokens, depth, token.text);
    case "escape":
      return token.text;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    default:
      return token.raw;
  }
}

function Block({ token, depth }) {
  if (depth > MOST_DEPTH) return html`<p>${token.raw}</p>`;
  switch (token.type) {
    case "space":
      return null;
    case "hr":
      return html`<hr />`;
    case "heading":
      // Not h1 to h6: these are headings of the page.
      return html`<p class=${`heading h-${token.depth}`}>${inline(token.tokens, depth, token.text)}</p>`;
    case "paragraph":
      return html`<p>${inline(token.tokens, depth, token.text)}</p>`;
    case "text":
      return html`<span>${inline(token.tokens, depth, token.text)}</span>`;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "code":
      return html`<${Code} text=${token.text} lang=${token.lang} isBlock />`;
    case "blockquote":
      return html`<blockquote><${BlockList} tokens=${token.tokens} depth=${depth} /></blockquote>`;
    case "list": {
      const items = token.items.map((item, index) => html`<li key=${index}><${BlockList} tokens=${item.tokens} depth=${depth} /></li>`);
      return token.ordered ? html`<ol start=${Number.isSafeInteger(token.start) ? token.start : 1}>${items}</ol>` : html`<ul>${items}</ul>`;
    }
    case "table": {
      const cell = (one, index, Tag) => html`<${Tag} key=${index} class=${one.align ? `align-${one.align}` : ""}>${inline(one.tokens, depth, one.text)}</${Tag}>`;
      return html`<div class="wide" tabindex="0" role="group" aria-label="table"><table>
        <thead><tr>${token.header.map((one, index) => cell(one, index, "th"))}</tr></thead>
        <tbody>${token.rows.map((row, key) => html`<tr key=${key}>${row.map((one, index) => cell(one, index, "td"))}</tr>`)}</tbody>
      </table></div>`;
    }
    default:
      return html`<p>${token.raw.replace(/\n+$/, "")}</p>`; // HTML, definitions of links, and what a later version adds
  }
}

function BlockList({ tokens, depth }) {
  return tokens.map((token, index) => html`<${Block} key=${index} token=${token} depth=${depth + 1} />`);
}

/** Draws a text as Markdown, or as it is if it is too long or too deep, has too many parts, or the user wants plain text. */
export function Markdown({ text }) {
  const { isPlain } = useContext(OfEntry);
  const share = useContext(TextShare);
  const [, draw] = useReducer((number) => number + 1, 0);
  const lines = text.length <= MOST ? text.replace(/\r\n?/g, "\n") : "";
  const isWanted = !isPlain && SYNTAX.test(lines) && lines.split("\n", MOST_LINES + 1).length <= MOST_LINES && !DEEP.test(lines);
  const isLoaded = marked !== null; // for this drawing; the library may arrive before the effect runs
  useEffect(() => {
    if (!isWanted || isLoaded) return undefined;
    let isOver = false;
    load().then(
      () => isOver || draw(),
      () => (loading = null), // the text stays as it is
    );
    return () => {
      isOver = true;
    };
  }, [isWanted]);
  if (!isWanted || !isLoaded) return text;
  const tokens = tokensOf(lines, share);
  return tokens === null ? text : html`<div class="md"><${BlockList} tokens=${tokens} depth=${0} /></div>`;
}
