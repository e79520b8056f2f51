// Keyboard shortcuts. A part of the page registers its own while it is shown, and the help sheet lists them.
import { useEffect, useRef } from "preact/hooks";

const KEPT = "lanebus.shortcuts";
const SEQUENCE_MS = 1200;

const registered = new Map(); // "g i" → {group, keys, label, run}
let before = ""; // the first key of a sequence
let timer = null;

export const areShortcutsOn = () => localStorage.getItem(KEPT) !== "off";

/** Switch the shortcuts on or off, and keep the choice: they can disturb speech input. */
export function setShortcuts(isOn) {
  if (isOn) localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, "off");
}

/** Return the shortcuts that work at the moment. */
export const shortcuts = () => [...registered.values()];

/**
 * Call `run` for a key such as "?", or for two such as "g i", while the caller is shown. Keys typed into a field and
 * those with Ctrl, Alt or the Command key are never taken.
 */
export function useShortcut(keys, group, label, run) {
  const current = useRef(run);
  current.current = run;
  useEffect(() => {
    const shortcut = { keys, group, label, run: (event) => current.current(event) };
    registered.set(keys, shortcut);
    return () => registered.get(keys) === shortcut && registered.delete(keys);
  }, [keys, group, label]);
}

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]") !== null;

function onKeyDown(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && isTyping(event.target)) {
    event.target.blur(); // so that the shortcuts work again
    return;
  }
  if (!areShortcutsOn() || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const found = registered.get(before ? `${before} ${event.key}` : event.key) ?? registered.get(event.key);
  clearTimeout(timer);
  before = "";
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if ([...registered.keys()].some((keys) => keys.startsWith(`${event.key} `))) {
    before = event.key;
    timer = setTimeout(() => (before = ""), SEQUENCE_MS);
  }
}

document.addEventListener("keydown", onKeyDown);
