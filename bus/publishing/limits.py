"""Limit and count what a process publishes."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, cast

import anyio

from lanebus.bus.errors import MessageError, OutcomeUnknown, SetupError, StreamError, Unavailable
from lanebus.bus.errors.message import shown
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log


RESERVE_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a publish, in bytes of the messages' JSON. Trimmed messages are not counted.

    Stored media count in `namespace_bytes`, each once. Sessions share them, so they count in no session.

    Raises:
        SetupError: a limit is no integer or negative, or `message_bytes` is above `MESSAGE_LIMIT_BYTES`.
    """

    message_bytes: int = MESSAGE_LIMIT_BYTES
    """maximum number of bytes of one message"""
    session_bytes: int | None = None
    """maximum number of bytes that a session holds. The limit is exact to the byte. None means unlimited"""
    namespace_bytes: int | None = None
    """maximum number of bytes that all sessions and the stored media hold. None means unlimited. The bytes are counted
    only once a second, so that publishes need not wait for the count. The publishes of one second may exceed the
    limit"""
    reserve_bytes: int = RESERVE_BYTES
    """bytes beyond `session_bytes` and `namespace_bytes` that only commands and the closing of a session may use. With
    this reserve a full session can still be stopped"""

    def __post_init__(self) -> None:
        """Check the limits. Raises SetupError, as the class says."""
        for name in ("message_bytes", "session_bytes", "namespace_bytes", "reserve_bytes"):
            value: object = getattr(self, name)
            is_set = isinstance(value, int) and not isinstance(value, bool)
            if is_set and cast("int", value) < 0:
                raise SetupError(f"limits: {name} is {value}", "use 0 or more")
            if not is_set and (value is not None or name in {"message_bytes", "reserve_bytes"}):
                raise SetupError(f"limits: {name} is {shown(value)}", "use an integer number of bytes, 0 or more")
        if self.message_bytes > MESSAGE_LIMIT_BYTES:
            raise SetupError(f"limits: message_bytes is {self.message_bytes}, the most is {MESSAGE_LIMIT_BYTES}")


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...
    @property
    def is_control(self) -> bool: ...


class Quota:
    """Enforces `Limits.namespace_bytes`. Counts all bytes from time to time, and adds the bytes that this process
    publishes in between."""

    def __init__(self, log: Log, limits: Limits) -> None:
        self._log, self._limit, self._reserve = log, limits.namespace_bytes, limits.reserve_bytes
        self._age = log.bounds.size_seconds
        self.size_bytes = 0
        """bytes of all sessions and media, as far as this process knows"""
        self._counted_at = -math.inf
        self._counting = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time

    @property
    def limit_bytes(self) -> int:
        """Maximum number of bytes that all sessions and media may hold; 0 if unlimited."""
        return self._limit or 0

    @property
    def is_fresh(self) -> bool:
        """Whether the last count is recent enough to use. Always True without a limit."""
        return self._limit is None or self._clock() - self._counted_at < self._age

    async def refresh(self) -> None:
        """Refresh a stale count. Concurrent callers share one refresh and use the old value meanwhile.

        If a server does not answer in time, the old count is kept, so that publishes to the other servers of a cluster
        go on.
        """
        if self._limit is None or self._clock() - self._counted_at < self._age:
            return
        if self._counting.locked() and self._counted_at > -math.inf:
            return
        async with self._counting:
            if self._clock() - self._counted_at < self._age:
                return  # refreshed by a concurrent caller
            with anyio.move_on_after(self._age), suppress(Unavailable):
                self.size_bytes = await self._log.size_bytes()
            self._counted_at = self._clock()

    def admit(self, publish: _Sized) -> bool:
        """Return whether the limit has room for a publish. If so, add the publish's bytes to the count."""
        return self._admit(publish.size_bytes, self._reserve if publish.is_control else 0)

    def admit_bytes(self, size_bytes: int) -> bool:
        """Return whether the limit has room for media. If so, add their bytes to the count."""
        return self._admit(size_bytes, 0)

    def release_bytes(self, size_bytes: int) -> None:
        """Subtract media that were not stored, or are no longer stored."""
        self.size_bytes = max(self.size_bytes - size_bytes, 0)

    def _admit(self, size_bytes: int, reserve: int) -> bool:
        if self._limit is None:
            return True
        size = self.size_bytes + size_bytes
        if size > self._limit + reserve:
            return False
        self.size_bytes = size
        return True


PublishOutcome = Literal["appended", "duplicate", "refused", "invalid", "unavailable", "unknown", "cancelled", "failed"]
"""How a publish ended.

- "appended": the messages are in the log; "duplicate": its key was published before
- "refused": the log refused; "invalid": a message or an argument is wrong
- "unavailable": nothing was appended, because the server was away or full; "unknown": sent and not answered
- "cancelled": its caller was cancelled; "failed": any other error, such as a closed bus
"""

OUTCOMES: tuple[PublishOutcome, ...] = (
    "appended",
    "duplicate",
    "refused",
    "invalid",
    "unavailable",
    "unknown",
    "cancelled",
    "failed",
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PUBLISHES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class PublishCounts:
    """Counters since the bus was opened. They only grow."""

    __slots__ = ("batches", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: dict[PublishOutcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.seconds = Histogram(_SECONDS)
        """the time of each publish from the call to its outcome, also if it failed"""
        self.batches = Histogram(_PUBLISHES)
        """the number of publishes in each round trip"""

    def note_receipt(self, seconds: float, *, is_duplicate: bool) -> None:
        """Count a publish that returned a receipt after `seconds`."""
        self.outcomes["duplicate" if is_duplicate else "appended"] += 1
        self.seconds.add(seconds)

    def note_error(self, seconds: float, error: BaseException) -> None:
        """Count a publish that raised `error` after `seconds`."""
        self.outcomes[_outcome(error)] += 1
        self.seconds.add(seconds)


def _outcome(error: BaseException) -> PublishOutcome:
    if not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, StreamError):
        return "refused"
    return "invalid" if isinstance(error, MessageError) else "failed"


class Histogram:
    """Counts values by range, and sums all values. Values can be added, but not removed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """
        Args:
            bounds: the highest value of each range, ascending. A last range has all higher values.
        """
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """the number of values in each range; not cumulative"""
        self.total = 0.0
        """the sum of all values"""

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def merge(self, other: Histogram) -> None:
        """Add the counts and the sum of another histogram, which must have the same bounds."""
        for at, count in enumerate(other.counts):
            self.counts[at] += count
        self.total += other.total
