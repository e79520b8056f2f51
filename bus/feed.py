"""What the hub knows of one followed session, and for whom it reads it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bus.codec import MESSAGE_LIMIT_BYTES
from bus.envelope import Cursor
from bus.messages.lanes import Lane
from bus.notice import Notice
from bus.selection import Selection
from bus.subscription import HubBounds, Interest, Sized, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bus.errors import BusError
    from bus.head import SessionHead
    from bus.keys import Keys

__all__ = ("Feed", "Question")

_LAST = 2**64 - 1


class Feed:
    """One followed session: how far the hub has read, and for whom."""

    def __init__(
        self,
        head: SessionHead,
        keys: Keys,
        bounds: HubBounds,
        *,
        forget: Callable[[Feed], None],
        changed: Callable[[Feed], None],
    ) -> None:
        """`changed` is called when other things are to be read than before, `forget` once nobody follows here."""
        self.session, self.cursor = head.session, head.cursor
        self.proof = head.cursor
        """of the head that was read last: while the log holds it, it holds what was read here"""
        self.caught_up = head
        """the last head whose end was read"""
        self.bucket = keys.bucket(head.session)
        self.names = {lane: keys.lane(head.session, lane) for lane in Lane}
        self.live_name = keys.live(head.session)
        self.live: Cursor | None = None
        """the last live delta that was read; None if nobody here wants them"""
        self.is_closed = head.is_closed
        """the session was closed with the last entry that was read"""
        self.subscriptions: dict[Subscription, None] = {}
        self.lanes: tuple[Lane, ...] = ()
        self.selection = Selection(frozenset())
        """what anybody here wants, and perhaps more"""
        self.counted = head.position
        """All up to here is in the streams, if they are asked from now on: where one lane is read the other may have
        taken what is between, and trimming that is no loss"""
        self._forget, self._changed, self._bounds = forget, changed, bounds
        self._interests: Counter[Interest] = Counter()

    @property
    def position(self) -> int:
        """Up to which the hub has read."""
        return self.cursor.position

    @property
    def live_id(self) -> str:
        """The id of the last live delta that the hub has read."""
        return (self.live or self.cursor).id

    def join(self, interest: Interest, buffer_bytes: int, goal: int, live_id: str = "") -> Subscription:
        """A new follower, who has caught up once position `goal` was read.

        Args:
            live_id: the highest id that any live delta had a moment ago; "" is not known.
        """
        if goal > self.position:
            self.counted = max(self.counted, goal)
            self._changed(self)
        if interest.live and self.live is None:
            self.live = self.cursor
            # Not above the position: what hangs below entries that were not read yet comes behind them.
            if live_id and (newest := Cursor.parse(live_id)).position == self.position:
                self.live = newest._replace(incarnation=self.cursor.incarnation)
        subscription = Subscription(
            interest,
            buffer_bytes,
            goal,
            start=self.cursor,
            live_start=self.live or self.cursor,
            is_closed=self.is_closed,
            leave=self._leave,
            bounds=self._bounds,
        )
        self.subscriptions[subscription] = None
        self._interests[interest] += 1
        if self._interests[interest] == 1:
            self._count()
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        if subscription not in self.subscriptions:
            return
        del self.subscriptions[subscription]
        self._interests[subscription.interest] -= 1
        if not self.subscriptions:
            self._forget(self)
        elif not self._interests[subscription.interest]:
            del self._interests[subscription.interest]
            self._count()

    def advance(self, sized: Sequence[Sized], head: SessionHead, end: Cursor, live: Cursor | None) -> None:
        """Hand out what was read up to `end`, and up to the last live delta, if there was one.

        Args:
            head: read behind it.
        """
        before, was_closed, has_moved = self.cursor, self.is_closed, end.position > self.position
        if has_moved:
            self.cursor = end
        self.live = live or self.live
        self.counted, self.proof = head.position, head.cursor
        if end.position == head.position:
            self.caught_up = head
        self.is_closed = head.is_closed and head.position == end.position
        if was_closed and (has_moved or not self.is_closed):
            self._tell(Notice("reopened", before))
        if sized or has_moved:
            for subscription in tuple(self.subscriptions):
                subscription.offer(sized, self.cursor)
        if self.is_closed and (has_moved or not was_closed):
            self._tell(Notice("closed", self.cursor))

    def fail(self, error: BusError) -> None:
        """End all following here; who follows from now on begins with a feed of its own."""
        self._forget(self)
        for subscription in tuple(self.subscriptions):
            subscription.fail(error)

    def is_at(self, glance: bytes) -> bool:
        """Whether all that there is was read here, if the session stands there."""
        return self.live is None and self.position == self.caught_up.position and self.caught_up.glance == glance

    def let_go(self) -> None:
        """Leave the reading to those who follow here: each goes on from the log, and follows here again behind it."""
        self._forget(self)
        for subscription in tuple(self.subscriptions):
            subscription.drop()

    def falls_short_of(self, head: SessionHead) -> bool:
        """Whether there is more than was read here: its change notice was lost, or it stands in the lane that is not
        read here. The next read takes it on."""
        if head.position <= self.position:
            return False
        self.counted = max(self.counted, head.position)
        return True

    def precedes_fork(self, head: SessionHead) -> bool:
        """Whether the session began as a fork after this feed did. What it shares is in its parent's streams alone."""
        return head.origin is not None and self.position < head.origin.position

    def _tell(self, notice: Notice) -> None:
        for subscription in tuple(self.subscriptions):
            if subscription.interest.state:
                subscription.tell(notice)

    def _count(self) -> None:
        interests = tuple(self._interests)
        self.selection = Selection.union(interest.selection for interest in interests)
        lanes = {*self.selection.lanes}
        if any(interest.state for interest in interests):
            lanes.add(Lane.EXTENSION)  # where closing leaves its note, which wakes the reader
        self.lanes = tuple(lane for lane in Lane if lane in lanes)
        if not any(interest.live for interest in interests):
            self.live = None
        self._changed(self)


class Question:
    """What is asked for one session in one turn; who joins meanwhile is not answered by it."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.lanes, self.live, self.counted = feed, feed.lanes, feed.live, feed.counted
        # From the end of the position: what a foreign client put below it, as `<position>-7`, would come for ever.
        place = f"{feed.position}-{_LAST}"
        self.streams = [(feed.names[lane], place) for lane in feed.lanes]
        if feed.live is not None:
            self.streams.append((feed.live_name, feed.live_id))

    def unread_bytes(self, stored: Sequence[bytes | None]) -> int:
        """Return the most JSON that the answer can have, if nothing more is appended.

        Args:
            stored: the fields position, bytes, trimmed and live of the head as it is now.
        """
        position, held, trimmed = (int(number or 0) for number in stored[:3])
        before, live = self.feed.caught_up, 0
        if before.trimmed == trimmed:  # else nobody knows how many of the bytes that are gone had been read
            held -= before.size_bytes
        words = (stored[3] or b"").split(b" ")
        if self.live is not None and len(words) > 1 and words[1].isdigit():
            live = int(words[1])
        return max(0, min(held, (position - self.feed.position) * MESSAGE_LIMIT_BYTES)) + live
