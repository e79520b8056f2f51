// Draws the content blocks of a message.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { base64Size, bytes, pretty } from "./format.js";

const MOST_LINES = 24;
const MOST_CHARACTERS = 2400;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);

function shortened(text) {
  const lines = text.split("\n", MOST_LINES + 1);
  const short = lines.slice(0, MOST_LINES).join("\n").slice(0, MOST_CHARACTERS);
  return short.length < text.length ? short : null;
}

/** Draws a text. A long text is folded. */
export function Text({ text, kind = "prose" }) {
  const [isOpen, setOpen] = useState(false);
  const short = shortened(text);
  if (short === null) return html`<div class=${`text ${kind}`}>${text}</div>`;
  const lines = text.split("\n").length;
  return html`<div class="folded">
    <div class=${`text ${kind} ${isOpen ? "" : "faded"}`}>${isOpen ? text : short}</div>
    <button class="quiet" type="button" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
      ${isOpen ? "Show less" : `Show all (${lines > MOST_LINES ? `${lines} lines` : `${text.length} characters`})`}
    </button>
  </div>`;
}

export function Json({ value }) {
  return html`<${Text} text=${pretty(value)} kind="code" />`;
}

function Thinking({ block }) {
  const text = block.thinking ?? "";
  if (!text.trim()) return html`<div class="note">thinking, hidden by the provider</div>`;
  return html`<details class="thinking">
    <summary><span class="label">thinking</span><span class="hint">${text.trim().split("\n", 1)[0]}</span></summary>
    <${Text} text=${text} />
  </details>`;
}

export function ToolCall({ name, id, remote, children }) {
  return html`<div class="call">
    <div class="callhead">
      <span class="label">calls</span><code class="tool">${name}</code>${remote ? html`<span class="note">runs in the client</span>` : null}
      ${id ? html`<code class="id" title=${id}>${id}</code>` : null}
    </div>
    ${children}
  </div>`;
}

function Arguments({ block }) {
  const value = block.arguments;
  if (block.argumentsRaw) return html`<${Text} text=${block.argumentsRaw} kind="code" />`;
  if (value === null || typeof value !== "object" || Array.isArray(value)) return html`<${Json} value=${value} />`;
  const pairs = Object.entries(value);
  if (pairs.length === 0) return html`<div class="note">no arguments</div>`;
  return html`<dl class="arguments">
    ${pairs.map(
      ([key, item]) => html`<div key=${key}>
        <dt>${key}</dt>
        <dd>${typeof item === "string" ? html`<${Text} text=${item} kind="code" />` : html`<${Json} value=${item} />`}</dd>
      </div>`,
    )}
  </dl>`;
}

/** Describes media. A picture is drawn only if the message contains its bytes: nothing is fetched. */
function Media({ block }) {
  const media = block.media ?? { kind: "data", data: block.data, mimeType: block.mimeType };
  if (block.type === "image" && media.data && PICTURES.has(media.mimeType)) {
    return html`<img class="picture" src=${`data:${media.mimeType};base64,${media.data}`} alt=${block.altText ?? "image"} />`;
  }
  const size = media.sizeBytes ?? (media.data ? base64Size(media.data) : null);
  const facts = [media.mimeType ?? block.mimeType, media.filename, size === null ? null : bytes(size), media.url, media.fileId, media.sha256];
  return html`<div class="media">
    <span class="label">${block.type}</span>${facts.filter(Boolean).map((fact) => html`<code>${String(fact).slice(0, 200)}</code>`)}
    ${block.text || block.transcript ? html`<${Text} text=${block.text ?? block.transcript} />` : null}
  </div>`;
}

function Annotation({ block }) {
  return html`<ul class="refs">
    ${(block.refs ?? []).map((ref) => html`<li>${[ref.title, ref.url, ref.fileId, ref.page && `page ${ref.page}`].filter(Boolean).join(" · ")}</li>`)}
  </ul>`;
}

function Block({ block }) {
  switch (block.type) {
    case "text":
      return html`<${Text} text=${block.text} />`;
    case "thinking":
      return html`<${Thinking} block=${block} />`;
    case "redacted_thinking":
      return html`<div class="note">thinking, encrypted by the provider</div>`;
    case "toolCall":
      return html`<${ToolCall} name=${block.name} id=${block.id} remote=${block.remote}><${Arguments} block=${block} /></${ToolCall}>`;
    case "toolResult":
      return html`<div class=${`result ${block.isError ? "bad" : ""}`}>
        <div class="callhead"><span class="label">result</span><code class="id">${block.toolCallId}</code></div>
        <${Blocks} blocks=${block.content ?? []} />
        ${block.structured === undefined ? null : html`<${Json} value=${block.structured} />`}
      </div>`;
    case "image":
    case "audio":
    case "video":
    case "document":
    case "data":
      return html`<${Media} block=${block} />`;
    case "annotation":
      return html`<${Annotation} block=${block} />`;
    case "error":
      return html`<div class="failure"><${Text} text=${block.code ? `${block.code}: ${block.message}` : block.message} /></div>`;
    default:
      return html`<details class="raw"><summary>block of an unknown type</summary><${Json} value=${block.raw ?? block} /></details>`;
  }
}

export function Blocks({ blocks, kind }) {
  return blocks.map((block, index) =>
    kind === "code" && block.type === "text"
      ? html`<${Text} key=${index} text=${block.text} kind="code" />`
      : html`<${Block} key=${index} block=${block} />`,
  );
}
