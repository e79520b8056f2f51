// Draws Markdown. A library cuts the text into tokens, and this code makes virtual nodes of them: no text becomes HTML.
// HTML in the text is shown as it is written. Links go to http, https and mailto only, and pictures are links.
import { useContext, useEffect, useReducer } from "preact/hooks";
import { html } from "./html.js";
import { Code } from "./code.js";
import { visible } from "./format.js";
import { OfEntry } from "./of_entry.js";

const MOST = 20_000; // characters; longer texts are shown as they are
const MOST_LINES = 600;
const MOST_MARKS = 600; // of emphasis in a paragraph: the time that the library takes grows with their square
const MOST_DEPTH = 24;
const MOST_KEPT = 200; // texts whose tokens are kept
const SYNTAX = /[*_`#>[\]|~\\]|^[ \t]*(?:[-+]|\d{1,9}[.)])[ \t]|^[ \t]*(?:---|===)|https?:\/\/|www\.|\S@\S/m;
const DEEP = /^[ \t]*(?:(?:[>*+-]|\d{1,9}[.)])[ \t]*){16}/m;
const MARKS = /[*_~`[]/g;

let Lexer = null;
let loading = null;
const kept = new Map(); // tokens by text

const load = () => (loading ??= import("marked").then((module) => (Lexer = module.Lexer)));

function tokensOf(text) {
  const known = kept.get(text);
  if (known) return known;
  const lexer = new Lexer({ gfm: true });
  lexer.blockTokens(text.replace(/\r\n?/g, "\n"), lexer.tokens);
  for (let index = 0; index < lexer.inlineQueue.length; index += 1) {
    const { src, tokens } = lexer.inlineQueue[index];
    if ((src.match(MARKS)?.length ?? 0) > MOST_MARKS) tokens.push({ type: "text", raw: src, text: src });
    else lexer.inlineTokens(src, tokens);
  }
  kept.set(text, lexer.tokens);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return lexer.tokens;
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
      return html`<div class="wide"><table>
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

/** Draws a text as Markdown, or as it is if it is too long, too deep, or the user wants plain text. */
export function Markdown({ text }) {
  const { isPlain } = useContext(OfEntry);
  const [, draw] = useReducer((number) => number + 1, 0);
  const isWanted = !isPlain && text.length <= MOST && SYNTAX.test(text) && text.split("\n", MOST_LINES + 1).length <= MOST_LINES && !DEEP.test(text);
  const isLoaded = Lexer !== null; // for this drawing; the library may arrive before the effect runs
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
  let tokens;
  try {
    tokens = tokensOf(text);
  } catch {
    return text; // the library cannot read it
  }
  return html`<div class="md"><${BlockList} tokens=${tokens} depth=${0} /></div>`;
}
