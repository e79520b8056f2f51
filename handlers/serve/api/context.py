"""What the endpoints of one application share."""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar, cast

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Activity, Bus, Session
from lanebus.bus.errors import BusError, SessionErased, Unavailable
from lanebus.handlers.context import RESTS, PastContexts
from lanebus.handlers.projections import SESSIONS, STATUS, TIMELINE, TURNS, USAGE, Projection, Views
from lanebus.handlers.protocols import ContentRules, MediaAddresses
from lanebus.handlers.serve.access.access import Access
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.budget import TURN, ByteBudget, Share, Turns, WorkTurn
from lanebus.handlers.serve.errors import SessionMissing, UnknownAgent
from lanebus.handlers.serve.frames import SharedFrames
from lanebus.handlers.serve.gate import Gate
from lanebus.handlers.serve.guard import identified
from lanebus.handlers.serve.page import PageFiles
from lanebus.handlers.serve.session_index import SessionIndex
from lanebus.handlers.serve.stream import OpenStreams
from lanebus.handlers.serve.transfer import History, PacedAnswer, read_json
from lanebus.handlers.serve.uploads.uploads import Uploads

T = TypeVar("T")

_OWN = (USAGE, TURNS, SESSIONS, STATUS, TIMELINE)


class ApiContext:
    """The bus, the access rules, the memory and the bounds of one application.

    Clients need not create a session: a session exists from its first message on.
    """

    def __init__(
        self,
        bus: Bus,
        page: PageFiles,
        closing: anyio.Event,
        access: Access,
        bounds: UiBounds = DEFAULT_UI_BOUNDS,
        *,
        projections: Iterable[Projection[object]] = (),
        uploads: Uploads | None = None,
        addresses: MediaAddresses | None = None,
    ) -> None:
        """
        Args:
            bus: the bus.
            page: files of the page.
            closing: event that the server sets when it ends.
            access: the rules.
            bounds: limits and periods.
            projections: projections to serve besides lanebus's own.
            uploads: receives files; None means in a temporary directory.
            addresses: the addresses of media that clients may name; None means none.
        """
        self.projections: Mapping[str, Projection[object]] = {
            each.name: each for each in (*cast("Iterable[Projection[object]]", _OWN), *projections)
        }
        self.bus, self.page, self.closing, self.bounds = bus, page, closing, bounds
        self.content = ContentRules(addresses or MediaAddresses(), bounds.message_blocks, bounds.inline_bytes)
        self.gate = Gate(access, bus)
        self.views, self.contexts = Views(bounds.views), PastContexts(bounds.contexts)
        self.index = SessionIndex(bus, bounds.index)
        self.budget, self.history = ByteBudget(bounds), History(bounds)
        self.streams, self.shared_frames = OpenStreams(closing, bounds), SharedFrames(bounds.shared_bytes)
        self.changes = Changes(bus, bounds)
        self.uploads = uploads or Uploads(bus, bounds=bounds.uploads, wait_seconds=bounds.wait_seconds)
        self.folds = Turns(1, own=1, begun=bounds.folds, queued=bounds.queued, seconds=bounds.wait_seconds)
        """turns at folding sessions and listing them"""

    async def sweep_forever(self) -> None:
        """Read the new entries of all sessions for the list, and drop what is remembered of erased sessions, until
        cancelled: at once, and then now and then. Requests do so too."""
        while True:
            with suppress(BusError):  # the next sweep tries again
                await self.views.sweep(self.bus.log)
                await self.contexts.sweep(self.bus.log)
                await self._catch_up()
            await anyio.sleep(self.bounds.index.sweep_seconds)

    async def _catch_up(self) -> None:
        """Read the new entries of all sessions. Requests work in between: each turn reads for a bounded time."""
        while True:
            async with self.folds.turn(""):  # no principal has this name
                await self.index.refresh()
            if not self.index.unread(self.index.rows):
                return

    def session(self, request: Request) -> Session:
        """Return the session that a request's path names."""
        return self.bus.session(str(request.path_params["session"]))

    async def require_entries(self, session: Session) -> None:
        """Check that a session has entries, so that a misspelt id creates no session.

        Raises:
            SessionMissing: it has none.
            SessionErased: it was erased.
        """
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session.id)
        if not head.position:
            raise SessionMissing(session.id)

    async def require_known(self, session: Session, agent: str) -> None:
        """Check that an agent was heard of before a client begins a session of it: a misspelt one would wait for ever.

        Raises:
            UnknownAgent: it was not, and the session has no entries.
            Unavailable: the server cannot be reached.
        """
        if not (await session.head()).position and not await self.bus.is_known_agent(agent):
            raise UnknownAgent(agent)

    async def has_worker(self, agent: str) -> bool | None:
        """Return whether a live worker serves an agent; None if this cannot be read.

        No error is raised, because callers ask after a publish: an error would make the client send it again.
        """
        try:
            return agent in await self.bus.live_workers()
        except BusError:
            return None

    async def body(self, request: Request) -> JsonValue:
        """Read a request's body, and hold its memory until the request was handled; see `read_json`. A principal may
        have a smaller limit than the server."""
        own = identified(request.scope).principal.body_bytes
        bounds = self.bounds
        return await read_json(
            request, self.budget, bounds if own is None else replace(bounds, body_bytes=min(own, bounds.body_bytes))
        )

    def listed(self, value: Callable[[], Awaitable[object]]) -> Response:
        """Return a response with a JSON value that costs the server work: principals take turns at it."""

        async def in_turn(share: Share) -> object:
            async with self._turn(share.owner):
                return await value()

        return self._paced(in_turn)

    def view(self, look: Callable[[], Awaitable[object]]) -> Response:
        """Return a response with a JSON value that is read from projections; see `folded`."""
        return self._paced(lambda share: self.folded(share.owner, look))

    def _paced(self, value: Callable[[Share], Awaitable[object]]) -> Response:
        return PacedAnswer(value, closing=self.closing, budget=self.budget, bounds=self.bounds)

    async def folded(self, owner: str, look: Callable[[], Awaitable[T]]) -> T:
        """Return what is read from projections, one fold at a time. Principals take turns, also within a long fold.

        Args:
            owner: whom the work counts for; see `owner_of`.
            look: reads the projections.

        Raises:
            ServerBusy: the turn did not come in time.
            TooManyWaiting: the principal has too many requests that wait.
        """
        # One of a principal: a fold reads large pages, and a repeat finds the state of the first in the cache. A fold
        # that has begun is not cut off: the next one would begin anew, and a long session would never be folded.
        async with self._turn(owner) as turn:
            token = RESTS.set(turn.rest)
            try:
                return await look()
            finally:
                RESTS.reset(token)

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncGenerator[WorkTurn]:
        async with self.folds.turn(owner) as turn:
            token = TURN.set(turn)
            try:
                yield turn
            finally:
                TURN.reset(token)


# Which sessions have new entries, read once for all clients from the change notices.


class ChangedSessions(NamedTuple):
    """What one reading found."""

    positions: Mapping[str, int]
    """the last position of each changed session"""
    is_complete: bool
    """whether all changed sessions are named. If not, the client lists the sessions again"""


class Changes:
    """The changed sessions of a bus. The server is asked only while a client waits, by one client for all."""

    def __init__(self, bus: Bus, bounds: UiBounds) -> None:
        self._bus, self._pause = bus, bounds.changes_seconds
        self._last: Activity | None = None
        self._found, self._count = deque[ChangedSessions](maxlen=bounds.changes_kept), 0
        self._beginning, self._reading = anyio.Lock(), anyio.Lock()

    async def follow(self) -> AsyncGenerator[ChangedSessions]:
        """Yield a first change that names nothing, and then each change. A client that lists the sessions after the
        first change misses none.

        Raises:
            BusError: the first reading failed. Later failures are retried.
        """
        async with self._beginning:
            if self._last is None:
                self._last = await self._bus.activity()
        count = self._count
        yield ChangedSessions({}, is_complete=True)
        while True:
            async with self._reading:  # one client reads for all others, until there is a change
                while self._count == count:
                    await anyio.sleep(self._pause)
                    await self._read()
                missed, kept = self._count - count, len(self._found)
                news = [*self._found][-min(missed, kept) :]
                count = self._count
            if missed > kept:
                yield ChangedSessions({}, is_complete=False)
            for change in news:
                yield change

    async def _read(self) -> None:
        try:
            now = await self._bus.activity(self._last)
        except Unavailable:
            return  # the next reading begins where the last one ended
        before, self._last = self._last, now
        new = now.published - (0 if before is None else before.published)
        if new:
            # Fewer if a bucket had more publishes than are named, and negative if the server lost its end.
            positions = {session: span.last for session, span in now.sessions.items()}
            self._found.append(ChangedSessions(positions, is_complete=now.named >= new > 0))
            self._count += 1
