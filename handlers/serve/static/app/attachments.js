// The files of the message that is being written.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey, removeUpload } from "./api.js";
import { bytes, visible } from "./format.js";
import { Clip } from "./icons.js";
import { uploadFile } from "./upload.js";

/** Return the files, and what changes them. Their uploads begin at once, and end when the caller is no longer shown. */
export function useAttachments(session) {
  const [files, setFiles] = useState([]);
  const running = useRef(new Map()); // by id: what ends the upload
  useEffect(() => () => running.current.forEach((each) => each.abort()), []);

  const change = (id, more) => setFiles((all) => all.map((one) => (one.id === id ? { ...one, ...more } : one)));

  const start = (id, file) => {
    const ending = new AbortController();
    running.current.set(id, ending);
    change(id, { fault: null });
    uploadFile(session, file, {
      signal: ending.signal,
      begun: (sha256) => change(id, { sha256 }),
      progress: (sent) => change(id, { sent }),
    }).then(
      (block) => change(id, { block }),
      (error) => ending.signal.aborted || change(id, { fault: error.message }),
    );
  };

  const add = (chosen) => {
    for (const file of chosen) {
      const id = newKey();
      setFiles((all) => [...all, { id, file, sent: 0, sha256: null, block: null, fault: null }]);
      start(id, file);
    }
  };

  const remove = (one) => {
    running.current.get(one.id)?.abort();
    running.current.delete(one.id);
    setFiles((all) => all.filter((other) => other.id !== one.id));
    // Another of the same content may have been attached too: they share the upload.
    const isShared = files.some((other) => other.id !== one.id && other.sha256 === one.sha256);
    if (one.sha256 !== null && !isShared) removeUpload(session, one.sha256).catch(() => {}); // the server removes it later
  };

  const clear = () => {
    running.current.clear();
    setFiles([]);
  };

  const isReady = files.every((one) => one.block !== null);
  return { files, add, remove, clear, retry: (one) => start(one.id, one.file), isReady, blocks: files.map((one) => one.block) };
}

function Attachment({ one, attachments, isLocked }) {
  const { file, sent, block, fault } = one;
  const name = visible(file.name || "unnamed");
  return html`<li data-state=${fault !== null ? "failed" : block ? "ready" : "sending"}>
    <span class="name" title=${name}>${name}</span>
    <span class="size">${bytes(file.size)}</span>
    ${block === null && fault === null ? html`<progress max=${file.size} value=${sent} aria-label=${`Upload of ${name}`}></progress>` : null}
    ${fault !== null ? html`<span class="fault">${fault}</span> <button class="quiet" type="button" onClick=${() => attachments.retry(one)}>Upload again</button>` : null}
    <button class="quiet" type="button" disabled=${isLocked} aria-label=${`Remove ${name}`} title="Remove" onClick=${() => attachments.remove(one)}>✕</button>
  </li>`;
}

/** The list of the files, with their progress. A screen reader is told when a file is ready or has failed. */
export function AttachmentList({ attachments, isLocked }) {
  const { files } = attachments;
  const failed = files.filter((one) => one.fault !== null).length;
  const ready = files.filter((one) => one.block !== null).length;
  return html`
    ${files.length ? html`<ul class="attachments" aria-label="Attached files">${files.map((one) => html`<${Attachment} key=${one.id} one=${one} attachments=${attachments} isLocked=${isLocked} />`)}</ul>` : null}
    <p class="unseen" role="status">${files.length ? `${ready} of ${files.length} files are uploaded${failed ? `, ${failed} failed` : ""}` : ""}</p>`;
}

/** The button that chooses files. */
export function AttachButton({ attachments, isDisabled, open }) {
  const chooser = useRef(null);
  open.current = () => chooser.current.click();
  return html`
    <input ref=${chooser} type="file" multiple hidden aria-label="Files to attach" disabled=${isDisabled}
      onChange=${(event) => {
        attachments.add([...event.currentTarget.files]);
        event.currentTarget.value = ""; // so that the same file can be chosen again
      }} />
    <button type="button" class="attach" aria-label="Attach files" title="Attach files; you can also paste or drop them" disabled=${isDisabled} onClick=${() => chooser.current.click()}><${Clip} /></button>`;
}
