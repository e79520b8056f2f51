"""Build a session's context from the log: once, repeatedly by reading only the new entries, or at past positions."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

import anyio
import anyio.lowlevel

from lanebus.bus import Log, Page, Session, SessionHead
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    EntriesMissing,
    LogRolledBack,
    NoSuchPosition,
    SessionErased,
    check_bounds,
    require_count,
    require_instance,
)
from lanebus.bus.messages import Lane
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.context.fold import Context, ContextTooLarge, UnknownLeaf, evolve

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


# Contexts at past positions, kept so that a reader who goes back and forth in a session folds few entries again.


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


# Fold beside other work: pauses during long folds, and a bounded memory of what was folded.


RESTS = ContextVar[Callable[[], Awaitable[None]] | None]("lanebus.rests", default=None)
"""Called at each pause, so that a server can let other clients' work go on first. None means nothing."""


class Breather:
    """Pauses the work of a task now and then, so that it does not hold up the event loop."""

    __slots__ = ("_next", "_seconds")

    def __init__(self, seconds: float = 0.005) -> None:
        """
        Args:
            seconds: how long the task works before others run.
        """
        self._seconds, self._next = seconds, perf_counter() + seconds

    @property
    def is_due(self) -> bool:
        """Whether the task has worked for long enough. Then call `pause`."""
        return perf_counter() >= self._next

    async def pause(self) -> None:
        """Let all tasks run that can."""
        await anyio.lowlevel.checkpoint()
        if (rest := RESTS.get()) is not None:
            await rest()
        self._next = perf_counter() + self._seconds


V = TypeVar("V")

ENTRY_BYTES = 2_048
"""What an entry takes in memory beside its JSON. Measured: 1.5 to 2.5 kB for a decoded message, 2 kB in `TURNS`."""


class RecentSessions(Generic[V]):
    """The values of the most recently used sessions. At a bound, the least recently used ones are dropped.

    The value that was kept last is never dropped by a bound, so that a large session is not read anew for each call.
    """

    def __init__(self, most: int, most_bytes: int, *, sweep_seconds: float = 60.0) -> None:
        """
        Args:
            most: maximum number of sessions.
            most_bytes: maximum number of bytes, as `keep` was told.
            sweep_seconds: shortest pause between two sweeps.
        """
        self._most, self._most_bytes, self._sweep_seconds = most, most_bytes, sweep_seconds
        self._kept: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._swept_at = 0.0
        self.size_bytes = 0
        """bytes of all kept values"""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the sessions, the least recently used first."""
        return iter(self._kept)

    def get(self, session: str) -> V | None:
        """Return a session's value; None if there is none."""
        found = self._kept.get(session)
        return None if found is None else found[0]

    def pop(self, session: str) -> V | None:
        """Remove a session's value and return it; None if there is none."""
        found = self._kept.pop(session, None)
        if found is None:
            return None
        self.size_bytes -= found[1]
        return found[0]

    def keep(self, session: str, value: V, size_bytes: int) -> None:
        """Keep a value as the most recently used one, in place of the session's earlier value."""
        self.pop(session)
        self._kept[session] = value, size_bytes
        self.size_bytes += size_bytes
        while len(self._kept) > 1 and (len(self._kept) > self._most or self.size_bytes > self._most_bytes):
            self.pop(next(iter(self._kept)))

    async def sweep(self, log: Log) -> None:
        """Drop the values of erased sessions, if the last sweep is `sweep_seconds` old.

        Raises:
            Unavailable: the server cannot be reached. Nothing was dropped; the next call tries again.
        """
        begun = anyio.current_time()
        if not self._kept or begun - self._swept_at < self._sweep_seconds:
            return
        for session, fingerprint in (await log.fingerprints(tuple(self._kept))).items():
            if b"erased" in fingerprint.split(b" "):
                self.pop(session)
        self._swept_at = begun
