// A dialog over the page. The browser keeps the focus inside, closes it with Escape, and returns the focus.
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";

export function Dialog({ title, onClose, children }) {
  const box = useRef(null);
  useEffect(() => {
    const opener = document.activeElement;
    const dialog = box.current;
    dialog.showModal();
    return () => {
      // The browser has returned the focus if it closed the dialog, and a key may have moved it since.
      const focused = document.activeElement;
      if (opener?.isConnected && (focused === document.body || dialog.contains(focused))) opener.focus();
    };
  }, []);
  const onClick = (event) => event.target === box.current && onClose(); // a click beside the dialog
  return html`<dialog ref=${box} class="dialog" aria-labelledby="dialog-title" onClose=${onClose} onClick=${onClick}>
    <div class="sheet">
      <header><h2 id="dialog-title">${title}</h2><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
      ${children}
    </div>
  </dialog>`;
}
