"""Sessions kept warm between their turns: both folds of each, so that the next turn reads only what is new."""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager
from typing import NamedTuple

import anyio
from pydantic import ValidationError

from bus.envelope import START, Cursor
from bus.errors import ArchiveDamaged, BusError, CursorTrimmed, LogRolledBack, Unavailable
from bus.log import FirstPage
from bus.messages.lanes import Lane
from bus.session import Session
from handlers.agent.bounds import DEFAULT_WORKER_BOUNDS, WorkerBounds
from handlers.agent.status import STATUS, STATUS_KINDS, Status
from handlers.context.fold import Context, evolve

__all__ = ("View", "WarmSession", "WarmSessions")

_LLM = frozenset({Lane.LLM})
_WANTED = {Lane.EXTENSION: STATUS_KINDS}


class View(NamedTuple):
    """A session as its worker sees it: the LLM lane's fold and the extension lane's, up to the same place."""

    context: Context
    status: Status


class WarmSession:
    """One session's folds. Both lanes are read in one step, and of the extension lane only what the fold looks at."""

    def __init__(self, session: Session, *, store_every: int = DEFAULT_WORKER_BOUNDS.store_every) -> None:
        """
        Args:
            store_every: positions between two stored states, see `WorkerBounds`.
        """
        self.session, self._store_every = session, store_every
        self._context, self._status = Context(session.id), Status()
        self._cursor = START
        """up to where was read"""
        self._forked = 0
        """up to here the extension lane is a fork's parent's, whose loop it was"""
        self._stored = 0
        self._trimmed = 0
        """up to where the log was trimmed when this was loaded"""
        self._is_loaded = False
        self.is_whole = True
        """nothing of the extension lane was trimmed away before it was folded"""
        self.is_stale = False
        """the log no longer holds what follows what was read: only reading it from its start may help"""
        # Two refreshes at a time would each read and fold the same entries.
        self._one_at_a_time = anyio.Lock(fast_acquire=True)

    @property
    def view(self) -> View:
        """As of the last refresh; empty before the first."""
        status = self._status
        # What the model is offered has to be told anew where nobody finds it any more.
        if status.request is not None and status.request_position <= self._trimmed:
            status = status.model_copy(update={"request": None})
        return View(self._context, status)

    @property
    def cursor(self) -> Cursor:
        """Up to where it was read."""
        return self._cursor

    def first_page(self) -> FirstPage | None:
        """The page that the next refresh begins with, for who asks for it before; None if nothing was read yet."""
        return self.session.first_page(after=self._cursor) if self._is_loaded else None

    async def refresh(self, first: FirstPage | None = None) -> View:
        """The session as of now. May be cancelled at any point: what was folded stays, the next call goes on there.

        Args:
            first: what `first_page` gave, if it was asked for.

        Raises:
            LogRolledBack: the log has lost what this holds. It is of no use any more: make another.
            StreamError, Unavailable: as reading the session does.
        """
        async with self._one_at_a_time:
            try:
                if self._is_loaded:
                    await self._read_on(first)
                else:
                    await self._load()
            except (LogRolledBack, CursorTrimmed, ArchiveDamaged):
                self.is_stale = True
                raise
            return self.view

    async def store(self) -> None:
        """Keep the extension lane's fold for a cold start, if there is much behind the one that is kept. A failure goes
        no further: it only saves reading.
        """
        if self._cursor.position - self._stored < self._store_every or not self.is_whole:
            return  # a state that lacks its beginning is none of the log's
        expected, self._stored = self._stored, self._cursor.position
        state = STATUS.dump(self._status)
        try:
            await self.session.save_projection(
                STATUS.name, STATUS.version, state, cursor=self._cursor, expected=expected
            )
        except BusError:
            self._stored = expected

    async def _read_on(self, first: FirstPage | None = None) -> None:
        pages = self.session.pages(kinds=_WANTED, after=self._cursor, first=first)
        async with aclosing(pages):
            async for page in pages:
                for envelope in page.envelopes:
                    if envelope.lane is Lane.LLM:
                        self._context = evolve(self._context, envelope)
                    elif envelope.position > self._forked:
                        self._status = STATUS.evolve(self._status, envelope)
                self._cursor = page.cursor

    async def _load(self) -> None:
        """Read all there is, from where a stored state, or what was trimmed away, lets us begin."""
        head = await self.session.head()
        self._forked, self._trimmed = head.own_start.position, head.trimmed
        stored = await self.session.load_projection(STATUS.name, STATUS.version)
        self._stored = stored.position if stored is not None else 0
        try:
            if stored is not None and await self._begin(STATUS.state.validate_json(stored.state), stored.cursor):
                self._is_loaded = True
                return
        except ValidationError:
            pass  # another version of the package wrote it
        try:
            await self._read_on()
        except CursorTrimmed:
            # The model may still be told all, if nothing but the extension lane is gone.
            if self._cursor != START or not await self._begin(Status(), head.cursor_at(head.trimmed)):
                raise
            self.is_whole = False
        self._is_loaded = True

    async def _begin(self, status: Status, cursor: Cursor) -> bool:
        """Begin behind a cursor, with all of the LLM lane up to there; False if the log is not the one it names.

        Raises:
            CursorTrimmed: the LLM lane is not whole.
        """
        context = Context(self.session.id)
        try:
            async with aclosing(self.session.read(lanes=_LLM, until=cursor.position)) as entries:
                async for envelope in entries:
                    context = evolve(context, envelope)
        except LogRolledBack:
            return False
        self._context, self._status, self._cursor = context, status, cursor
        try:
            await self._read_on()
        except LogRolledBack:
            self._context, self._status, self._cursor = Context(self.session.id), Status(), START
            return False
        return True


class WarmSessions:
    """The sessions that were worked on last.

    A session that is being worked on belongs to its job and is not in here, so it is never evicted: a job that went on
    with an empty one would see no work. Of the others the oldest are evicted at the bound, and read again when needed.
    """

    def __init__(self, open_session: Callable[[str], Session], bounds: WorkerBounds = DEFAULT_WORKER_BOUNDS) -> None:
        self._open, self._bounds = open_session, bounds
        self._idle: OrderedDict[str, _Idle] = OrderedDict()
        self._entries = 0

    def __len__(self) -> int:
        return len(self._idle)

    @contextmanager
    def held(self, session: str) -> Generator[WarmSession]:
        """Hold a session for the length of the block; afterwards it is kept for the next holder.

        A block that ends with an error other than `Unavailable` discards it: the next holder reads the session from its
        start. If two blocks hold the same session, each has its own, and the one that is given back last is kept.
        """
        idle = self._remove(session)
        warm = WarmSession(self._open(session), store_every=self._bounds.store_every) if idle is None else idle
        is_good = True
        try:
            yield warm
        except Exception as error:
            is_good = isinstance(error, Unavailable)
            raise
        finally:  # also if cancelled: what was folded stays
            if is_good and not warm.is_stale:
                self._keep(session, warm)

    def first_page(self, session: str) -> FirstPage | None:
        """Of a session that is kept and not held; None of any other."""
        idle = self._idle.get(session)
        return None if idle is None else idle.warm.first_page()

    async def catch_up(self, session: str) -> None:
        """Read on in a session that is kept and not held. A failure goes no further: the next holder meets it."""
        idle = self._idle.get(session)
        if idle is None:
            return
        try:
            await idle.warm.refresh()
        except Exception as error:  # noqa: BLE001  # other sessions go on
            is_good = isinstance(error, Unavailable)
        else:
            is_good = True
        if self._idle.get(session) is idle:  # nobody holds it meanwhile
            self._remove(session)
            if is_good:
                self._keep(session, idle.warm)

    def _keep(self, session: str, warm: WarmSession) -> None:
        self._remove(session)
        idle = self._idle[session] = _Idle(warm, len(warm.view.context.entries))
        self._entries += idle.entries
        bounds = self._bounds
        # One stays however long it is: it would be read from its start at each turn.
        while len(self._idle) > 1 and (len(self._idle) > bounds.warm_sessions or self._entries > bounds.warm_entries):
            self._remove(next(iter(self._idle)))

    def _remove(self, session: str) -> WarmSession | None:
        idle = self._idle.pop(session, None)
        if idle is None:
            return None
        self._entries -= idle.entries
        return idle.warm


class _Idle(NamedTuple):
    warm: WarmSession
    entries: int
    """of the LLM lane"""
