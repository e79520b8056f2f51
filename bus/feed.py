"""What the hub knows of one followed session, and what each of its followers still has to be told."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from bus.envelope import Cursor, Envelope
from bus.messages.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bus.errors import BusError
    from bus.head import SessionHead
    from bus.keys import Keys

__all__ = ("Feed", "Question", "Subscription")

BUFFER_LIMIT = 2_000
"""Envelopes that wait for a slow subscriber; beyond it the subscriber reads them from the log again."""

_LAST = 2**64 - 1


class Subscription:
    """One follower's place in the hub: what came since it joined, until it is closed."""

    def __init__(self, feed: Feed, lanes: frozenset[Lane], *, live: bool) -> None:
        self._feed, self.lanes, self.live = feed, lanes, live
        self.start = feed.cursor
        """everything after it comes here, everything up to it is in the log already"""
        self.live_start = feed.live or self.start
        """live deltas after it come here"""
        self.fell_behind = False
        self._buffer: deque[Envelope] = deque()
        self._error: BusError | None = None
        self._news = asyncio.Event()

    async def take(self) -> list[Envelope]:
        """What has come, in order; waits until there is something. Empty only if `fell_behind`.

        Raises:
            LogRolledBack, CursorTrimmed, SessionErased, Closed: following cannot go on.
        """
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        taken = list(self._buffer)
        self._buffer.clear()
        return taken

    def close(self) -> None:
        """Leave the hub."""
        self._feed.leave(self)

    def offer(self, envelopes: Sequence[Envelope]) -> None:
        """Hand over what this follower asked for; too much is dropped at once, as the log has it."""
        wanted = [e for e in envelopes if (self.live if e.delta else e.lane in self.lanes)]
        if not wanted or self.fell_behind:
            return
        self._buffer.extend(wanted)
        if len(self._buffer) > BUFFER_LIMIT:
            self.fell_behind = True
            self._buffer.clear()
        self._news.set()

    def fail(self, error: BusError) -> None:
        """End the following with an error."""
        self._error = error
        self._news.set()


class Feed:
    """One followed session: how far the hub has read, and for whom."""

    def __init__(self, head: SessionHead, forget: Callable[[Feed], None]) -> None:
        """`forget` is called once nobody follows here any more."""
        self.session, self.cursor, self._forget = head.session, head.cursor, forget
        self.live: Cursor | None = None
        self.subscriptions: set[Subscription] = set()
        self.lanes: tuple[Lane, ...] = ()
        self.is_dirty = True

    @property
    def position(self) -> int:
        """Up to which the hub has read."""
        return self.cursor.position

    @property
    def live_id(self) -> str:
        """The id of the last live delta that the hub has read."""
        return (self.live or self.cursor).id

    def join(self, lanes: frozenset[Lane], *, live: bool) -> Subscription:
        if live and self.live is None:
            self.live = self.cursor
        subscription = Subscription(self, lanes, live=live)
        self.subscriptions.add(subscription)
        self._count()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        self.subscriptions.discard(subscription)
        self._count()
        if not self.subscriptions:
            self._forget(self)

    def offer(self, envelopes: Sequence[Envelope]) -> None:
        for subscription in tuple(self.subscriptions):
            subscription.offer(envelopes)

    def fail(self, error: BusError) -> None:
        """End all following here; who follows from now on begins with a feed of its own."""
        self._forget(self)
        for subscription in tuple(self.subscriptions):
            subscription.fail(error)

    def is_of(self, head: SessionHead) -> bool:
        """Whether the log is still the one that was read here."""
        return not head.is_erased and head.holds(self.cursor)

    def _count(self) -> None:
        wanted = {lane for subscription in self.subscriptions for lane in subscription.lanes}
        self.lanes = tuple(lane for lane in Lane if lane in wanted)
        if not any(subscription.live for subscription in self.subscriptions):
            self.live = None


class Question:
    """What is asked for one session in one turn; who joins meanwhile is not answered by it."""

    def __init__(self, feed: Feed, keys: Keys) -> None:
        self.feed, self.lanes, self.live = feed, feed.lanes, feed.live
        # From the end of the position: what a foreign client put below it, as `<position>-7`, would come for ever.
        self.streams = [(keys.lane(feed.session, lane), f"{feed.position}-{_LAST}") for lane in feed.lanes]
        if feed.live is not None:
            self.streams.append((keys.live(feed.session), feed.live_id))
