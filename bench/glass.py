"""Stream tokens to the page, and read from the page when each was painted: from the publish to the glass."""

import statistics
import time
from typing import TYPE_CHECKING

import anyio

from lanebus import AssistantMessage, Bus, Delta, TextBlock

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ("PAINTS", "token_delays")

TOKENS = 200
PAUSE = 0.02
"""seconds between two tokens, about as a fast model sends them"""

PAINTS = """(() => {
  window.painted = {};
  const note = () => {
    const text = document.querySelector(".preview")?.textContent ?? "";
    const last = text.match(/token(\\d+)\\.[^.]*$/)?.[1];
    if (last === undefined || last in window.painted) return;
    window.painted[last] = null;
    // The task after the next frame: what was changed is painted.
    requestAnimationFrame(() => setTimeout(() => {
      window.painted[last] = performance.timeOrigin + performance.now();
    }));
  };
  new MutationObserver(note).observe(document, { childList: true, subtree: true, characterData: true });
})()"""
"""script for the page, which records the Unix milliseconds at which each token was painted"""


async def token_delays(bus: Bus, page: "Page", session: str) -> tuple[float, float]:
    """Stream tokens into a session that the page follows. Return the median and the 95th percentile in milliseconds.

    A token that the page painted together with a later one has the later one's time.
    """
    sent = list[float]()
    message = f"m{time.time_ns()}"
    await page.evaluate("() => { window.painted = {}; }")
    for number in range(TOKENS):
        sent.append(time.time() * 1e3)
        await bus.session(session).preview(Delta(kind="text", message_id=message, delta=f"token{number}. "))
        await anyio.sleep(PAUSE)
    await page.wait_for_function(f"() => typeof window.painted[{TOKENS - 1}] === 'number'")
    painted: dict[str, float] = await page.evaluate("window.painted")
    # The message ends the preview, so that the next one is drawn anew.
    await bus.session(session).publish(AssistantMessage(id=message, content=(TextBlock(text="Done."),)))
    await page.wait_for_function("() => !document.querySelector('.preview')")
    delays, at = list[float](), painted[str(TOKENS - 1)]
    for number in reversed(range(TOKENS)):
        at = painted.get(str(number), at)
        delays.append(at - sent[number])
    cuts = statistics.quantiles(delays, n=20)
    return statistics.median(delays), cuts[-1]
