// What a user may do with a session beyond messages and approvals. What destroys is confirmed.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { newKey } from "./api.js";
import { Dialog } from "./dialog.js";
import { Menu } from "./icons.js";
import { OPERATIONS } from "./operations.js";
import { may } from "./rights.js";
import { go } from "./route.js";

const PREVIEW_MS = 400;

/** The fields of an operation, a button, and what went wrong. */
function Operation({ operation, context, onClose, onDone }) {
  const fields = operation.fields?.(context) ?? [];
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""])));
  const [confirmed, setConfirmed] = useState("");
  const [isSending, setSending] = useState(false);
  const [fault, setFault] = useState(null);
  const [key] = useState(newKey);
  const [told, setTold] = useState(null); // what would happen
  const written = JSON.stringify(values);
  useEffect(() => {
    if (!operation.preview) return undefined;
    let isOver = false;
    setTold(null);
    const timer = setTimeout(async () => {
      try {
        const found = await operation.preview(context, values);
        if (!isOver) setTold(found);
      } catch (error) {
        if (!isOver) setTold({ text: error.message, isBlocked: true });
      }
    }, PREVIEW_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [written]);
  const isReady = !told?.isBlocked && (told !== null || !operation.destroys) && fields.every((field) => field.isOptional || String(values[field.name]).trim() !== "") && (!operation.destroys || confirmed === context.session);
  const submit = async (event) => {
    event.preventDefault();
    if (!isReady || isSending) return;
    setSending(true);
    setFault(null);
    try {
      onDone(await operation.run({ ...context, key }, values));
    } catch (error) {
      setFault(error.message);
      setSending(false);
    }
  };
  return html`<${Dialog} title=${operation.title ?? operation.label} onClose=${onClose}>
    <form onSubmit=${submit} class="operation">
      <p>${operation.about(context)}</p>
      ${fields.map(
        (field) => field.type === "checkbox"
          ? html`<label key=${field.name} class="check"><input type="checkbox" checked=${values[field.name]} onChange=${(event) => setValues({ ...values, [field.name]: event.currentTarget.checked })} /> ${field.label}</label>`
          : html`<label key=${field.name}>${field.label}${field.isOptional ? " (optional)" : ""}
          <input type=${field.type ?? "text"} min=${field.min} max=${field.max} maxlength=${field.type === "number" ? undefined : 200} autocomplete="off" value=${values[field.name]}
            onInput=${(event) => setValues({ ...values, [field.name]: event.currentTarget.value })} />
        </label>`,
      )}
      ${told ? html`<p class="outcome" role="status">${told.text}</p>` : null}
      ${operation.destroys
        ? html`<label class="danger">This cannot be undone. Type <code>${context.session}</code> to confirm.
            <input autocomplete="off" spellcheck=${false} value=${confirmed} onInput=${(event) => setConfirmed(event.currentTarget.value)} />
          </label>`
        : null}
      ${fault ? html`<p class="fault" role="alert">${fault}</p>` : null}
      <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class=${operation.destroys ? "no" : "primary"} disabled=${!isReady || isSending}>${operation.verb ?? operation.label}</button></footer>
    </form>
  </${Dialog}>`;
}

/**
 * A button that opens the list of operations; nothing if the token allows none. `onChanged` is called after an operation,
 * which may append nothing.
 */
export function Operate({ session, head, position, access, isClosed, onChanged }) {
  const [isOpen, setOpen] = useState(false);
  const [operation, setOperation] = useState(null);
  const [told, setTold] = useState(null);
  const box = useRef(null);
  const context = { session, head, position, access, isClosed };
  const allowed = OPERATIONS.filter((one) => one.actions.every((action) => may(access, action)) && (one.isOffered?.(context) ?? true));
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    box.current.querySelector(".choices button")?.focus();
    const onDown = (event) => box.current?.contains(event.target) || setOpen(false);
    document.addEventListener("pointerdown", onDown);
    return () => document.removeEventListener("pointerdown", onDown);
  }, [isOpen]);
  useEffect(() => setTold(null), [session]);
  const onKeyDown = (event) => {
    if (!isOpen) return;
    if (event.key === "Escape") {
      event.preventDefault();
      setOpen(false);
      box.current.querySelector("button").focus();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const buttons = [...box.current.querySelectorAll(".choices button")];
    buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length]?.focus();
  };
  const choose = (one) => {
    setOpen(false);
    setTold(null);
    box.current.querySelector("button").focus(); // the dialog returns the focus here
    setOperation(one);
  };
  const onDone = (answer) => {
    setOperation(null);
    setTold(answer?.text ?? null);
    if (answer) onChanged();
    if (answer?.link) go(answer.link);
  };
  if (allowed.length === 0) return null;
  return html`<div class="operate" ref=${box} onKeyDown=${onKeyDown}>
    ${told ? html`<span class="told" role="status">${told}</span>` : null}
    <button type="button" class="icon" aria-label="Operate this session" title="Hand over, close and more" aria-expanded=${isOpen} aria-controls="choices" onClick=${() => setOpen(!isOpen)}><${Menu} /></button>
    <ul class="choices" id="choices" hidden=${!isOpen}>
      ${allowed.map((one) => html`<li key=${one.name}><button type="button" class=${one.destroys ? "no" : ""} onClick=${() => choose(one)}>${one.label}…</button></li>`)}
    </ul>
    ${operation ? html`<${Operation} key=${operation.name} operation=${operation} context=${context} onClose=${() => setOperation(null)} onDone=${onDone} />` : null}
  </div>`;
}
