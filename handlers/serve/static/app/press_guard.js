// Refuses a press on buttons that came under a pointer at rest: a slow double click must not answer the next call unread.
import { useLayoutEffect, useRef } from "preact/hooks";

const NEAR = 16; // pixels: a hand at rest moves the pointer less
const READ_MS = 1000; // a press after this time is meant for what is shown

const isFar = (one, other) => Math.hypot(one.x - other.x, one.y - other.y) > NEAR;
const NOWHERE = { x: -1e6, y: -1e6 }; // the place of what is not drawn

let rest = { x: 0, y: 0, since: 0 }; // where the pointer rests, or a finger was last
function onPointer({ clientX: x, clientY: y }) {
  if (isFar({ x, y }, rest)) rest = { x, y, since: performance.now() };
}
addEventListener("pointermove", onPointer, true);
addEventListener("pointerdown", onPointer, true);

const guards = new Set(); // a function for each place with buttons, which notes whether they moved
let isDue = false;

/** Look at all places after this drawing: a row that goes moves those below it. */
function look() {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => {
    isDue = false;
    for (const note of guards) note();
  });
}

/**
 * Return `{ref, isMeant}`: the `ref` of the element with the buttons, and a function that returns whether a click is meant for
 * them. It is not if they came to their place, or `shown` changed, less than a second ago, and the pointer has not moved since.
 * Keys are always meant.
 */
export function usePressGuard(shown) {
  const ref = useRef(null);
  const came = useRef({ ...NOWHERE, since: 0 });
  useLayoutEffect(() => {
    const note = () => {
      const { x, y } = ref.current?.getClientRects()[0] ?? NOWHERE;
      if (isFar({ x, y }, came.current)) came.current = { x, y, since: performance.now() };
    };
    guards.add(note);
    return () => {
      guards.delete(note);
      look();
    };
  }, []);
  useLayoutEffect(() => {
    came.current.since = performance.now();
    look();
  }, [shown]);
  const isMeant = (event) => event.detail === 0 || rest.since > came.current.since || performance.now() - came.current.since >= READ_MS;
  return { ref, isMeant };
}
