"""Decide whether and when to retry after a failure. Pure: the caller passes in the random number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal, cast, get_args

from lanebus.bus.errors import BusError, Closed, MessageError, SetupError, StreamError

__all__ = ("GiveUp", "Jitter", "Retry", "RetryPolicy")

Jitter = Literal["full", "equal", "none"]
"""which part of a delay is random: "full" all of it, "equal" its second half, "none" no part"""


@dataclass(frozen=True, slots=True)
class Retry:
    """Decision to try again after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Decision not to try again, and why."""

    reason: Literal["attempts", "error"]
    """"attempts": no attempt is left; "error": the policy does not retry this error"""


def passes_by_itself(error: Exception) -> bool:
    """Return whether a retry after `error` may succeed.

    False for `MessageError`, `SetupError`, `StreamError` and `Closed`; True for any other error.
    """
    if isinstance(error, BusError):
        return not isinstance(error, (MessageError, SetupError, StreamError, Closed))
    return True


def _is_number(value: object, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often to try, how long to pause, and after which errors.

    The pause after attempt n is `base` × `factor`ⁿ⁻¹ seconds, at most `longest`, then randomised by `jitter`. Jitter
    keeps workers that failed at the same time from retrying at the same time.

    Raises:
        SetupError: `attempts` or `factor` is below 1, a number of seconds is negative or not finite, `jitter` is
            unknown, or a field has a wrong type.
    """

    attempts: int = 5
    """maximum number of attempts, including the first attempt"""
    base: float = 1.0
    """seconds to pause after the first attempt, before jitter"""
    factor: float = 2.0
    """number by which a pause is multiplied to get the next pause"""
    longest: float = 300.0
    """longest pause, in seconds"""
    jitter: Jitter = "full"
    """part of each pause that is random: "full" all of it, "equal" its second half, "none" no part"""
    retried: tuple[type[Exception], ...] | None = None
    """error types to retry, subclasses included; None means any"""
    is_retried: Callable[[Exception], bool] = passes_by_itself
    """called with the error. If it returns False, the error is not retried, even if `retried` lists its type"""

    def __post_init__(self) -> None:
        """Check the numbers. Raises SetupError, as the class says."""
        if not _is_number(self.attempts, int) or self.attempts < 1:
            raise SetupError(f"retry policy: attempts is {self.attempts!r}", "use 1 or more")
        for name, value, least in (("base", self.base, 0), ("factor", self.factor, 1), ("longest", self.longest, 0)):
            if not _is_number(value, (int, float)) or not isfinite(value) or value < least:
                raise SetupError(f"retry policy: {name} is {value!r}", f"use {least} or more")
        if self.jitter not in get_args(Jitter):
            raise SetupError(f"retry policy: jitter is {self.jitter!r}", 'use "full", "equal" or "none"')
        retried = cast("object", self.retried)
        if retried is not None and not (
            isinstance(retried, tuple) and all(map(_is_error, cast("tuple[object]", retried)))
        ):
            raise SetupError("retry policy: retried is no tuple of exception types", "use (TimeoutError,) or None")
        if not callable(self.is_retried):
            raise SetupError("retry policy: is_retried is no function", "use a function of the error")

    def delay(self, attempt: int, chance: float) -> float:
        """Return the seconds to pause after an attempt.

        Args:
            attempt: number of the attempt that failed, from 1.
            chance: a random number from 0 up to 1, such as `random.random()`.
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
        """Return whether to retry after a failed attempt, and when.

        Args:
            error: the error that the attempt raised.
            attempt: number of the attempt, from 1.
            chance: a random number from 0 up to 1; the default 1.0 makes the pause as long as possible.
            least: shortest pause in seconds, for example a provider's `retry-after`. It may exceed `longest`.
        """
        is_wanted = self.retried is None or isinstance(error, self.retried)
        if not is_wanted or not self.is_retried(error):
            return GiveUp("error")
        if attempt >= self.attempts:
            return GiveUp("attempts")
        return Retry(max(self.delay(attempt, chance), least))
