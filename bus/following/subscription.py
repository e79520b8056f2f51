"""A subscription is the buffer between the hub and one follower."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lanebus.bus.errors import check_bounds
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.wire.envelope import Cursor, Envelope
    from lanebus.bus.wire.selection import Selection

__all__ = ("BUFFER_BYTES", "DirectReceiver", "HubBounds", "Sized", "Subscription", "SubscriptionOptions")

BUFFER_BYTES = 1_048_576
"""Default number of bytes of JSON that are buffered for a slow follower. If there are more, the follower reads the log
again."""

Sized = tuple["Envelope", int, bool]
"""An envelope, the bytes of its JSON, and whether the envelope is a live delta. A live delta's id
looks like 7-5, but a foreign client may have written such an id into a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubBounds:
    """Bounds and periods of a hub's reads."""

    direct_sessions: int = 32
    """If at most this many sessions are followed, the hub blocks on the sessions' own streams, otherwise on indexes."""
    block_seconds: float = 5.0
    """Longest time that a read blocks. After that the hub checks whether logs were rolled back."""
    silence_seconds: float = 3.0
    """Seconds beyond `block_seconds` after which a read without a reply means that the connection is dead."""
    index_page: int = 1_000
    """Maximum number of entries of one index in one reply. A trim of an index keeps at least this many entries."""
    sessions_at_once: int = 100
    """Maximum number of sessions that are read in one round trip."""
    unsized_sessions: int = 16
    """If more sessions than this have changed, the hub first asks for the size of each session's new entries."""
    page_entries: int = 60
    """Maximum number of entries of one stream in one reply."""
    scanned_entries: int = 1_000
    """After about this many entries that a follower has not selected, the follower gets a `scanned` notice."""
    checked_sessions: int = 2_000
    """Maximum number of quiet sessions that are checked for a rollback every `block_seconds`. Checking ten thousand at
    once blocked the event loop for 0.2 s."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.hub", zero=("direct_sessions", "unsized_sessions"))


class SubscriptionOptions(NamedTuple):
    """The envelopes and notices that a subscription delivers."""

    selection: Selection
    live: bool = False
    """whether to deliver live deltas too"""
    state: bool = False
    """whether to deliver a notice if the session is closed or reopened, regardless of the selected lanes"""


class DirectReceiver(Protocol):
    """Receives items in the hub's task, while the follower waits. This saves waking a task for each follower.

    Both methods are called one after the other, without a pause in between, and never wait.
    """

    def can_receive(self, item: Envelope | Notice, /) -> bool:
        """Return whether `receive` will take this item. If not, the follower is woken and yields the item. An error
        counts as False."""
        ...

    def receive(self, item: Envelope | Notice, /) -> None:
        """Take an item. An error ends this follower alone, which raises it."""
        ...


class Subscription:
    """Buffers the entries after `start` that the hub reads for one follower, until the subscription is closed."""

    __slots__ = (
        *("_buffer", "_buffer_bytes", "_error", "_goal", "_leave", "_notified", "_room", "_scanned", "_waiter"),
        *("agent", "direct", "fell_behind", "is_at_goal", "is_closed", "live_start", "options", "start"),
    )

    def __init__(
        self,
        options: SubscriptionOptions,
        buffer_bytes: int,
        goal: int,
        *,
        start: Cursor,
        live_start: Cursor,
        is_closed: bool,
        agent: str,
        leave: Callable[[Subscription], None],
        bounds: HubBounds,
    ) -> None:
        self._scanned = max(bounds.scanned_entries - len(Lane) * bounds.page_entries, 0)
        self.options, self._leave = options, leave
        self.start = start
        """cursor after which the hub delivers entries. The follower reads the entries up to this cursor from the log"""
        self.live_start = live_start
        """cursor after which the hub delivers live deltas"""
        self.is_closed = is_closed
        """whether the session was closed when the subscription began"""
        self.agent = agent
        """the agent of the session, as of the last entry that was delivered, or later"""
        self.is_at_goal = goal <= start.position
        """whether `start` was the end of the session when the subscription began. If False, the hub delivers a
        `caughtUp` notice later, after the entries that existed then"""
        self.direct: Callable[[Envelope | Notice], bool] | None = None
        """takes an item while `take` waits, and returns whether it did; None buffers every item"""
        self.fell_behind = False
        """whether the buffer was full and was dropped. The hub then delivers nothing more"""
        self._buffer: list[tuple[Envelope | Notice, int]] = []
        self._room = self._buffer_bytes = buffer_bytes
        self._goal = None if self.is_at_goal else goal
        self._notified = start.position
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None  # an event would cost 700 bytes

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
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        item, size = self._buffer.pop(0)  # the buffer is short, and an empty deque would cost 600 bytes
        self._room += size
        return item

    @property
    def lag(self) -> tuple[int, int]:
        """The number of entries and notices in the buffer, and the bytes of their JSON."""
        return len(self._buffer), self._buffer_bytes - self._room

    def close(self) -> None:
        """End the subscription, so that the hub delivers nothing more."""
        self._leave(self)

    def offer(self, sized: Sequence[Sized], end: Cursor) -> None:
        """Buffer the envelopes of `sized` that this follower selected.

        If an envelope does not fit, the whole buffer is dropped. Nothing is lost, because the log still has the
        entries. An empty buffer takes a single envelope of any size.

        Args:
            sized: envelopes and live deltas, each with its size.
            end: cursor of the last position that the hub has read.
        """
        if self.fell_behind or self._error is not None:
            return
        selection, live = self.options.selection, self.options.live
        for envelope, size, is_delta in sized:
            if live if is_delta else selection.takes(envelope):
                self._notified = envelope.position
                if self._passes(envelope):
                    if self._error is not None:
                        return  # the direct receiver failed
                    continue
                if size > self._room < self._buffer_bytes:
                    self.drop()
                    return
                self._room -= size
                self._buffer.append((envelope, size))
                self._wake()
        is_due = end.position - self._notified > self._scanned
        is_caught_up = self._goal is not None and end.position >= self._goal
        if is_due or (is_caught_up and end.position > self._notified):
            self.notify(Notice("scanned", end))
        if is_caught_up:
            self._goal = None
            self.notify(Notice("caughtUp", end))

    def notify(self, notice: Notice) -> None:
        """Buffer a notice."""
        if not self.fell_behind and self._error is None:
            self._notified = notice.cursor.position
            if not self._passes(notice):
                self._buffer.append((notice, 0))
                self._wake()

    def _passes(self, item: Envelope | Notice) -> bool:
        """Pass an item on at once, if nothing waits before it. Return whether it was taken."""
        is_waiting = self._waiter is not None and not self._waiter.done()
        return is_waiting and not self._buffer and self.direct is not None and self.direct(item)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the subscription with an error. `take` raises the first one once the buffer is empty."""
        self._error = self._error or error
        self._wake()

    def drop(self) -> None:
        """Drop the buffer and end the subscription; the follower reads the log again."""
        self.fell_behind = True
        self._buffer.clear()
        self._wake()
