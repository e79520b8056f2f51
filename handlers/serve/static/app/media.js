// Draws the media of a message. Pictures come from the message itself or from the server, never from anywhere else.
import { useContext, useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { getMedia } from "./api.js";
import { Text } from "./blocks.js";
import { base64Size, bytes } from "./format.js";
import { OfEntry } from "./of_entry.js";
import { may } from "./rights.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const AT_ONCE = 2_000_000; // bytes of a picture that is loaded without being asked for
const KEPT = 24; // pictures kept after they left the view

const pictures = new Map(); // by address: {blob, url}

function keep(key, blob) {
  const url = URL.createObjectURL(blob);
  pictures.set(key, { blob, url });
  if (pictures.size > KEPT) {
    const [oldest, { url: old }] = pictures.entries().next().value;
    pictures.delete(oldest);
    URL.revokeObjectURL(old);
  }
  return url;
}

/** A stored picture of an entry. */
function StoredPicture({ media, alt }) {
  const { session, position } = useContext(OfEntry);
  const key = `${session} ${position} ${media.sha256}`;
  const [isWanted, setWanted] = useState((media.sizeBytes ?? 0) <= AT_ONCE);
  const [url, setUrl] = useState(pictures.get(key)?.url ?? null);
  const [fault, setFault] = useState(null);
  useEffect(() => {
    if (!isWanted || url !== null) return undefined;
    const request = new AbortController();
    getMedia(session, position, media.sha256, request.signal).then(
      (blob) => {
        if (PICTURES.has(blob.type)) setUrl(keep(key, blob));
        else setFault("These bytes are no picture.");
      },
      (error) => error.name === "AbortError" || setFault(error.message),
    );
    return () => request.abort();
  }, [key, isWanted]);
  if (url !== null) return html`<img class="picture" src=${url} alt=${alt} width=${media.width} height=${media.height} onError=${() => setFault("The picture cannot be shown.")} />`;
  if (fault !== null) return html`<p class="note">${fault}</p>`;
  if (!isWanted) return html`<button class="quiet" type="button" onClick=${() => setWanted(true)}>Show the picture (${bytes(media.sizeBytes)})</button>`;
  return html`<p class="note">Loading the picture…</p>`;
}

/** A button that saves stored media as a file. */
function Save({ media, name }) {
  const { session, position } = useContext(OfEntry);
  const [said, setSaid] = useState(null);
  const save = async () => {
    setSaid("Loading…");
    try {
      const blob = await getMedia(session, position, media.sha256);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      setSaid(null);
    } catch (error) {
      setSaid(error.message);
    }
  };
  return html`<button class="quiet" type="button" onClick=${save}>${said ?? "Save as a file"}</button>`;
}

const plainName = (text) => String(text).replace(/[^\w.-]+/g, "_").slice(0, 80);

export function Media({ block }) {
  const { access } = useContext(OfEntry);
  const media = block.media ?? { kind: "data", data: block.data, mimeType: block.mimeType };
  const alt = block.altText ?? "image";
  if (block.type === "image" && media.data && PICTURES.has(media.mimeType)) {
    return html`<img class="picture" src=${`data:${media.mimeType};base64,${media.data}`} alt=${alt} />`;
  }
  const isStored = media.kind === "sha256" && Boolean(media.sha256);
  const canRead = isStored && access !== null && may(access, "read.media");
  const size = media.sizeBytes ?? (media.data ? base64Size(media.data) : null);
  const facts = [media.mimeType ?? block.mimeType, media.filename, size === null ? null : bytes(size), media.url, media.fileId, isStored ? null : media.sha256];
  return html`
    ${canRead && block.type === "image" && PICTURES.has(media.mimeType) ? html`<${StoredPicture} media=${media} alt=${alt} />` : null}
    <div class="media">
      <span class="label">${block.type}</span>${facts.filter(Boolean).map((fact) => html`<code>${String(fact).slice(0, 200)}</code>`)}
      ${isStored ? html`<code class="sha" title=${media.sha256}>${media.sha256}</code>` : null}
      ${canRead ? html`<${Save} media=${media} name=${plainName(media.filename ?? `${media.sha256.slice(0, 16)}.${(media.mimeType ?? "").split("/").at(-1) || "bin"}`)} />` : null}
      ${block.text || block.transcript || block.excerpt ? html`<${Text} text=${block.text ?? block.transcript ?? block.excerpt} />` : null}
    </div>`;
}
