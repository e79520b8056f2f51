"""The pause before something that failed is tried again: short at first, longer each time, up to a bound."""

from __future__ import annotations

from math import inf
from random import uniform

import anyio

__all__ = ("Backoff",)


class Backoff:
    """Growing pauses between the attempts of one loop. The loop resets them when an attempt succeeds."""

    def __init__(
        self, first: float, longest: float = inf, *, factor: float = 2.0, jitter: float = 0.0, patience: float = inf
    ) -> None:
        """
        Args:
            first: seconds before the second attempt.
            longest: most seconds before any later attempt.
            factor: how much longer each pause is than the previous one.
            jitter: share of a pause that is left to chance: 0.5 draws from half the pause to one and a half.
            patience: seconds from the first pause on, after which `wait` gives up; a pause is not cut short by them.
        """
        self.next_pause = first
        """seconds that the next call of `advance` returns, before jitter"""
        self._first, self._longest, self._factor, self._jitter = first, longest, factor, jitter
        self._patience, self._end = patience, inf

    def advance(self) -> float:
        """Return the seconds to pause now, and make the next pause longer."""
        pause, self.next_pause = self.next_pause, min(self.next_pause * self._factor, self._longest)
        return pause * uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else pause  # noqa: S311  # no secret

    async def wait(self) -> bool:
        """Sleep for the next pause.

        Returns:
            False, without sleeping, if `patience` is over: the caller gives up.
        """
        now = anyio.current_time()
        if self._end == inf:
            self._end = now + self._patience
        if now >= self._end:
            return False
        await anyio.sleep(self.advance())
        return True

    def reset(self) -> None:
        """Begin with the first pause again."""
        self.next_pause = self._first
