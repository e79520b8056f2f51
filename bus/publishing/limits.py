"""Limit the bytes that messages, sessions and a namespace may hold."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import anyio

from lanebus.bus.errors import SetupError, Unavailable
from lanebus.bus.errors.message import shown
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log

__all__ = ("MESSAGE_LIMIT_BYTES", "Limits", "Quota")

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
