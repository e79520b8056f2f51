"""Pause between attempts. The pauses grow from a first pause to a longest pause."""

from __future__ import annotations

from math import inf
from random import uniform

import anyio

__all__ = ("Backoff",)


class Backoff:
    """Growing pauses between the attempts of one loop. The loop calls `reset` after a success."""

    def __init__(
        self, first: float, longest: float = inf, *, factor: float = 2.0, jitter: float = 0.0, patience: float = inf
    ) -> None:
        """
        Args:
            first: seconds before the second attempt.
            longest: maximum number of seconds before any later attempt.
            factor: number by which a pause is multiplied to get the next pause.
            jitter: random part of a pause. With 0.5, a pause takes 0.5 to 1.5 times its length.
            patience: seconds after the first `wait` until `wait` returns False. A pause is not shortened for it.
        """
        self.next_pause = first
        """seconds that the next `advance` returns, before jitter"""
        self._first, self._longest, self._factor, self._jitter = first, longest, factor, jitter
        self._patience, self._end = patience, inf

    def advance(self) -> float:
        """Return the seconds to pause now, and lengthen the next pause."""
        pause, self.next_pause = self.next_pause, min(self.next_pause * self._factor, self._longest)
        return pause * uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else pause  # noqa: S311  # no secret

    async def wait(self) -> bool:
        """Sleep for the next pause.

        Returns:
            True after the pause; False at once if `patience` is over.
        """
        now = anyio.current_time()
        if self._end == inf:
            self._end = now + self._patience
        if now >= self._end:
            return False
        await anyio.sleep(self.advance())
        return True

    def reset(self) -> None:
        """Start again with the first pause."""
        self.next_pause = self._first
