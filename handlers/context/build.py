"""Build a session's context from the log: once, or repeatedly by reading only the new entries."""

from collections.abc import AsyncIterator
from typing import Protocol

import anyio

from lanebus.bus.errors import (
    CursorTrimmed,
    EntriesMissing,
    NoSuchPosition,
    require_count,
    require_instance,
    require_methods,
)
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session, require_session
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.handlers.breather import Breather
from lanebus.handlers.context.errors import UnknownLeaf
from lanebus.handlers.context.fold import Context, evolve

__all__ = (
    "LaneReader",
    "WarmContext",
    "build_context",
    "fold_kept",
    "require_position",
    "require_whole",
    "unreadable_up_to",
)

_LLM = frozenset({Lane.LLM})


class LaneReader(Protocol):
    """The methods of a session that building a context needs."""

    @property
    def id(self) -> str: ...

    def read(
        self, *, lanes: frozenset[Lane], after: Cursor = START, until: int | None = None
    ) -> AsyncIterator[Envelope]:
        """Yield the entries of `lanes` after the cursor `after`, up to and including `until`, in order of position.

        If `until` is None, yield all entries after the cursor.
        """
        ...


async def build_context(session: LaneReader, *, at: int | None = None, leaf: int | None = None) -> Context:
    """Return the session's context at its end, or its context after the entry at position `at`. Writes nothing.

    If the first entries were trimmed, the context begins with the newest compaction, unless it keeps some of them.

    Args:
        session: the session to read.
        at: position of the last entry to read, in either lane; None reads to the end.
        leaf: position of an entry in the LLM lane. The context is of the branch that ends at this entry; 0 means the
            place before the first entry. Later entries are not read, because they cannot change the path to this entry.

    Raises:
        UnknownLeaf: the LLM lane has no entry at `leaf`, or `leaf` is after `at`.
        NoSuchPosition: `at` is after the session's last position.
        CursorTrimmed: entries that the context needs were trimmed, and no compaction stands in their place.
        StreamError: the session cannot be read: it was erased, or entries are missing.
        Unavailable: the server or the archive cannot be reached.
    """
    if not hasattr(session, "id"):
        require_session(session)
    require_count("at", at, is_optional=True)
    require_instance("leaf", leaf, int, "pass a position of the LLM lane", is_optional=True)
    context = Context(session.id)
    if leaf == 0:
        return context
    if leaf is not None and (leaf < 0 or (at is not None and leaf > at)):
        raise UnknownLeaf(session.id, leaf)
    context, gap = await fold_kept(session, until=at if leaf is None else leaf)
    require_whole(context, gap)
    if leaf is not None and context.position != leaf:
        raise UnknownLeaf(session.id, leaf)
    await require_position(session, at, context.position)
    return context


async def fold_kept(session: LaneReader, *, until: int | None) -> tuple[Context, CursorTrimmed | None]:
    """Fold the LLM lane, from its first entry or else from the first entry that was not trimmed.

    Returns:
        The context, and the error that tells which entries it lacks; None if it lacks no entry. Pass both to
        `require_whole`.

    Raises:
        BusError: the errors of `Session.read`, without `CursorTrimmed` for trimmed entries.
    """
    gap: CursorTrimmed | None = None
    breather = Breather()
    while True:
        context, after = Context(session.id), START if gap is None else Cursor(gap.first_kept - 1)
        try:
            async for envelope in session.read(lanes=_LLM, after=after, until=until):
                context = evolve(context, envelope)
                if breather.is_due:
                    await breather.pause()
        except EntriesMissing:
            raise
        except CursorTrimmed as later:
            if later.first_kept - 1 <= after.position:
                raise
            gap = later
        else:
            return context, gap


def require_whole(context: Context, gap: CursorTrimmed | None) -> None:
    """Raise `gap` if the context needs the entries that it lacks. So every reader of a log gets the same context.

    Args:
        context: the result of `fold_kept`, perhaps with later entries.
        gap: the error of `fold_kept`.
    """
    if gap is not None and not context.is_whole_after(gap.first_kept - 1):
        raise gap


def unreadable_up_to(session: Session, head: SessionHead) -> int:
    """Return the position up to which no entry of the LLM lane can be read; 0 if all can be read.

    If it grows, a context in memory was folded from entries that other readers no longer get: fold it again.

    Args:
        session: the session. Trimmed entries count as readable if its bus has an archive that holds them.
        head: the session's present head.
    """
    is_archived = session.resources.archive is not None and head.archived >= head.trimmed_llm
    return max(head.lost_in(Lane.LLM), 0 if is_archived else head.trimmed_llm)


async def require_position(session: LaneReader, at: int | None, read_up_to: int) -> None:
    """Raise NoSuchPosition if a position is after the end of a session.

    Args:
        session: the session. Only a `Session` is checked: other readers' ends are unknown.
        at: the position; None is always valid.
        read_up_to: position of an entry that was read. If it is `at`, no round trip is needed.
    """
    if at is not None and at > read_up_to and isinstance(session, Session):
        last = (await session.head()).position
        if at > last:
            raise NoSuchPosition(session.id, at, last)


class WarmContext:
    """A session's context, kept between turns so that each turn reads only the new entries.

    Args:
        session: the session to read.
    """

    def __init__(self, session: LaneReader) -> None:
        require_methods("session", session, ("read",), "pass a Session, from `bus.session(…)`")
        self._session = session
        self._context = Context(session.id)
        self._cursor = START  # a cursor and not a position: a cursor identifies the log that it belongs to
        # Two concurrent refreshes would fold the same entries twice.
        self._one_at_a_time = anyio.Lock()

    @property
    def context(self) -> Context:
        """The context as of the last refresh; empty before the first refresh."""
        return self._context

    async def refresh(self) -> Context:
        """Read the new entries and return the current context.

        The context keeps entries that were trimmed after this object read them. `build_context` no longer gets these.

        Cancellation keeps the entries that were folded; the next call continues after them. Concurrent calls run one
        after another.

        Raises:
            LogRolledBack: the log lost entries that this context holds. Create a new `WarmContext`.
            StreamError: the session cannot be read: it was erased, or entries are missing.
            Unavailable: the server or the archive cannot be reached.
        """
        async with self._one_at_a_time:
            async for envelope in self._session.read(lanes=_LLM, after=self._cursor):
                self._context, self._cursor = evolve(self._context, envelope), envelope.cursor
            return self._context
