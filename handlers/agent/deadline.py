"""The deadline of a running call: the time limit of its loop, or the longest silence of the call."""

from typing import NamedTuple

from lanebus.handlers.agent.clock import Clock

__all__ = ("Deadline", "Late")


class Late(NamedTuple):
    """Why a call was cut."""

    text: str
    is_limit: bool
    """whether the loop's time limit was reached. False means that the call was silent for too long"""


class Deadline:
    """The time limit and the longest silence of one call."""

    def __init__(
        self, clock: Clock, *, left: float | None, reached: str = "", silence: float | None = None, name: str = ""
    ) -> None:
        """
        Args:
            left: seconds until the loop's time limit; None means no limit.
            reached: the text for a reached limit.
            silence: maximum number of seconds between two calls of `restart_silence`; None means no limit.
            name: subject of the text for a silence, such as "the model".
        """
        self._clock, self._silence, self._reached, self._name = clock, silence, reached, name
        self._last_activity = clock.monotonic()
        self._ends = None if left is None else self._last_activity + left

    @property
    def is_open(self) -> bool:
        """Whether the call may run forever: its time and its silence are unlimited."""
        return self._ends is None and self._silence is None

    def restart_silence(self) -> None:
        """Record that the call is active, so that its silence is counted from now."""
        self._last_activity = self._clock.monotonic()

    async def wait(self) -> Late:
        """Wait until the deadline and return its reason. Call this only if `is_open` is false."""
        while True:
            now = self._clock.monotonic()
            if self._ends is not None and now >= self._ends:
                return Late(self._reached, is_limit=True)
            if self._silence is not None and now >= self._last_activity + self._silence:
                return Late(f"{self._name} said nothing for {self._silence:g} s", is_limit=False)
            ends = [] if self._ends is None else [self._ends]
            if self._silence is not None:
                ends.append(self._last_activity + self._silence)
            await self._clock.sleep(min(ends) - now)
