"""When a call that is under way has to be over: at its loop's time limit, or after a silence."""

from typing import NamedTuple

from lanebus.handlers.agent.clock import Clock

__all__ = ("Deadline", "Late")


class Late(NamedTuple):
    """Why a call was cut."""

    text: str
    is_limit: bool
    """its loop's time limit is reached; else the call itself was silent for too long"""


class Deadline:
    """The time that one call has left."""

    def __init__(
        self, clock: Clock, *, left: float | None, reached: str = "", silence: float | None = None, who: str = ""
    ) -> None:
        """
        Args:
            left: seconds until the loop's time limit; None is no limit.
            reached: what is said once the limit is reached.
            silence: seconds without a sign of life, see `heard`, after which the call is cut; None waits for ever.
            who: is silent, for the text.
        """
        self._clock, self._silence, self._reached, self._who = clock, silence, reached, who
        self._heard = clock.monotonic()
        self._ends = None if left is None else self._heard + left

    @property
    def is_open(self) -> bool:
        """It never comes."""
        return self._ends is None and self._silence is None

    def heard(self) -> None:
        """The call gave a sign of life."""
        self._heard = self._clock.monotonic()

    async def wait(self) -> Late:
        """Wait until the time is over. It must not be open."""
        while True:
            now = self._clock.monotonic()
            if self._ends is not None and now >= self._ends:
                return Late(self._reached, is_limit=True)
            if self._silence is not None and now >= self._heard + self._silence:
                return Late(f"{self._who} said nothing for {self._silence:g} s", is_limit=False)
            ends = [] if self._ends is None else [self._ends]
            if self._silence is not None:
                ends.append(self._heard + self._silence)
            await self._clock.sleep(min(ends) - now)
