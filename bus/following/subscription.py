"""A subscription is the buffer between the hub and one follower. A followed session has the subscriptions to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lanebus.bus.errors import check_bounds
from lanebus.bus.messages.base import Lane
from lanebus.bus.wire.codec import Cursor, Notice, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.log import SessionHead
    from lanebus.bus.wire.codec import Envelope
    from lanebus.bus.wire.keys import Keys


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


class FollowedSessions:
    """The followed sessions by id and by index. A session is marked if it has to be read.

    An index is a stream that names changed sessions. Each bucket has two indexes: for entries and for live deltas.
    """

    def __init__(self, keys: Keys, bounds: HubBounds) -> None:
        self._keys, self._bounds = keys, bounds
        self._sessions: dict[str, FollowedSession] = {}
        self._dirty: dict[FollowedSession, None] = {}
        self._indexes: dict[str, dict[FollowedSession, None]] = {}
        self._unseen: list[FollowedSession] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, followed: FollowedSession) -> bool:
        return self._sessions.get(followed.session) is followed

    @property
    def all(self) -> tuple[FollowedSession, ...]:
        """All followed sessions, in no order."""
        return tuple(self._sessions.values())

    @property
    def any(self) -> str:
        """The id of any followed session. At least one session must be followed. All followed sessions are on one
        server."""
        return next(iter(self._sessions))

    @property
    def indexes(self) -> Collection[str]:
        """The index streams of the followed sessions."""
        return self._indexes.keys()

    def get(self, session: str) -> FollowedSession | None:
        """Return the followed session with the id `session`; None if that session is not followed."""
        return self._sessions.get(session)

    def add(self, head: SessionHead) -> FollowedSession:
        """Follow a session from `head` on. Also mark the session to be read: entries may have been appended since."""
        followed = FollowedSession(head, self._keys, self._bounds, forget=self._forget, changed=self._changed)
        self._sessions[followed.session] = followed
        self._changed(followed)
        return followed

    def mark(self, followed: FollowedSession) -> None:
        """Mark a session to be read."""
        if followed in self:
            self._dirty[followed] = None

    def mark_indexed(self, index: str, session: str | None = None) -> None:
        """Mark a session that an entry of `index` names, if it is followed. None marks all followed sessions of the
        index."""
        named = self._indexes.get(index, {})
        if session is None:
            self._dirty |= named
        elif (followed := self._sessions.get(session)) in named:
            self._dirty[followed] = None

    def take_dirty(self, limit: int | None = None) -> list[FollowedSession]:
        """Remove the marks of at most `limit` sessions. Return these sessions in the order in which they were
        marked."""
        taken = list(islice(self._dirty, limit))
        for followed in taken:
            del self._dirty[followed]
        return taken

    def take_unseen(self, limit: int) -> list[FollowedSession]:
        """Return the next `limit` sessions in turn, so that repeated calls cover all of them."""
        if not self._unseen:
            self._unseen = list(self._sessions.values())
        taken, self._unseen = self._unseen[:limit], self._unseen[limit:]
        return [followed for followed in taken if followed in self]

    def _changed(self, followed: FollowedSession) -> None:
        if followed not in self:
            return
        self._dirty[followed] = None
        self._indexes.setdefault(self._keys.index(followed.bucket), {})[followed] = None
        live_index = self._keys.live_index(followed.bucket)
        if followed.live is not None:
            self._indexes.setdefault(live_index, {})[followed] = None
        else:
            self._remove(live_index, followed)

    def _forget(self, followed: FollowedSession) -> None:
        if followed not in self:
            return
        del self._sessions[followed.session]
        self._dirty.pop(followed, None)
        for index in (self._keys.index(followed.bucket), self._keys.live_index(followed.bucket)):
            self._remove(index, followed)

    def _remove(self, index: str, followed: FollowedSession) -> None:
        named = self._indexes.get(index)
        if named is not None:
            named.pop(followed, None)
            if not named:
                del self._indexes[index]
