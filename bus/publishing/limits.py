"""How much a session and a namespace may hold, and who sees to it."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio

from lanebus.bus.errors import SetupError, Unavailable
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log

__all__ = ("MESSAGE_LIMIT_BYTES", "Limits", "Quota")

RESERVE_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a publish may not go beyond. Bytes are those of the messages' JSON; what is trimmed away counts no more."""

    message_bytes: int = MESSAGE_LIMIT_BYTES
    """of one message"""
    session_bytes: int | None = None
    """of all that a session holds; kept to the byte. None is no limit"""
    namespace_bytes: int | None = None
    """of all sessions together. It is counted once a second, so that publishing does not wait for it: what all
    processes publish in a second may be over. None is no limit"""
    reserve_bytes: int = RESERVE_BYTES
    """what control messages and the end of a session may use beyond the last two limits: who cannot speak any more can
    still be stopped"""

    def __post_init__(self) -> None:
        """Raises SetupError: a limit is negative, or a message may be larger than a page of them can carry."""
        for name in ("message_bytes", "session_bytes", "namespace_bytes", "reserve_bytes"):
            value: int | None = getattr(self, name)
            if value is not None and value < 0:
                raise SetupError(f"limits: {name} is {value}, want 0 or more")
        if self.message_bytes > MESSAGE_LIMIT_BYTES:
            raise SetupError(f"limits: message_bytes is {self.message_bytes}, the most is {MESSAGE_LIMIT_BYTES}")


class _Waiting(Protocol):
    @property
    def size_bytes(self) -> int: ...
    @property
    def is_control(self) -> bool: ...


class Quota:
    """The namespace's limit: counts what all sessions hold, now and then, and what was published here since."""

    def __init__(self, log: Log, limits: Limits) -> None:
        self._log, self._limit, self._reserve = log, limits.namespace_bytes, limits.reserve_bytes
        self._age = log.bounds.size_seconds
        self.size_bytes = 0
        """of all sessions, as far as it is known"""
        self._counted_at = -math.inf
        self._counting = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time

    @property
    def limit_bytes(self) -> int:
        """The most they may hold; 0 where there is no limit."""
        return self._limit or 0

    @property
    def is_fresh(self) -> bool:
        """The last count is young enough, or there is no limit."""
        return self._limit is None or self._clock() - self._counted_at < self._age

    async def refresh(self) -> None:
        """Count again if the last count is old; once for all who ask meanwhile, who go on with the old one.

        Servers that do not answer in that time leave the old one: in a cluster the others may take more.
        """
        if self._limit is None or self._clock() - self._counted_at < self._age:
            return
        if self._counting.locked() and self._counted_at > -math.inf:
            return
        async with self._counting:
            if self._clock() - self._counted_at < self._age:
                return  # another one has, meanwhile
            with anyio.move_on_after(self._age), suppress(Unavailable):
                self.size_bytes = await self._log.size_bytes()
            self._counted_at = self._clock()

    def admit(self, publish: _Waiting) -> bool:
        """Whether there is room for it; it is counted if there is."""
        if self._limit is None:
            return True
        size = self.size_bytes + publish.size_bytes
        if size > self._limit and not (publish.is_control and size <= self._limit + self._reserve):
            return False
        self.size_bytes = size
        return True
