"""Methods of `Session` that read its head, its entries, new entries as they are appended, and unfinished messages."""

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import cast

from lanebus.bus.concurrency import Flattened, Resumable
from lanebus.bus.errors import require_count
from lanebus.bus.following.follower import Follower, FollowState
from lanebus.bus.following.subscription import BUFFER_BYTES, DirectReceiver, SubscriptionOptions
from lanebus.bus.log.head import SessionHead
from lanebus.bus.log.log import FirstPage
from lanebus.bus.log.reading import Page, read_pages
from lanebus.bus.log.reading import first_page as first_lane_pages
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.previews import OpenMessage
from lanebus.bus.session.resources import HasResources, SessionResources
from lanebus.bus.wire.codec import Selection
from lanebus.bus.wire.envelope import START, Cursor, Envelope

ALL_LANES = frozenset(Lane)
"""Both lanes: the default of every reader."""


async def head(self: HasResources) -> SessionHead:
    """Return the session's head: its last position, size, state and times, without reading entries.

    A session that does not exist has position 0.

    Raises:
        HeadMissing: the session has entries, but another client of the server deleted its head.
        SessionDamaged: a stored value of the head is not one that the bus writes.
        Unavailable: the server cannot be reached.
    """
    return await self.resources.log.head(self.resources.id)


def read(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
    after: Cursor | str = START,
    until: int | None = None,
) -> AsyncGenerator[Envelope, None]:
    """Yield the session's present entries in position order. Later entries are not waited for.

    A cancelled `anext` loses and repeats nothing: iterate on. Close the iterator if you do not read it to its end.

    Trimmed entries are read from the archive, if the bus has one. An entry that cannot be decoded is yielded with a
    `DecodeFailure` as its message.

    Args:
        lanes: lanes to read, at least one.
        kinds: yield only these kinds of messages, as for `subscribe`. A mapping selects kinds per lane; a lane that is
            not in the mapping yields all kinds. None means all kinds of all lanes.
        after: start after this cursor, or after its text as `str()` writes it.
        until: last position to yield. None means the session's last position.

    Raises:
        NoLanes: `lanes` is empty.
        NoKinds: `kinds` is empty.
        InvalidCursor: `after` is a text that is not a cursor.
        InvalidArgument: an argument has a wrong type, or a number is negative.
        CursorTrimmed: the next entry was trimmed and is not in the archive. All entries before it were yielded.
        EntriesMissing: the next entries are missing, although no trim removed them. A read of one lane notices only
            that the lane's end or the whole lane is missing, and no entry deleted in between.
        HeadMissing: the session has entries, but no head.
        ArchiveDamaged: the next entry is in the archive, and its segment is missing or changed.
        LogRolledBack: the log lost entries that the reader of `after` has seen.
        ReplyTooLarge: an entry is larger than the server sends in one reply.
        SessionErased: the session was erased.
        Unavailable: the server or the archive cannot be reached.
    """
    resources, selection, start = self.resources, Selection.of(lanes, kinds), Cursor.of(after)
    require_count("until", until, is_optional=True)
    reading = read_pages(resources.log, resources.id, selection, start, until, archive=resources.archive)
    return Flattened(reading, _envelopes)


def pages(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None,
    after: Cursor | str = START,
    until: int | None = None,
    first: FirstPage | None = None,
) -> AsyncGenerator[Page, None]:
    """Read like `read`, but yield pages. Each page has the cursor of its end.

    A page without any selected entry is yielded too, so that its cursor shows the progress.

    Args:
        lanes: as for `read`.
        kinds: as for `read`.
        after: as for `read`.
        until: as for `read`.
        first: the result of `first_page` for the same `lanes` and `after`, after it was sent with another command. None
            reads the first page.

    Raises:
        BusError: the errors of `read`.
    """
    resources, selection, start = self.resources, Selection.of(lanes, kinds), Cursor.of(after)
    require_count("until", until, is_optional=True)
    return Resumable(
        read_pages(resources.log, resources.id, selection, start, until, archive=resources.archive, first=first)
    )


def first_page(self: HasResources, *, lanes: Collection[Lane] = ALL_LANES, after: Cursor | str = START) -> FirstPage:
    """Return a request for the first page of `pages`. Does no I/O.

    To save a round trip, another call sends the request with its own command, such as `fetch` of `Bus.consumer`. Then
    pass the request to `pages`.

    Args:
        lanes: lanes to read, at least one.
        after: start after this cursor.

    Raises:
        NoLanes: `lanes` is empty.
    """
    return first_lane_pages(self.resources.log, self.resources.id, Selection.of(lanes).in_order, Cursor.of(after))


def follow(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | None = None,
    after: Cursor | str = START,
    live: bool = False,
    until_closed: bool = False,
    buffer_bytes: int = BUFFER_BYTES,
) -> AsyncGenerator[Envelope, None]:
    """Yield every entry after a cursor exactly once, in position order: first stored entries, then new ones.

    This is `subscribe` without the notices. The iterator never ends, unless `until_closed` is true.

    Args:
        lanes: as for `subscribe`.
        kinds: as for `subscribe`.
        after: as for `subscribe`.
        live: as for `subscribe`.
        until_closed: end when the session is closed and all its entries were yielded.
        buffer_bytes: as for `subscribe`.

    Raises:
        BusError: the errors of `subscribe`.
    """
    options = SubscriptionOptions(Selection.of(lanes, kinds), live, state=until_closed)
    state = _state(self.resources, options, after, buffer_bytes)
    follower = Follower(state, self.resources.origin, has_notices=False, until_closed=until_closed)
    return cast("AsyncGenerator[Envelope, None]", follower)  # without notices, only envelopes are left


def subscribe(
    self: HasResources,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | None = None,
    after: Cursor | str = START,
    live: bool = False,
    buffer_bytes: int = BUFFER_BYTES,
    direct: DirectReceiver | None = None,
) -> Follower:
    """Yield every entry after a cursor exactly once, in position order, with notices in between.

    A `Notice` reports one of these: the reader has caught up, was too slow for its buffer, or passed entries that were
    not selected; the session was closed or reopened. Use `match` to distinguish a notice from an `Envelope`.

    Each item has a cursor. A later `subscribe` or `follow` after that cursor repeats nothing and misses nothing.

    A slow reader loses nothing: if its buffer is full, it gets a notice and is switched back to reading the log.

    A cancelled `anext`, for example by a time limit, loses and repeats nothing: iterate on. Closing the iterator
    releases its buffer. Entries that were not yielded stay in the log.

    Args:
        lanes: lanes to read, at least one.
        kinds: yield only these kinds of messages; None means all. The kind of a message is its role, such as `user` or
            `toolResult`. The kind of a context entry or of an extension message is its `kind`, such as `compaction`;
            `agent.*` selects all kinds with that prefix. Undecodable entries and live deltas are always yielded.
        after: start after this cursor, or after its text as `str()` writes it. If this is the cursor of a live delta,
            an unfinished message continues after that delta.
        live: also yield live deltas. They hold LLM content, so do not show them to readers without access to the LLM
            lane. If `after` is the cursor of an entry, a snapshot of each unfinished message is yielded first, with
            that cursor. If the LLM lane is selected, no delta of a message is yielded after the end of the message.
        buffer_bytes: maximum number of bytes of JSON that wait while the caller is busy, 1 MiB by default. A single
            entry may be larger. Live deltas that did not fit are yielded later, joined.
        direct: receives new items without waking the caller, while the caller waits for the next item. An item that it
            cannot receive is yielded, and so are all items before it is asked again. An error that it raises is raised
            here, and ends no other follower. None yields every item.

    Raises:
        NoLanes: `lanes` is empty.
        NoKinds: `kinds` is empty.
        InvalidCursor: `after` is a text that is not a cursor.
        InvalidArgument: an argument has a wrong type, or a number is negative.
        CursorTrimmed: the next entry was trimmed and is not in the archive.
        EntriesMissing: the next entries are missing, although no trim removed them. A read of one lane notices only
            that the lane's end or the whole lane is missing, and no entry deleted in between.
        HeadMissing: the session has entries, but no head.
        ArchiveDamaged: the next entry is in the archive, and its segment is missing or changed.
        SessionErased: the session was erased.
        LogRolledBack: the log lost entries that were yielded, or entries up to `after`. To continue, discard everything
            after position `error.found` and subscribe after `Cursor(error.found)`.
        ReplyTooLarge: an entry is larger than the server sends in one reply.
        Unavailable: the server cannot be reached at the start. A connection lost later is restored.
        Closed: the bus was closed.
    """
    options = SubscriptionOptions(Selection.of(lanes, kinds), live, state=True)
    return Follower(_state(self.resources, options, after, buffer_bytes, direct), self.resources.origin)


def _envelopes(page: Page) -> list[Envelope]:
    return page.envelopes


async def open_messages(self: HasResources) -> list[OpenMessage]:
    """Return the unfinished messages in the order in which they began, each with the text previewed so far.

    A message is unfinished from its first live delta until it is in the LLM lane or cut.

    Raises:
        Unavailable: the server cannot be reached.
    """
    return await self.resources.previews.open_messages(self.resources.id, self.resources.log)


def _state(
    resources: SessionResources,
    options: SubscriptionOptions,
    after: Cursor | str,
    buffer_bytes: int,
    direct: DirectReceiver | None = None,
) -> FollowState:
    require_count("buffer_bytes", buffer_bytes)
    return FollowState(
        *(resources.id, resources.log, resources.hub, resources.previews),
        options=options,
        after=Cursor.of(after),
        buffer_bytes=buffer_bytes,
        archive=resources.archive,
        direct=direct,
    )
