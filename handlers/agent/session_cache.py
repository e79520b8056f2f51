"""The sessions that a worker keeps in memory between turns, so that the next turn reads only new entries."""

from collections.abc import Generator
from contextlib import aclosing, contextmanager

import anyio
from pydantic import ValidationError

from lanebus.bus import FirstPage, Log, OpenSession, Session, SessionHead
from lanebus.bus.errors import ArchiveDamaged, BusError, CursorTrimmed, EntriesMissing, LogRolledBack, Unavailable
from lanebus.bus.messages import Lane
from lanebus.bus.wire import START, Cursor
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.context import (
    ENTRY_BYTES,
    Context,
    RecentSessions,
    evolve,
    fold_kept,
    require_whole,
    unreadable_up_to,
)
from lanebus.handlers.projections import STATUS, STATUS_KINDS, Status

_WANTED = {Lane.EXTENSION: STATUS_KINDS}


class CachedSession:
    """The folds of a session, kept in memory.

    A read requests all entries of the LLM lane, and only `STATUS_KINDS` of the extension lane.

    Folds in memory know no more than the log. If entries that were folded were trimmed, the session is read again. So
    every worker gets the same context: that of the newest compaction, or the same error.
    """

    def __init__(self, session: Session, *, store_every: int = DEFAULT_WORKER_BOUNDS.store_every) -> None:
        """
        Args:
            store_every: positions between two stored states, see `WorkerBounds`.
        """
        self.session, self._store_every = session, store_every
        self._context, self._status = Context(session.id), Status()
        self._snapshot: SessionSnapshot | None = None
        """snapshot of the folds, made at first use and kept, with the state derived from it, until the next entry"""
        self._cursor = START
        """cursor after the last entry that was read"""
        self._forked = 0
        """position up to which the extension lane belongs to the parent session and is not folded"""
        self._stored = 0
        """position of the stored state; 0 if there is none"""
        self._trimmed = 0
        """position up to which the log was trimmed when it was last read"""
        self._gone = 0
        """the largest result of `unreadable_up_to` so far"""
        self._gap: CursorTrimmed | None = None
        """tells which entries the context lacks; None if it lacks no entry"""
        self._is_loaded = False
        self.is_whole = True
        """no entry of the extension lane was trimmed before it was folded"""
        self.size_bytes = 0
        """bytes of the entries that were read"""
        self.is_stale = False
        """the log no longer matches the entries that were read: discard this object and read from the start"""
        self.loop_id = ""
        """id of the newest loop that this worker has begun or resumed; "" if there is none"""
        # Two concurrent refreshes would fold the same entries twice.
        self._one_at_a_time = anyio.Lock(fast_acquire=True)

    @property
    def snapshot(self) -> SessionSnapshot:
        """The session's state as of the latest refresh; an empty state if there was no refresh yet."""
        if self._snapshot is None:
            status = self._status
            # A request definition that was trimmed has to be appended again.
            if status.request is not None and status.request_position <= self._trimmed:
                status = status.model_copy(update={"request": None})
            self._snapshot = SessionSnapshot(self._context, status)
        return self._snapshot

    @property
    def cursor(self) -> Cursor:
        """The cursor up to which the session was read."""
        return self._cursor

    def first_page(self) -> FirstPage | None:
        """Return a request for the first page of the next refresh; None if there was no refresh yet.

        To save a round trip, another command sends the request. Then pass it to `refresh`.
        """
        return self.session.first_page(after=self._cursor) if self._is_loaded else None

    async def refresh(self, first: FirstPage | None = None) -> SessionSnapshot:
        """Read the new entries, and return the session as of now. A cancelled refresh keeps the entries read so far.

        Args:
            first: the page that `first_page` described and that another command has read. None reads the first page.

        Raises:
            LogRolledBack: the log has lost entries that were read. Discard this object and make another.
            CursorTrimmed: entries that the context needs were trimmed, and no compaction stands in their place.
            StreamError: as for `Session.read`.
            Unavailable: as for `Session.read`.
        """
        async with self._one_at_a_time:
            try:
                if not self._is_loaded or not await self._continue(first):
                    await self._load()
                require_whole(self._context, self._gap)
            except (LogRolledBack, CursorTrimmed, ArchiveDamaged):
                self.is_stale = True
                raise
            return self.snapshot

    async def store(self) -> None:
        """Store the extension lane's fold, if the stored fold is at least `store_every` positions old.

        A cold start then reads fewer entries. Errors are ignored.
        """
        if self._cursor.position - self._stored < self._store_every or not self.is_whole:
            return  # a fold that misses trimmed entries must not be stored
        expected, self._stored = self._stored, self._cursor.position
        state = STATUS.dump(self._status)
        try:
            await self.session.save_projection(
                STATUS.name, STATUS.version, state, cursor=self._cursor, expected=expected
            )
        except BusError:
            self._stored = expected

    async def _continue(self, first: FirstPage | None) -> bool:
        """Read the new entries. Return False if entries that were folded, or that are new, can no longer be read."""
        gone = self._gone
        try:
            await self._read_on(first)
        except EntriesMissing:
            raise
        except CursorTrimmed:
            return False
        return self._gone <= gone

    async def _read_on(self, first: FirstPage | None = None) -> None:
        pages = self.session.pages(kinds=_WANTED, after=self._cursor, first=first)
        async with aclosing(pages):
            async for page in pages:
                for envelope in page.envelopes:
                    self._snapshot = None
                    if envelope.lane is Lane.LLM:
                        self._context = evolve(self._context, envelope)
                    elif envelope.position > self._forked:
                        self._status = STATUS.evolve(self._status, envelope)
                self._cursor = page.cursor
                self.size_bytes += page.size_bytes
                if page.head is not None:
                    self._note(page.head)

    def _note(self, head: SessionHead) -> None:
        """Remember which entries can no longer be read."""
        if head.trimmed > self._trimmed:
            self._trimmed, self._snapshot = head.trimmed, None
        self._gone = max(self._gone, unreadable_up_to(self.session, head))

    async def _load(self) -> None:
        """Read the whole session, and again if entries were trimmed meanwhile."""
        self._is_loaded = False
        while not self._is_loaded:
            self._begin_with(Context(self.session.id), Status(), START)
            self._gap, self.is_whole = None, True
            head = await self.session.head()
            self._note(head)
            gone = self._gone
            await self._load_from(head)
            self._is_loaded = self._gone <= gone

    async def _load_from(self, head: SessionHead) -> None:
        """Read the whole session. The extension lane is read from its stored state, or else after its trimmed part."""
        self._forked = head.own_start.position
        stored = await self.session.load_projection(STATUS.name, STATUS.version)
        self._stored = stored.position if stored is not None else 0
        try:
            if stored is not None and await self._begin(STATUS.state.validate_json(stored.state), stored.cursor, head):
                return
        except ValidationError:
            pass  # written by another version of the package
        except EntriesMissing:
            raise
        except CursorTrimmed:  # entries after the stored state were trimmed
            self._begin_with(Context(self.session.id), Status(), START)
        try:
            await self._read_on()
        except EntriesMissing:
            raise
        except CursorTrimmed:
            # If only the extension lane was trimmed, the context is still complete. So it is after a compaction.
            if self._cursor != START or not await self._begin(Status(), head.cursor_at(head.trimmed), head):
                raise
            self.is_whole = False

    async def _begin(self, status: Status, cursor: Cursor, head: SessionHead) -> bool:
        """Fold the LLM lane up to `cursor`, then both lanes after `cursor`, starting from `status`.

        Return False if `cursor` is from another incarnation of the log.

        Raises:
            CursorTrimmed: entries after `cursor` were trimmed.
        """
        try:
            context, self._gap = await fold_kept(self.session, until=cursor.position)
        except LogRolledBack:
            return False
        self._begin_with(context, status, cursor, head.size_bytes)
        try:
            await self._read_on()
        except LogRolledBack:
            self._begin_with(Context(self.session.id), Status(), START)
            return False
        return True

    def _begin_with(self, context: Context, status: Status, cursor: Cursor, size_bytes: int = 0) -> None:
        self._context, self._status, self._cursor, self._snapshot = context, status, cursor, None
        self.size_bytes = size_bytes


class SessionCache:
    """The most recently used sessions.

    A session with a running task belongs to the task and is not in the cache, so it is never evicted. At the bound the
    least recently used sessions are evicted; they are read again when needed.
    """

    def __init__(self, open_session: OpenSession, bounds: WorkerBounds = DEFAULT_WORKER_BOUNDS) -> None:
        self._open, self._bounds = open_session, bounds
        self._idle = RecentSessions[CachedSession](
            bounds.warm_sessions, bounds.warm_bytes, sweep_seconds=bounds.warm_sweep_seconds
        )

    def __len__(self) -> int:
        return len(self._idle)

    @property
    def sessions(self) -> list[str]:
        """The ids of the cached sessions."""
        return list(self._idle)

    @contextmanager
    def held(self, session: str, agent: str | None = None) -> Generator[CachedSession]:
        """Take a session out of the cache for the length of the block, and put it back afterwards.

        `agent` is used only for a session that is not in the cache: the agent that the session belongs to if it is new.
        None means the default agent.

        If the block ends with an error other than `Unavailable`, the session is discarded and read from its start next
        time. If two blocks hold the same session, each block has its own copy, and the copy of the block that ends last
        is kept.
        """
        idle = self._idle.pop(session)
        warm = idle or CachedSession(self._open(session, agent=agent), store_every=self._bounds.store_every)
        is_good = True
        try:
            yield warm
        except Exception as error:
            is_good = isinstance(error, Unavailable)
            raise
        finally:  # also if cancelled: entries read so far are kept
            if is_good and not warm.is_stale:
                self._keep(session, warm)

    def first_page(self, session: str) -> FirstPage | None:
        """Return `CachedSession.first_page` of a cached session; None if the session is not in the cache."""
        warm = self._idle.get(session)
        return None if warm is None else warm.first_page()

    async def catch_up(self, session: str) -> None:
        """Read the new entries of a cached session. Errors are ignored: the next `held` block reads again and raises
        them."""
        warm = self._idle.get(session)
        if warm is None:
            return
        try:
            await warm.refresh()
        except Exception as error:  # noqa: BLE001  # other sessions continue
            is_good = isinstance(error, Unavailable)
        else:
            is_good = True
        if self._idle.get(session) is warm:  # `held` has not removed it meanwhile
            self._idle.pop(session)
            if is_good:
                self._keep(session, warm)

    async def sweep(self, log: Log) -> None:
        """Drop the sessions that were erased. Raises the errors of `RecentSessions.sweep`."""
        await self._idle.sweep(log)

    def _keep(self, session: str, warm: CachedSession) -> None:
        self._idle.keep(session, warm, warm.size_bytes + ENTRY_BYTES * len(warm.snapshot.context.entries))
