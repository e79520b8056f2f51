"""Read stored entries in pieces of bounded size, so that many slow clients do not hold many large pages in memory."""

from collections.abc import AsyncGenerator, Callable, Collection, Sized
from contextlib import aclosing
from typing import Generic, NamedTuple, TypeVar

from lanebus.bus.errors import SessionErased
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.gate import SessionRight
from lanebus.handlers.ui.turns import Turns

__all__ = ("History", "HistoryPiece")


Rendered = TypeVar("Rendered", bound=Sized)


class HistoryPiece(NamedTuple, Generic[Rendered]):
    """Rendered entries of a part of the log."""

    rendered: list[Rendered]
    """the entries"""
    cursor: Cursor
    """cursor after the last of them"""


class History:
    """Reads the stored entries of sessions. One object serves all clients of a server."""

    def __init__(self, bounds: UiBounds) -> None:
        self._bounds = bounds
        self.reads = Turns(
            bounds.reads,
            own=max(bounds.reads // 2, 1),
            begun=bounds.reads,
            queued=bounds.queued,
            seconds=bounds.stream_wait_seconds,
        )
        """turns at reading entries"""

    async def pieces(
        self,
        session: Session,
        after: Cursor,
        until: int | None,
        share: Share,
        render: Callable[[Envelope], Rendered],
        *,
        lanes: Collection[Lane] = frozenset(Lane),
        kinds: Collection[str] | None = None,
        seconds: float | None = None,
        right: SessionRight | None = None,
    ) -> AsyncGenerator[HistoryPiece[Rendered]]:
        """Yield the entries after a cursor, in pieces of about `UiBounds.read_bytes`. A piece has at least one entry,
        or only moves the cursor.

        Args:
            session: the session.
            after: the cursor after which to start.
            until: the last position; None reads to the end that the session has now.
            share: holds the bytes of a piece until the next one is requested.
            render: turns an entry into what is sent.
            lanes: the lanes to read.
            kinds: the kinds of messages to read, as for `Session.read`; None means all.
            seconds: longest wait for the memory of a piece; None means `UiBounds.stream_wait_seconds`.
            right: the right to read the session, which is confirmed before each piece; None confirms nothing.

        Raises:
            AccessDenied: `right` has ended.
            ServerBusy: the memory was not free in time, or the turn to read did not come.
            BusError: the errors of `Session.read`.
        """
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session.id)
        seconds = self._bounds.stream_wait_seconds if seconds is None else seconds
        until = head.position if until is None else min(until, head.position)
        count = self._first_count(head)
        while after.position < until:
            await share.take(self.needed(head), seconds=seconds)
            async with self.reads.turn(share.owner):
                piece = await self._read(
                    session, after, min(after.position + count, until), render, lanes=lanes, kinds=kinds
                )
            if piece.cursor.position <= after.position:
                return
            if right is not None:
                await right.confirm()
            sizes = [len(each) for each in piece.rendered]
            count = self._next_count(head, max(sizes, default=0))
            after = piece.cursor
            share.keep(sum(sizes))
            yield piece
            del piece

    def needed(self, head: SessionHead) -> int:
        """Return the bytes to hold for a read: those of the whole session, if it is small."""
        size = head.size_bytes + self._bounds.envelope_bytes * head.position
        return min(size, self._bounds.read_bytes) if _is_whole(head) else self._bounds.read_bytes

    def _first_count(self, head: SessionHead) -> int:
        entries = max(head.position - head.trimmed, 1)
        return self._next_count(head, head.size_bytes // entries)

    def _next_count(self, head: SessionHead, entry_bytes: int) -> int:
        """Return how many positions to read at once, if entries have about `entry_bytes`."""
        is_small = _is_whole(head) and head.size_bytes <= self._bounds.memory_bytes // (2 * self._bounds.reads)
        most = self._bounds.page_entries if is_small else self._bounds.read_entries
        return min(max(self._bounds.read_bytes // max(entry_bytes, 1), 1), most)

    async def _read(
        self,
        session: Session,
        after: Cursor,
        until: int,
        render: Callable[[Envelope], Rendered],
        *,
        lanes: Collection[Lane],
        kinds: Collection[str] | None,
    ) -> HistoryPiece[Rendered]:
        rendered, size = list[Rendered](), 0
        async with aclosing(session.pages(lanes=lanes, kinds=kinds, after=after, until=until)) as pages:
            async for page in pages:
                for envelope in page.envelopes:
                    # Rendered at once: decoded entries may take many times the memory of their text.
                    one = render(envelope)
                    if rendered and size + len(one) > self._bounds.read_bytes:
                        return HistoryPiece(rendered, after)
                    rendered.append(one)
                    size, after = size + len(one), envelope.cursor
                after = page.cursor
        return HistoryPiece(rendered, after)


def _is_whole(head: SessionHead) -> bool:
    """Return whether the head counts all entries: not those that a fork shares with its parent, nor archived ones."""
    return head.origin is None and head.trimmed == 0
