"""When something that failed is tried again, and when it is given up. Pure: time and chance are the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from lanebus.bus.errors import BusError, Closed, MessageError, SetupError, StreamError

__all__ = ("GiveUp", "Jitter", "Retry", "RetryPolicy")

Jitter = Literal["full", "equal", "none"]
"""how much of a delay is left to chance: all of it, its second half, nothing"""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after so many seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not try again: `reason` is why."""

    reason: Literal["attempts", "error"]
    """as often as may be was tried already; or this error does not pass by itself"""


def passes_by_itself(error: Exception) -> bool:
    """Whether trying again may help: with any error but those by which the bus says that it does not."""
    if isinstance(error, BusError):
        return not isinstance(error, (MessageError, SetupError, StreamError, Closed))
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often something is tried, with which pauses, after which errors.

    The pause after attempt n is `base` × `factor`ⁿ⁻¹ seconds, `longest` at most, then left to chance as `jitter` says:
    workers that failed together do not come again together.
    """

    attempts: int = 5
    """the most there are, the first one counted"""
    base: float = 1.0
    """seconds"""
    factor: float = 2.0
    longest: float = 300.0
    """seconds"""
    jitter: Jitter = "full"
    retried: tuple[type[Exception], ...] | None = None
    """only after errors of these types, and of those below them; None is any"""
    is_retried: Callable[[Exception], bool] = passes_by_itself
    """and only where this says so"""

    def __post_init__(self) -> None:
        """Raises SetupError: a number cannot be meant."""
        if self.attempts < 1:
            raise SetupError(f"retry policy: attempts is {self.attempts}, want 1 or more")
        for name, value, least in (("base", self.base, 0), ("factor", self.factor, 1), ("longest", self.longest, 0)):
            if not isfinite(value) or value < least:
                raise SetupError(f"retry policy: {name} is {value}, want {least} or more")

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds to wait after an attempt.

        Args:
            attempt: from 1.
            chance: from 0 up to 1, as `random.random()` gives it.
        """
        try:
            whole = min(self.base * self.factor ** max(attempt - 1, 0), self.longest)
        except OverflowError:
            whole = self.longest if self.base else 0.0
        match self.jitter:
            case "full":
                return whole * chance
            case "equal":
                return whole / 2 + whole / 2 * chance
            case "none":
                return whole

    def decide(self, error: Exception, attempt: int, chance: float = 1.0, *, least: float = 0.0) -> Retry | GiveUp:
        """What to do after an attempt failed.

        Args:
            attempt: which it was, from 1.
            chance: see `delay`.
            least: seconds to wait at least, as a provider may have asked for; that may be more than `longest`.
        """
        is_wanted = self.retried is None or isinstance(error, self.retried)
        if not is_wanted or not self.is_retried(error):
            return GiveUp("error")
        if attempt >= self.attempts:
            return GiveUp("attempts")
        return Retry(max(self.delay(attempt, chance), least))
