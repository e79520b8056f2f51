"""The state of one followed session: how far the hub has read it, and its subscriptions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lanebus.bus.following.subscription import HubBounds, Sized, Subscription, SubscriptionOptions
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.notice import Notice
from lanebus.bus.wire.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.wire.keys import Keys

__all__ = ("FollowedSession",)


class FollowedSession:
    """One followed session, the hub's cursor in it, and its subscriptions."""

    def __init__(
        self,
        head: SessionHead,
        keys: Keys,
        bounds: HubBounds,
        *,
        forget: Callable[[FollowedSession], None],
        changed: Callable[[FollowedSession], None],
    ) -> None:
        """Begin to follow a session at the end that `head` reports.

        Args:
            head: the session's head.
            keys: names of the streams.
            bounds: bounds of the subscriptions.
            forget: function to call after the last subscription has left.
            changed: function to call if other streams have to be read from now on.
        """
        self.session, self.cursor = head.session, head.cursor
        self.proof = head.cursor
        """cursor of the last head that was read. As long as this cursor is valid, the log has lost nothing that the hub
        read"""
        self.caught_up = head
        """the last head whose entries the hub has read completely"""
        self.bucket = keys.bucket(head.session)
        self.names = {lane: keys.lane(head.session, lane) for lane in Lane}
        self.live_name = keys.live(head.session)
        self.live: Cursor | None = None
        """cursor of the last live delta that the hub has read; None if no subscription takes live deltas"""
        self.is_closed = head.is_closed
        """whether the session is closed by the last entry that the hub has read"""
        self.subscriptions: dict[Subscription, None] = {}
        self.lanes: tuple[Lane, ...] = ()
        self.selection = Selection(frozenset())
        """covers what each subscription selects, and perhaps more"""
        self.newest = head
        """the newest head that was read. All entries up to its position are in the streams by now. If only one lane is
        read, a position without an entry belongs to the other lane, and trimming that entry loses nothing"""
        self.foreign: dict[Lane, str] = {}
        """for each lane with foreign entries that this process may not quarantine, the id of the last of them"""
        self._forget, self._changed, self._bounds = forget, changed, bounds
        self._options: Counter[SubscriptionOptions] = Counter()

    @property
    def position(self) -> int:
        """The last position that the hub has read."""
        return self.cursor.position

    @property
    def live_id(self) -> str:
        """The id of the last live delta that the hub has read."""
        return (self.live or self.cursor).id

    def join(self, options: SubscriptionOptions, buffer_bytes: int, head: SessionHead | None) -> Subscription:
        """Add a subscription.

        Args:
            options: what the subscription delivers.
            buffer_bytes: bound of the subscription's buffer, in bytes of JSON.
            head: the session's head, at whose position the subscription has caught up; None means that it has caught up
                from the start.
        """
        goal, live_id = (0, "") if head is None else (head.position, head.live_id)
        if head is not None and self.note_new_entries(head):
            self._changed(self)
        if options.live and self.live is None:
            self.live = self.cursor
            # Begin at the newest delta only if it is at this position. A delta at a later position comes after entries
            # that were not read yet.
            if live_id and (newest := Cursor.parse(live_id)).position == self.position:
                self.live = newest._replace(incarnation=self.cursor.incarnation, proof=self.cursor.proof)
        subscription = Subscription(
            options,
            buffer_bytes,
            goal,
            start=self.cursor,
            live_start=self.live or self.cursor,
            is_closed=self.is_closed,
            agent=self.newest.agent,
            leave=self._leave,
            bounds=self._bounds,
        )
        self.subscriptions[subscription] = None
        self._options[options] += 1
        if self._options[options] == 1:
            self._count()
        return subscription

    def _leave(self, subscription: Subscription) -> None:
        if subscription not in self.subscriptions:
            return
        del self.subscriptions[subscription]
        self._options[subscription.options] -= 1
        if not self.subscriptions:
            self._forget(self)
        elif not self._options[subscription.options]:
            del self._options[subscription.options]
            self._count()

    def advance(self, sized: Sequence[Sized], head: SessionHead, end: Cursor, live: Cursor | None) -> None:
        """Move the hub's cursor to `end`, and offer `sized` to every subscription.

        Subscriptions with `state` are also notified if the session was closed or reopened.

        Args:
            sized: envelopes and live deltas, each with its size.
            head: the session's head, read after the envelopes.
            end: cursor of the last position that was read.
            live: cursor of the last live delta that was read; None if no delta was read.
        """
        previous, was_closed, has_moved = self.cursor, self.is_closed, end.position > self.position
        if has_moved:
            self.cursor = end
        self.live = live or self.live
        self._know(head)
        self.proof = head.cursor
        if end.position == head.position:
            self.caught_up = head
        self.is_closed = head.is_closed and head.position == end.position
        if was_closed and (has_moved or not self.is_closed):
            self._notify(Notice("reopened", previous))
        if sized or has_moved:
            for subscription in tuple(self.subscriptions):
                subscription.offer(sized, self.cursor)
        if self.is_closed and (has_moved or not was_closed):
            self._notify(Notice("closed", self.cursor))

    def fail(self, error: BusError) -> None:
        """End all subscriptions with an error. Later subscriptions get a new `FollowedSession`."""
        self._forget(self)
        for subscription in tuple(self.subscriptions):
            subscription.fail(error)

    def is_at(self, fingerprint: bytes) -> bool:
        """Return whether the hub has read everything in the session, judging by the session's current `fingerprint`."""
        return (
            self.live is None and self.position == self.caught_up.position and self.caught_up.fingerprint == fingerprint
        )

    def drop(self) -> None:
        """Drop the buffers of all subscriptions. Each follower then reads the log and subscribes again."""
        self._forget(self)
        for subscription in tuple(self.subscriptions):
            subscription.drop()

    def note_new_entries(self, head: SessionHead) -> bool:
        """Return whether the log has entries that the hub has not read. If so, set `newest` to the head.

        This happens if a change notice was lost, or if no subscription reads the lane of the new entries.
        """
        if head.position <= self.position:
            return False
        self.foreign.clear()  # another process has quarantined them, or the entries would not fit below them
        if head.position > self.newest.position:
            self._know(head)
        return True

    def _know(self, head: SessionHead) -> None:
        if head.agent != self.newest.agent:
            for subscription in self.subscriptions:
                subscription.agent = head.agent
        self.newest = head

    def precedes_fork(self, head: SessionHead) -> bool:
        """Return whether the session has become a fork since the hub began to follow it.

        The hub then lacks the shared entries, which the parent session holds.
        """
        return head.origin is not None and self.position < head.origin.position

    def _notify(self, notice: Notice) -> None:
        for subscription in tuple(self.subscriptions):
            if subscription.options.state:
                subscription.notify(notice)

    def _count(self) -> None:
        options = tuple(self._options)
        self.selection = Selection.union(each.selection for each in options)
        lanes = {*self.selection.lanes}
        if any(each.state for each in options):
            lanes.add(Lane.EXTENSION)  # a close or reopen appends its message to this lane
        self.lanes = tuple(lane for lane in Lane if lane in lanes)
        if not any(each.live for each in options):
            self.live = None
        self._changed(self)
