"""Contexts at past positions, kept so that a reader who goes back and forth in a session folds few entries again."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    LogRolledBack,
    NoSuchPosition,
    SessionErased,
    check_bounds,
    require_count,
)
from lanebus.bus.log.log import Log
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.reader import Page
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START, Cursor, Envelope
from lanebus.handlers.breather import Breather
from lanebus.handlers.context.build import fold_kept, require_whole, unreadable_up_to
from lanebus.handlers.context.errors import ContextTooLarge
from lanebus.handlers.context.fold import Context, evolve
from lanebus.handlers.recent import ENTRY_BYTES, RecentSessions

__all__ = ("DEFAULT_PAST_BOUNDS", "PastBounds", "PastContexts")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastBounds:
    """Bounds of a `PastContexts` cache. The least recently used session is dropped first."""

    sessions: int = 16
    """maximum number of sessions in the cache"""
    size_bytes: int = 32 * 1_048_576
    """maximum size of all sessions in the cache: the JSON of their messages, and 2 kB for each entry of the LLM lane.
    A context that is larger alone is refused"""
    contexts: int = 64
    """maximum number of contexts of one session"""
    every: int = 256
    """number of entries of the LLM lane between two contexts that a long fold keeps"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_PAST_BOUNDS = PastBounds()


class _Step(NamedTuple):
    """A context, and the cursor up to which both lanes have no entry that is not in it."""

    cursor: Cursor
    context: Context
    size_bytes: int = 0
    """memory of the context's entries; see `PastBounds.size_bytes`"""


@dataclass(slots=True)
class _Known:
    gone: int
    """the result of `unreadable_up_to` when the session was last read"""
    steps: list[_Step] = field(default_factory=list[_Step])
    """by position"""

    def before(self, position: int) -> _Step | None:
        """Return the last step up to a position."""
        return next((step for step in reversed(self.steps) if step.cursor.position <= position), None)

    def keep(self, new: Sequence[_Step], most: int) -> None:
        """Add steps. Beyond `most`, drop every other step, but keep the last."""
        by_position = {step.cursor.position: step for step in (*self.steps, *new)}
        self.steps = [by_position[position] for position in sorted(by_position)]
        while len(self.steps) > most:
            self.steps = self.steps[-1::-2][::-1]


class PastContexts:
    """A cache of contexts of one bus's sessions. Contexts share their entries, so a further one costs little memory.

    Args:
        bounds: bounds on the cache.
    """

    def __init__(self, bounds: PastBounds = DEFAULT_PAST_BOUNDS) -> None:
        self._bounds = bounds
        self._sessions = RecentSessions[_Known](bounds.sessions, bounds.size_bytes)

    async def at(self, session: Session, position: int | None = None) -> Context:
        """Return the session's context after the entry at a position of either lane.

        If the call is cancelled, the cache is unchanged.

        Args:
            session: the session to read.
            position: the position; None means the end.

        Raises:
            NoSuchPosition: `position` is after the session's last position.
            ContextTooLarge: the context is larger than the cache. No more of the session was read.
            SessionErased: the session was erased.
            StreamError: entries are missing.
            Unavailable: the server or the archive cannot be reached.
        """
        require_count("position", position, is_optional=True)
        head = await session.head()
        await self._sessions.sweep(session.resources.log)
        if head.is_erased:
            self._sessions.pop(session.id)
            raise SessionErased(session.id)
        if position is not None and position > head.position:
            raise NoSuchPosition(session.id, position, head.position)
        until = head.position if position is None else position
        gone = unreadable_up_to(session, head)
        known = self._sessions.get(session.id)
        if known is None or known.gone != gone:
            known = _Known(gone)
        start = known.before(until)
        try:
            steps = await self._fold(session, start, until)
        except (LogRolledBack, CursorTrimmed, ArchiveDamaged):
            known = _Known(gone)
            reader = _BoundedReader(session, self._bounds.size_bytes)
            context, gap = await fold_kept(reader, until=until)
            require_whole(context, gap)
            steps = [_Step(context.entries[-1].cursor if context.entries else START, context, reader.size_bytes)]
        known.keep(steps, self._bounds.contexts)
        self._sessions.keep(session.id, known, known.steps[-1].size_bytes)
        return steps[-1].context

    async def sweep(self, log: Log) -> None:
        """Drop the contexts of erased sessions. Raises the errors of `RecentSessions.sweep`."""
        await self._sessions.sweep(log)

    async def _fold(self, session: Session, start: _Step | None, until: int) -> list[_Step]:
        """Return contexts up to `until`, the last of them at `until`."""
        cursor, context, size_bytes = start or _Step(START, Context(session.id))
        reader = _BoundedReader(session, self._bounds.size_bytes, size_bytes)
        steps, count, breather = list[_Step](), 0, Breather()
        async with aclosing(reader.pages(after=cursor, until=until)) as pages:
            async for page in pages:
                for envelope in page.envelopes:
                    if breather.is_due:
                        await breather.pause()
                    context, cursor, count = evolve(context, envelope), envelope.cursor, count + 1
                    if count % self._bounds.every == 0:
                        steps.append(_Step(cursor, context, reader.size_bytes))
                if page.cursor.is_after(cursor):
                    cursor = page.cursor
        return [*steps, _Step(cursor, context, reader.size_bytes)]


class _BoundedReader:
    """Reads the LLM lane of a session, up to a number of bytes. The head does not tell the size before: it counts no
    entries of a fork's parent and of the archive, but those of the extension lane."""

    def __init__(self, session: Session, most_bytes: int, size_bytes: int = 0) -> None:
        """
        Args:
            session: the session.
            most_bytes: maximum size of what is read.
            size_bytes: size of what was read before.
        """
        self._session, self._most_bytes, self.size_bytes = session, most_bytes, size_bytes

    @property
    def id(self) -> str:
        return self._session.id

    async def pages(self, *, after: Cursor, until: int | None) -> AsyncGenerator[Page]:
        """Yield the pages of the LLM lane. Raises ContextTooLarge before a page that is too much."""
        async with aclosing(self._session.pages(lanes={Lane.LLM}, after=after, until=until)) as pages:
            async for page in pages:
                self.size_bytes += page.size_bytes + ENTRY_BYTES * len(page.envelopes)
                if self.size_bytes > self._most_bytes:
                    raise ContextTooLarge(self.id, self._most_bytes)
                yield page

    async def read(
        self, *, lanes: frozenset[Lane], after: Cursor = START, until: int | None = None
    ) -> AsyncGenerator[Envelope]:
        """Yield the entries of the LLM lane after a cursor. `fold_kept` calls it again after trimmed entries."""
        del lanes
        self.size_bytes = 0
        async with aclosing(self.pages(after=after, until=until)) as pages:
            async for page in pages:
                for envelope in page.envelopes:
                    yield envelope
