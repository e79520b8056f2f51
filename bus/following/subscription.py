"""A subscription: the buffer between the hub and one follower."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.wire.envelope import Cursor, Envelope
    from lanebus.bus.wire.selection import Selection

__all__ = ("BUFFER_BYTES", "HubBounds", "Sized", "Subscription", "SubscriptionOptions")

BUFFER_BYTES = 1_048_576
"""Default bound of the JSON buffered for a slow follower. Beyond it the follower reads the log again."""

Sized = tuple["Envelope", int, bool]
"""An envelope, the bytes of its JSON, and whether it is a live delta. The id does not show the latter: a foreign client
may have written 7-5 into a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubBounds:
    """Bounds of a hub's reads, and its periods."""

    direct_sessions: int = 32
    """Most followed sessions for which the hub blocks on their own streams; beyond, it blocks on their indexes."""
    block_seconds: float = 5.0
    """Longest time that a read blocks. The hub then checks whether the logs were rolled back."""
    silence_seconds: float = 3.0
    """Seconds that a read may take longer than it blocks, before its connection counts as dead."""
    index_page: int = 1_000
    """Pointers of one index in one reply. No index is trimmed to fewer."""
    sessions_at_once: int = 100
    """Sessions read in one round trip."""
    unsized_sessions: int = 16
    """If more sessions than this have changed, the hub first asks for the size of their new entries."""
    page_entries: int = 60
    """Entries of one stream in one reply."""
    scanned: int = 1_000
    """Most entries that a follower skips as unwanted before it gets a `scanned` notice with its cursor."""
    looks: int = 2_000
    """Quiet sessions that are checked for a rollback every `block_seconds`. Checking ten thousand at once blocked the
    event loop for 0.2 s."""


class SubscriptionOptions(NamedTuple):
    """The envelopes and notices that a subscription delivers."""

    selection: Selection
    live: bool = False
    """deliver live deltas too"""
    state: bool = False
    """deliver notices that the session was closed or reopened, for any lanes"""


class Subscription:
    """Buffers the entries that the hub reads for one follower, from `start` on until it is closed."""

    def __init__(
        self,
        options: SubscriptionOptions,
        buffer_bytes: int,
        goal: int,
        *,
        start: Cursor,
        live_start: Cursor,
        is_closed: bool,
        leave: Callable[[Subscription], None],
        bounds: HubBounds,
    ) -> None:
        self._scanned = max(bounds.scanned - len(Lane) * bounds.page_entries, 0)
        self.options, self._leave = options, leave
        self.start = start
        """the hub delivers the entries after it; the follower reads those up to it from the log"""
        self.live_start = live_start
        """the hub delivers the live deltas after it"""
        self.is_closed = is_closed
        """whether the session was closed at the start"""
        self.is_at_goal = goal <= start.position
        """the entries that existed at the start end at `start`; if False, a `caughtUp` notice follows them"""
        self.fell_behind = False
        """the buffer was full and was dropped; the hub delivers nothing more"""
        self._buffer: deque[tuple[Envelope | Notice, int]] = deque()
        self._room = self._buffer_bytes = buffer_bytes
        self._goal = None if self.is_at_goal else goal
        self._notified = start.position
        self._error: BusError | None = None
        self._event = asyncio.Event()

    async def take(self) -> Envelope | Notice | None:
        """Wait for the next envelope or notice and remove it from the buffer. Return None if the buffer was dropped.

        A cancelled call removes nothing.

        Raises:
            LogRolledBack: the log lost entries that were delivered. The buffer is empty.
            CursorTrimmed: the next entry was trimmed. The buffer is empty.
            Closed: the subscription or the bus was closed. The buffer is empty.
        """
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self.fell_behind:
                return None
            self._event.clear()
            await self._event.wait()
        item, size = self._buffer.popleft()
        self._room += size
        return item

    def close(self) -> None:
        """Leave the hub."""
        self._leave(self)

    def offer(self, sized: Sequence[Sized], end: Cursor) -> None:
        """Buffer the envelopes that this follower selected, of all entries up to `end`.

        If one does not fit, the whole buffer is dropped: the log still has the entries. An empty buffer takes any
        single envelope.
        """
        if self.fell_behind:
            return
        selection, live, is_added = self.options.selection, self.options.live, False
        for envelope, size, is_delta in sized:
            if live if is_delta else selection.takes(envelope):
                if size > self._room < self._buffer_bytes:
                    self.drop()
                    return
                self._room -= size
                self._buffer.append((envelope, size))
                is_added = True
        if is_added:
            self._notified = self._buffer[-1][0].cursor.position
            self._event.set()
        is_due = end.position - self._notified > self._scanned
        is_caught_up = self._goal is not None and end.position >= self._goal
        if is_due or (is_caught_up and end.position > self._notified):
            self.notify(Notice("scanned", end))
        if is_caught_up:
            self._goal = None
            self.notify(Notice("caughtUp", end))

    def notify(self, notice: Notice) -> None:
        """Buffer a notice."""
        if not self.fell_behind:
            self._buffer.append((notice, 0))
            self._notified = notice.cursor.position
            self._event.set()

    def fail(self, error: BusError) -> None:
        """End the subscription with an error, raised once the buffer is empty."""
        self._error = error
        self._event.set()

    def drop(self) -> None:
        """Drop the buffer and end the subscription; the follower reads the log again."""
        self.fell_behind = True
        self._buffer.clear()
        self._event.set()
