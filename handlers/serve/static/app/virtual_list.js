// A list that draws only the rows in view, however long it is. One row has the focus; arrow keys move it.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

const OVERSCAN = 3; // rows drawn above and below the view

/**
 * `items` have `id`s. `draw(item, props)` returns the row's link or button, which takes `props`. All rows are
 * `rowHeight` rem high. `onEnd` is called when the end comes into view. `selected` is an id, shown when it changes.
 */
export function VirtualList({ items, draw, rowHeight, selected = null, label, onEnd, children }) {
  const box = useRef(null);
  const rem = useRef(16);
  const moved = useRef(null); // the index of the row that gets the focus once it is drawn
  const [view, setView] = useState({ top: 0, height: 800 });
  const [active, setActive] = useState(null); // the id of the row that Tab reaches
  const row = rowHeight * rem.current;

  useLayoutEffect(() => {
    rem.current = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const measure = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);

  const reveal = (index) => {
    if (!box.current) return;
    const { scrollTop, clientHeight } = box.current;
    if (index * row < scrollTop) box.current.scrollTop = index * row;
    else if ((index + 1) * row > scrollTop + clientHeight) box.current.scrollTop = (index + 1) * row - clientHeight;
  };

  const at = items.findIndex((one) => one.id === selected);
  useLayoutEffect(() => {
    if (at >= 0) reveal(at);
  }, [selected, at >= 0]);

  const first = Math.max(0, Math.floor(view.top / row) - OVERSCAN);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / row) + OVERSCAN);
  useLayoutEffect(() => {
    if (moved.current !== null) {
      const found = box.current.querySelector(`[data-index="${moved.current}"]`);
      if (found) {
        found.focus({ preventScroll: true });
        moved.current = null;
      }
    }
    if (last >= items.length) onEnd?.();
  });

  const onKeyDown = (event) => {
    const from = Number(event.target.closest?.("[data-index]")?.dataset.index ?? Number.NaN);
    if (Number.isNaN(from) || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(view.height / row) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(items.length - 1, from + steps[event.key]));
    moved.current = to;
    setActive(items[to].id);
    reveal(to);
    setView({ top: box.current.scrollTop, height: box.current.clientHeight });
  };

  const onFocus = (event) => {
    const index = event.target.closest?.("[data-index]")?.dataset.index;
    if (index !== undefined) setActive(items[index]?.id ?? null);
  };

  const isKnown = (id) => items.some((one) => one.id === id);
  const reached = isKnown(active) ? active : at >= 0 ? selected : items[0]?.id;
  // The row that Tab reaches is drawn also when it is out of view.
  const drawn = items.slice(first, last).map((item, offset) => [item, first + offset]);
  const index = items.findIndex((one) => one.id === reached);
  if (index >= 0 && index < first) drawn.unshift([items[index], index]);
  if (index >= last) drawn.push([items[index], index]);
  return html`<div class="virtual" ref=${box} onScroll=${() => setView({ top: box.current.scrollTop, height: box.current.clientHeight })}>
    <ul aria-label=${label} style=${{ height: `${items.length * row}px` }} onKeyDown=${onKeyDown} onFocusIn=${onFocus}>
      ${drawn.map(
        ([item, place]) => html`<li key=${item.id} aria-setsize=${items.length} aria-posinset=${place + 1} style=${{ transform: `translateY(${place * row}px)`, height: `${row}px` }}>
          ${draw(item, { "data-index": place, tabindex: item.id === reached ? 0 : -1 })}
        </li>`,
      )}
    </ul>
    ${children}
  </div>`;
}
