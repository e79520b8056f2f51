"""What `Session` reads: its head, its entries, what follows, and open messages. Each function is a method of it."""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing

from lanebus.bus.following.follower import Follower
from lanebus.bus.following.subscription import BUFFER_BYTES, SubscriptionOptions
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.previews.session_deltas import OpenMessage
from lanebus.bus.reading.pages import first_page as first_lane_pages
from lanebus.bus.reading.reader import Page, read_pages
from lanebus.bus.session.resources import HasResources, SessionResources
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.bus.wire.notice import Notice
from lanebus.bus.wire.selection import Selection

__all__ = ("ALL_LANES", "first_page", "follow", "head", "open_messages", "pages", "read", "subscribe")

ALL_LANES = frozenset(Lane)


async def head(self: HasResources) -> SessionHead:
    """Return the session's last position, and what else is known without reading it."""
    return await self.resources.log.head(self.resources.id)


async def read(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
    after: Cursor = START,
    until: int | None = None,
) -> AsyncGenerator[Envelope, None]:
    """Read what is in the log now after a cursor and up to a position, over all `lanes` in position order. Trimmed
    entries come from the archive, if the bus has one.

    Args:
        kinds: only messages of these, see `subscribe`. A mapping selects for some lanes, and takes all of the rest.

    Raises:
        NoLanes, NoKinds: `lanes` or `kinds` is empty.
        CursorTrimmed: what comes next after the cursor was trimmed away, and is not in the archive.
        ArchiveDamaged: it is in the archive, and not what it was.
        LogRolledBack: the log has lost what the cursor's reader saw.
        SessionErased: there is nothing to read any more.
    """
    resources, selection = self.resources, Selection.of(lanes, kinds)
    async with aclosing(
        read_pages(resources.log, resources.id, selection, after, until, past=resources.archive)
    ) as found:
        async for page in found:
            for envelope in page.envelopes:
                yield envelope


async def pages(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
    after: Cursor = START,
    until: int | None = None,
    first: FirstPage | None = None,
) -> AsyncGenerator[Page, None]:
    """Read as `read` does, a page at a time, each with the cursor of its end, even if nothing in it was selected.
    There is at least one page. `first` is the first one, from `first_page` with the same lanes and cursor."""
    resources, selection = self.resources, Selection.of(lanes, kinds)
    async with aclosing(
        read_pages(resources.log, resources.id, selection, after, until, past=resources.archive, first=first)
    ) as found:
        async for page in found:
            yield page


def first_page(self: HasResources, *, lanes: Collection[Lane] = ALL_LANES, after: Cursor = START) -> FirstPage:
    """Return a request for the first page of `pages`, to be sent with another command; no I/O."""
    return first_lane_pages(self.resources.log, self.resources.id, Selection.of(lanes).in_order, after.position)


async def follow(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | None = None,
    after: Cursor = START,
    live: bool = False,
    until_closed: bool = False,
    buffer_bytes: int = BUFFER_BYTES,
) -> AsyncGenerator[Envelope, None]:
    """Read everything after a cursor, exactly once and in order: what is in the log, then what comes, without end.
    See `subscribe` for the other arguments and the errors.

    Args:
        until_closed: end once the session is closed and was read to its end.
    """
    options = SubscriptionOptions(Selection.of(lanes, kinds), live, state=until_closed)
    async with aclosing(_follow(self.resources, options, after, buffer_bytes)) as items:
        async for item in items:
            if not isinstance(item, Notice):
                yield item
            elif until_closed and item.kind == "closed":
                return


async def subscribe(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | None = None,
    after: Cursor = START,
    live: bool = False,
    buffer_bytes: int = BUFFER_BYTES,
) -> AsyncGenerator[Envelope | Notice, None]:
    """Follow, with notices between the envelopes: match on them.

    A reader that stops at an envelope or a notice, and follows again after its cursor, repeats nothing and misses
    nothing, whatever was selected. Most of what is not selected is not even decoded.

    Args:
        kinds: only messages of these; None is all. The kind of a message is its role, `user` or `toolResult`; of a
            context entry its kind, `compaction`; of an extension its kind, exact or as `agent.*` for a prefix.
            Unreadable entries and live deltas are always shown.
        live: also live deltas. They are LLM content: never give them to a reader that may not read the LLM lane.
            After the cursor of a delta, the open message continues there; after the cursor of an entry, a snapshot
            of what was said so far comes first, at that cursor. With the LLM lane, no piece comes after the end of
            its message.
        buffer_bytes: how much may wait here while you are busy, as JSON. What does not fit is dropped and read
            from the log again, after a notice; dropped live deltas then come joined. A single larger entry comes.

    Raises:
        NoLanes, NoKinds: `lanes` or `kinds` is empty.
        CursorTrimmed: what comes next was trimmed away, now or later, and is not in the archive.
        ArchiveDamaged: it is in the archive, and not what it was.
        SessionErased: there is nothing to follow any more.
        LogRolledBack: the log has lost what was seen. To go on, drop what you hold behind position `found` and
            subscribe after `Cursor(error.found)`.
        Unavailable: the server cannot be reached at the start; later it is waited for.
        Closed: the bus was closed.
    """
    options = SubscriptionOptions(Selection.of(lanes, kinds), live, state=True)
    async with aclosing(_follow(self.resources, options, after, buffer_bytes)) as items:
        async for item in items:
            yield item


async def open_messages(self: HasResources) -> list[OpenMessage]:
    """Return the messages that are being spoken, with what was said so far: neither complete in the log nor cut."""
    return await self.resources.previews.open_messages(self.resources.id, self.resources.log)


def _follow(
    resources: SessionResources, options: SubscriptionOptions, after: Cursor, buffer_bytes: int
) -> AsyncGenerator[Envelope | Notice, None]:
    return Follower(
        *(resources.id, resources.log, resources.hub, resources.previews),
        options=options,
        after=after,
        buffer_bytes=buffer_bytes,
        past=resources.archive,
    ).run()
