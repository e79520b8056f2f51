"""A subscription: what the hub has read for one follower since it joined, kept until it is taken."""

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
"""JSON that waits for a slow follower, unless it asks for another bound; what is more it reads from the log again."""

Sized = tuple["Envelope", int, bool]
"""An envelope, the bytes of its JSON, and whether it is a live delta. The id does not tell that: a foreign client may
have written 7-5 into a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubBounds:
    """How much a hub reads and looks at in one round trip, and how often."""

    direct_sessions: int = 32
    """Up to this many sessions the hub blocks on their own streams."""
    block_seconds: float = 5.0
    """A blocked read comes back at least this often, to see whether the log went backwards."""
    silence_seconds: float = 3.0
    """How much longer than it should block a read may take before its link counts as dead."""
    index_page: int = 1_000
    """Pointers of one index in one reply; no index is trimmed to fewer."""
    sessions_at_once: int = 100
    """Sessions read in one round trip."""
    unsized_sessions: int = 16
    """Where more sessions than this have changed, the hub asks for the size of what is new before it reads it."""
    page_entries: int = 60
    """Entries of one stream in one reply."""
    scanned: int = 1_000
    """A follower is told where it stands before so many entries were passed over as not wanted."""
    looks: int = 2_000
    """Sessions that are looked at each `block_seconds`. Ten thousand at once held everything else up for a fifth of a
    second."""


class SubscriptionOptions(NamedTuple):
    """What a subscription takes."""

    selection: Selection
    live: bool = False
    """also the live deltas"""
    state: bool = False
    """also whether the session is closed, at once, whatever its lanes"""


class Subscription:
    """What the hub has read for one follower, until it is closed."""

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
        """everything after it comes here, everything up to it is in the log already"""
        self.live_start = live_start
        """live deltas after it come here"""
        self.is_closed = is_closed
        """whether the session was closed at the start"""
        self.is_at_goal = goal <= start.position
        """all that was there when it joined is up to the start; else a notice tells here when it has come"""
        self.fell_behind = False
        """the buffer was full and is empty now: nothing comes here any more"""
        self._buffer: deque[tuple[Envelope | Notice, int]] = deque()
        self._room = self._buffer_bytes = buffer_bytes
        self._goal = None if self.is_at_goal else goal
        self._told = start.position
        self._error: BusError | None = None
        self._news = asyncio.Event()

    async def take(self) -> Envelope | Notice | None:
        """What came next; waits until there is something. None if it fell behind.

        Cancelled, it has taken nothing.

        Raises:
            LogRolledBack, CursorTrimmed, Closed: following cannot go on. What came before is told first.
        """
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self.fell_behind:
                return None
            self._news.clear()
            await self._news.wait()
        item, size = self._buffer.popleft()
        self._room += size
        return item

    def close(self) -> None:
        """Leave the hub."""
        self._leave(self)

    def offer(self, sized: Sequence[Sized], end: Cursor) -> None:
        """Hand over what this follower asked for of all that stands up to `end`.

        What does not fit is dropped at once with all that waits, as the log has it. What comes alone always fits.
        """
        if self.fell_behind:
            return
        selection, live, is_any = self.options.selection, self.options.live, False
        for envelope, size, is_delta in sized:
            if live if is_delta else selection.takes(envelope):
                if size > self._room < self._buffer_bytes:
                    self.drop()
                    return
                self._room -= size
                self._buffer.append((envelope, size))
                is_any = True
        if is_any:
            self._told = self._buffer[-1][0].cursor.position
            self._news.set()
        is_due = end.position - self._told > self._scanned
        is_caught_up = self._goal is not None and end.position >= self._goal
        if is_due or (is_caught_up and end.position > self._told):
            self.notify(Notice("scanned", end))
        if is_caught_up:
            self._goal = None
            self.notify(Notice("caughtUp", end))

    def notify(self, notice: Notice) -> None:
        """Put a notice after what waits."""
        if not self.fell_behind:
            self._buffer.append((notice, 0))
            self._told = notice.cursor.position
            self._news.set()

    def fail(self, error: BusError) -> None:
        """End the following with an error."""
        self._error = error
        self._news.set()

    def drop(self) -> None:
        """Give up what waits: the follower reads on from the log, and nothing comes here any more."""
        self.fell_behind = True
        self._buffer.clear()
        self._news.set()
