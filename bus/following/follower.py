"""A follower reads a session's log and then a subscription to the hub. If it is too slow, it reads the log again."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from lanebus.bus.concurrency import Iteration, Resumable
from lanebus.bus.errors import CursorTrimmed, SessionErased, Unavailable
from lanebus.bus.log.lineage import require_same_log
from lanebus.bus.log.reading import Page, read_pages
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.message import Delta
from lanebus.bus.servers.calls import Backoff
from lanebus.bus.wire.codec import Cursor, Envelope, Notice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from lanebus.bus.concurrency import BusOrigin
    from lanebus.bus.following.hub import Hub
    from lanebus.bus.following.subscription import DirectReceiver, Subscription, SubscriptionOptions
    from lanebus.bus.log.lineage import ArchiveReader
    from lanebus.bus.log.log import Log
    from lanebus.bus.previews import Previews


class Follower(Iteration[Envelope | Notice]):
    """Iterates over the entries of one session after a cursor, in order, with notices in between, without end.

    A cancelled `anext` loses and repeats nothing. Closing the iterator, or its garbage collection, ends its
    subscription.
    """

    __slots__ = (
        *(
            "_backoff",
            "_has_notices",
            "_has_started",
            "_is_over",
            "_is_running",
            "_items",
            "_origin",
            "_past",
            "_state",
        ),
        "_until_closed",
    )

    def __init__(
        self, state: FollowState, origin: BusOrigin, *, has_notices: bool = True, until_closed: bool = False
    ) -> None:
        """
        Args:
            state: where this follower is in the session. No other follower uses it.
            origin: the process and event loop of the bus.
            has_notices: whether to return notices.
            until_closed: whether to end when the session is closed and all its entries were returned.
        """
        self._has_notices, self._until_closed = has_notices, until_closed
        self._state, self._origin = state, origin
        self._past: Resumable[Iterable[Envelope | Notice]] | None = None
        """reads the log up to the start of a subscription; None if the items of the subscription are next"""
        self._items: Iterator[Envelope | Notice] = iter(())
        self._has_started, self._backoff = False, Backoff(0.01, 0.5)
        self._is_running = self._is_over = False

    async def __anext__(self) -> Envelope | Notice:
        """Return the next entry or notice.

        Raises:
            CursorTrimmed: as for `Session.follow`.
            LogRolledBack: as for `Session.follow`.
            Unavailable: as for `Session.follow`.
            Closed: as for `Session.follow`.
            OpenedElsewhere: this is another process or event loop than that of the bus.
        """
        self._enter("anext")
        try:
            while not self._is_over:
                try:
                    if (item := next(self._items, None)) is None:
                        item = await self._next_item()
                except Unavailable as error:
                    if not (self._has_started and error.is_transient):
                        raise
                    self._state.leave()
                    await self._backoff.wait()  # the cursor is after the last item that was returned
                    continue
                if item is not None and (self._has_notices or not isinstance(item, Notice)):
                    return item
                if self._until_closed and isinstance(item, Notice) and item.kind == "closed":
                    self._is_over = True
                    self._state.leave()
        except Exception:
            self._is_over = True
            self._state.leave()
            raise
        finally:
            self._is_running = False
        raise StopAsyncIteration

    async def _next_item(self) -> Envelope | Notice | None:
        """Wait for the next item. Return None if there may be one in `_items` now, or if it was delivered before."""
        if self._past is not None or self._state.subscription is None:
            await self._read_past()
            return None
        if (item := await self._state.take()) is not None:
            return self._state.accepted(item)
        self._state.leave()
        return self._state.fell_behind()

    async def _read_past(self) -> None:
        """Read the next page of the log. After the last page, the items of the subscription are next."""
        past = self._past = self._past or Resumable(self._state.past())
        try:
            self._items = iter(await past.__anext__())
        except StopAsyncIteration:
            self._past = None
            self._backoff.reset()
            self._state.begin_direct()
        except BaseException:
            if past.is_ended:
                self._past = None
            raise
        self._has_started = True

    @property
    def agent(self) -> str:
        """The agent that the session belongs to, as of the last item or later; "" before the first item.

        The hub reads a session's head after its entries, so no item is newer than this.
        """
        subscription = self._state.subscription
        return self._state.last_agent if subscription is None else subscription.agent

    def fail(self, error: Exception) -> None:
        """End the iteration with an error, once the buffered items were returned."""
        if self._state.subscription is not None:
            self._state.subscription.fail(error)

    async def aclose(self) -> None:
        """End the subscription. Raises OpenedElsewhere."""
        self._enter("aclose")
        try:
            self._is_over, self._items, past = True, iter(()), self._past
            if past is not None:
                await past.aclose()
            self._state.leave()
        finally:
            self._is_running = False

    def _enter(self, call: str) -> None:
        self._origin.check_running()
        if self._is_running:
            raise RuntimeError(f"{call}(): asynchronous generator is already running")  # as Python says it
        self._is_running = True

    def __del__(self) -> None:
        if self._state.subscription is not None:
            self._origin.call_soon(self._state.leave)


class FollowState:
    """Where a follower is in the log of its session, and its subscription."""

    __slots__ = (
        *("_archive", "_buffer_bytes", "_cursor", "_direct", "_ended", "_hub", "_is_closed", "_is_new", "_log"),
        *("_options", "_previews", "_session", "last_agent", "subscription"),
    )

    def __init__(
        self,
        session: str,
        log: Log,
        hub: Hub,
        previews: Previews,
        *,
        options: SubscriptionOptions,
        after: Cursor,
        buffer_bytes: int,
        archive: ArchiveReader | None = None,
        direct: DirectReceiver | None = None,
    ) -> None:
        self._session, self._log, self._hub, self._previews, self._archive = session, log, hub, previews, archive
        self._options, self._buffer_bytes, self._direct = options, buffer_bytes, direct
        self._cursor = after
        self._is_new = not after.delta
        self._is_closed = False
        self._ended = EndedMessages(previews.bounds.endings)
        self.subscription: Subscription | None = None
        """delivers the entries after those of `past`; None before the follower subscribed, or has to do so again"""
        self.last_agent = ""
        """the session's agent when the last subscription ended"""

    async def past(self) -> AsyncGenerator[Iterable[Envelope | Notice], None]:
        """Subscribe, and yield the items between this follower's cursor and the start of the subscription.

        Raises:
            BusError: the errors of `Session.subscribe`. The subscription is ended.
        """
        subscription = self.subscription = await self._hub.subscribe(self._session, self._options, self._buffer_bytes)
        try:
            async with aclosing(self._past(subscription)) as past:
                async for items in past:
                    yield items
        except BaseException:
            self.leave()
            raise

    def begin_direct(self) -> None:
        """Let the direct receiver, if there is one, take the items of the subscription."""
        if self.subscription is not None and self._direct is not None:
            self.subscription.direct = partial(self._pass, self._direct)

    async def take(self) -> Envelope | Notice | None:
        """Wait for the next item of the subscription. A cancelled call takes nothing.

        Return None if the subscription's buffer was dropped or an entry was trimmed. The log or the archive has to be
        read then.
        """
        if self.subscription is None:
            return None
        try:
            return await self.subscription.take()
        except CursorTrimmed:
            return None  # every subscription gets this error. Reading the log or archive shows if it concerns this one

    def leave(self) -> None:
        """End the subscription, if there is one."""
        if self.subscription is not None:
            self.subscription.close()
            self.last_agent, self.subscription = self.subscription.agent, None

    def fell_behind(self) -> Notice:
        """Count that the follower was too slow, and return the notice that says so."""
        self._hub.fell_behind += 1
        return Notice("fellBehind", self._cursor)

    async def _past(self, subscription: Subscription) -> AsyncGenerator[Iterable[Envelope | Notice], None]:
        """Yield the entries between this follower's cursor and the start of the subscription, read from the log.

        Live deltas and notices are included.
        """
        start, (selection, is_live, _) = subscription.start, self._options
        cursor = self._cursor
        if (
            cursor.position > start.position
            or cursor.incarnation not in {"", start.incarnation}
            or (cursor.position == start.position and cursor.proof not in {"", start.proof})
        ):
            await self._require(cursor)
        pieces = deque[Envelope]()
        if is_live:
            snapshots, pieces, ended = await self._previews.catch_up(
                self._session, self._cursor, start, subscription.live_start
            )
            self._ended.add(ended)
            if self._is_new:
                yield snapshots
        self._is_new = False
        most = len(selection.lanes) * self._log.bounds.page_entries
        reading = read_pages(self._log, self._session, selection, self._cursor, start.position, archive=self._archive)
        async with aclosing(reading) as pages:
            async for page in pages:
                yield self._passed(interleave(page, pieces))
                if page.cursor.position - self._cursor.position > max(self._hub.bounds.scanned_entries - most, 0):
                    yield self._scanned(page.cursor)
        yield self._passed(pieces)
        if start.is_after(self._cursor):
            yield self._scanned(start)
        if subscription.is_at_goal:
            yield (Notice("caughtUp", self._cursor),)
            if self._options.state and subscription.is_closed != self._is_closed:
                self._is_closed = subscription.is_closed
                yield (Notice("closed" if self._is_closed else "reopened", self._cursor),)

    def _passed(self, envelopes: Iterable[Envelope]) -> list[Envelope]:
        """Move the cursor to the last envelope. Return the envelopes without late deltas of ended messages."""
        passed = [*envelopes]
        if passed:
            self._cursor = passed[-1].cursor
        return [each for each in passed if not self._ended.is_late(each)] if self._options.live else passed

    def _scanned(self, cursor: Cursor) -> tuple[Notice]:
        self._cursor = cursor
        return (Notice("scanned", cursor),)

    def _pass(self, direct: DirectReceiver, item: Envelope | Notice) -> bool:
        """Pass an item of the subscription to the direct receiver. Return False if the caller has to get it.

        An error of the receiver ends this follower, which raises it. The hub's other followers go on.
        """
        try:
            if not direct.can_receive(item):
                return False
        except Exception:  # noqa: BLE001  # the caller gets the item, and meets the error
            return False
        if (accepted := self.accepted(item)) is not None:
            try:
                direct.receive(accepted)
            except Exception as error:  # noqa: BLE001  # raised by `take`: this is the task of all followers
                if self.subscription is not None:
                    self.subscription.fail(error)
        return True

    def accepted(self, item: Envelope | Notice) -> Envelope | Notice | None:
        """Return the item to deliver, or None if it was delivered before or no longer applies."""
        if isinstance(item, Notice):
            return self._accepted_notice(item)
        if not (cursor := item.cursor).is_after(self._cursor):
            return None
        self._cursor = cursor
        return None if self._options.live and self._ended.is_late(item) else item

    def _accepted_notice(self, notice: Notice) -> Notice | None:
        """Return the notice to deliver, or None if it no longer applies.

        If this follower's cursor is after that of the notice, the returned notice has the follower's cursor.
        """
        if notice.cursor.is_after(self._cursor):
            self._cursor = notice.cursor
        elif notice.kind == "scanned":
            return None
        if notice.kind in {"closed", "reopened"}:
            if self._is_closed == (notice.kind == "closed"):
                return None
            self._is_closed = not self._is_closed
        return Notice(notice.kind, self._cursor)

    async def _require(self, cursor: Cursor) -> None:
        """Check that the log still holds the entry of a cursor.

        The check reads the session's head, because the hub may not have read the last publish of this process yet.

        Raises:
            SessionErased: the session was erased.
            LogRolledBack: the log lost its end.
        """
        head = await self._log.head(self._session)
        if head.is_erased:
            raise SessionErased(self._session)
        await require_same_log(self._log, head, cursor, self._archive)


def interleave(page: Page, pieces: deque[Envelope]) -> list[Envelope]:
    """Return the entries of a page together with the live deltas up to the page's cursor, in order.

    Args:
        page: the entries.
        pieces: the live deltas, in order. The returned deltas are removed from it.
    """
    if not pieces:
        return page.envelopes
    items: list[Envelope] = []
    for envelope in page.envelopes:
        while pieces and pieces[0].position < envelope.position:
            items.append(pieces.popleft())
        items.append(envelope)
    while pieces and page.cursor.is_after(pieces[0].cursor):
        items.append(pieces.popleft())
    return items


class EndedMessages:
    """Remembers which messages have ended, so that a follower shows no delta of a message after the message's end.

    A late delta comes from a slow worker, or from a Redis command that the server executes late.
    """

    def __init__(self, limit: int) -> None:
        """Remember at most `limit` messages; the oldest is forgotten first."""
        self._ids: dict[str, None] = {}
        self._limit = limit

    def add(self, ids: Iterable[str]) -> None:
        """Remember that the messages with these ids have ended."""
        for id in ids:
            self._ids[id] = None
        while len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]

    def is_late(self, envelope: Envelope) -> bool:
        """Return whether `envelope` is a delta of an ended message.

        If `envelope` itself ends a message, remember the message.
        """
        message = envelope.message
        if type(message) is not Delta:
            id = getattr(message, "id", None) if envelope.lane is Lane.LLM else None
        elif message.message_id in self._ids:
            return True
        else:
            id = message.message_id if message.kind == "cut" else None
        if id is not None:
            self.add((id,))
        return False
