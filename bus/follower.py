"""One reader's way through a session: what is in the log, then what comes, and again from the log where it was slow."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING

from bus.envelope import Cursor, Envelope
from bus.errors import CursorTrimmed, SessionErased
from bus.incarnations import require_same_log
from bus.live import Endings, woven
from bus.notice import Notice
from bus.reader import read_pages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from bus.hub import Hub
    from bus.live import Live
    from bus.log import Log
    from bus.past import Past
    from bus.subscription import Interest, Subscription

__all__ = ("Follower",)


class Follower:
    """Follows one session, once: everything its interest takes behind a cursor, in order, and notices between."""

    def __init__(
        self,
        session: str,
        log: Log,
        hub: Hub,
        live: Live,
        *,
        interest: Interest,
        after: Cursor,
        buffer_bytes: int,
        past: Past | None = None,
    ) -> None:
        self._session, self._log, self._hub, self._live, self._archive = session, log, hub, live, past
        self._interest, self._buffer_bytes = interest, buffer_bytes
        self._cursor = after
        self._is_new = not after.delta
        self._is_closed = False
        self._endings = Endings(live.bounds.endings)

    async def run(self) -> AsyncGenerator[Envelope | Notice, None]:
        """Without end. Closed or cancelled anywhere, nothing of it is left in the hub.

        Raises:
            CursorTrimmed, LogRolledBack, Unavailable, Closed: as `Session.follow`.
        """
        while True:
            subscription = await self._hub.subscribe(self._session, self._interest, self._buffer_bytes)
            try:
                async with aclosing(self._past(subscription)) as past:
                    async for items in past:
                        for each in items:
                            yield each
                while (item := await self._next(subscription)) is not None:
                    if isinstance(item, Notice):
                        if (notice := self._heeded(item)) is not None:
                            yield notice
                    elif (cursor := item.cursor).is_after(self._cursor):
                        self._cursor = cursor
                        if not (self._interest.live and self._endings.has_seen(item)):
                            yield item
            finally:
                subscription.close()
            yield Notice("fellBehind", self._cursor)

    async def _next(self, subscription: Subscription) -> Envelope | Notice | None:
        """What the hub has next; None where it is to be read from the log, or from the archive behind it."""
        try:
            return await subscription.take()
        except CursorTrimmed:
            return None  # told to all who follow here: reading knows whom it concerns, and where else it may be

    async def _past(self, subscription: Subscription) -> AsyncGenerator[Iterable[Envelope | Notice], None]:
        """What stands between the cursor and the place where the hub goes on."""
        start, (selection, is_live, _) = subscription.start, self._interest
        if self._cursor.position > start.position or self._cursor.incarnation not in {"", start.incarnation}:
            await self._require(self._cursor)
        pieces = deque[Envelope]()
        if is_live:
            snapshots, pieces, ended = await self._live.missed(
                self._session, self._cursor, start, subscription.live_start
            )
            self._endings.add(ended)
            if self._is_new:
                yield snapshots
        self._is_new = False
        most = len(selection.lanes) * self._log.bounds.page_entries
        reading = read_pages(self._log, self._session, selection, self._cursor, start.position, past=self._archive)
        async with aclosing(reading) as pages:
            async for page in pages:
                items = self._passed([*woven(page.envelopes, pieces), *_before(page.cursor, pieces)])
                yield items
                if page.cursor.position - self._cursor.position > max(self._hub.bounds.scanned - most, 0):
                    yield self._scanned(page.cursor)
        yield self._passed(pieces)
        if start.is_after(self._cursor):
            yield self._scanned(start)
        if subscription.is_at_goal:
            yield (Notice("caughtUp", self._cursor),)
            if self._interest.state and subscription.is_closed != self._is_closed:
                self._is_closed = subscription.is_closed
                yield (Notice("closed" if self._is_closed else "reopened", self._cursor),)

    def _passed(self, envelopes: Iterable[Envelope]) -> list[Envelope]:
        """The envelopes without the pieces of messages that have ended; they are seen from now on."""
        passed = [*envelopes]
        if passed:
            self._cursor = passed[-1].cursor
        return [each for each in passed if not self._endings.has_seen(each)] if self._interest.live else passed

    def _scanned(self, cursor: Cursor) -> tuple[Notice]:
        self._cursor = cursor
        return (Notice("scanned", cursor),)

    def _heeded(self, notice: Notice) -> Notice | None:
        """What a notice of the hub says to this follower, who may be ahead of the hub."""
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
        """Raises LogRolledBack if the log is not the one that the cursor's reader saw. Asks the log, as the hub
        may be a moment behind a publish of this very process."""
        head = await self._log.head(self._session)
        if head.is_erased:
            raise SessionErased(self._session)
        await require_same_log(self._log, head, cursor, self._archive)


def _before(cursor: Cursor, pieces: deque[Envelope]) -> Iterable[Envelope]:
    """The pieces that stand before a cursor; they are taken off."""
    while pieces and cursor.is_after(pieces[0].cursor):
        yield pieces.popleft()
