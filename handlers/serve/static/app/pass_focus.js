// Keeps the focus near a call that a person answered: its buttons are gone, and often its row.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Move the focus from a row to the next row that waits for an answer, or to the element that the selector `rest` finds. */
function passFocus(row, rest) {
  const focused = document.activeElement;
  if (focused !== document.body && !row.contains(focused)) return; // the user went on to something else
  const rows = [...row.parentElement.children];
  const at = rows.indexOf(row);
  const next = [...rows.slice(at + 1), ...rows.slice(0, at)].find((one) => one.hasAttribute("data-waits"));
  if (next) next.hidden = false; // of several calls, one is shown: that which has the focus
  (next ?? document.querySelector(rest))?.focus();
}

/**
 * Return `{row, answer}` for one row of a list of calls. `row` has the attributes of its element. `answer` takes the promise
 * of a sent answer, and passes the focus on when the answer is sent. The focus is passed on too if the row goes.
 */
export function usePassedFocus(rest) {
  const ref = useRef(null);
  const isSending = useRef(false); // the button that was pressed is disabled then, and has lost the focus
  const [isAnswered, setAnswered] = useState(false);
  useLayoutEffect(
    () => () => {
      if (isSending.current || ref.current?.contains(document.activeElement)) passFocus(ref.current, rest);
    },
    [],
  );
  const answer = async (sending) => {
    isSending.current = true;
    const isSent = await sending;
    isSending.current = false;
    if (!isSent || ref.current === null) return isSent;
    setAnswered(true);
    passFocus(ref.current, rest);
    return true;
  };
  return { row: { ref, tabindex: -1, "data-waits": isAnswered ? null : "" }, answer };
}
