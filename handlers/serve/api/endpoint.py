"""What the endpoints of one application share, and their declarations, from which the routes are made."""

import inspect
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import anyio
from pydantic import JsonValue
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanebus.bus import Activity, Bus, Session, Tracing
from lanebus.bus.errors import BusError, DecodeError, InvalidCursor, SessionErased, Unavailable
from lanebus.bus.messages import Lane
from lanebus.bus.text import number_in
from lanebus.bus.wire import START, Cursor
from lanebus.handlers.context import RESTS, PastContexts
from lanebus.handlers.formats import milliseconds_of, parse_datetime
from lanebus.handlers.projections import SESSIONS, STATUS, TIMELINE, TURNS, USAGE, Projection, Views
from lanebus.handlers.protocols import ContentRules, MediaAddresses
from lanebus.handlers.serve.access.access import Access
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.budget import TURN, ByteBudget, Share, Turns, WorkTurn
from lanebus.handlers.serve.errors import (
    InvalidParameter,
    RepeatedParameter,
    SessionMissing,
    UnknownAgent,
    UnknownParameter,
)
from lanebus.handlers.serve.gate import Gate
from lanebus.handlers.serve.guard import identified
from lanebus.handlers.serve.page import PageFiles
from lanebus.handlers.serve.session_index import SessionIndex
from lanebus.handlers.serve.stream import OpenStreams, SharedFrames
from lanebus.handlers.serve.transfer import History, PacedAnswer, give_back, read_json
from lanebus.handlers.serve.uploads import Uploads

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
        part = replace(bounds, memory_bytes=bounds.memory_bytes // 2, principal_bytes=bounds.principal_bytes // 3)
        self.bodies = ByteBudget(part)
        """the memory of requests' bodies. It is apart, as a request that holds its body may wait for `budget`: if both
        were one, such requests could wait for each other"""
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
            request, self.bodies, bounds if own is None else replace(bounds, body_bytes=min(own, bounds.body_bytes))
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


# Declarations of endpoints and of their query parameters, and the routes made from them.


# Query parameters that an endpoint declares and reads.

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class Parameter(Generic[T_co]):
    """A query parameter."""

    name: str
    """its name"""
    description: str
    """what it does, for the reference"""
    parse: Callable[[str], T_co]
    """turns its text into the value; raises a BusError if the text is wrong"""
    default: T_co
    """the value of a request without the parameter"""
    schema: Mapping[str, JsonValue] = field(default_factory=lambda: {"type": "string"})
    """JSON schema of its text"""
    is_required: bool = False
    """whether a request without it is refused by the endpoint"""

    def of(self, request: Request) -> T_co:
        """Return the value that a request gives.

        Raises:
            BusError: the text is wrong.
        """
        text = request.query_params.get(self.name)
        return self.default if text is None else self.parse(text)


def check_parameters(query: QueryParams, allowed: Collection[str]) -> None:
    """Check the names of a request's query parameters.

    Raises:
        UnknownParameter: the endpoint does not have one of them.
        RepeatedParameter: one is given twice.
    """
    seen = set[str]()
    for name, _ in query.multi_items():
        if name not in allowed:
            raise UnknownParameter(name, allowed)
        if name in seen:
            raise RepeatedParameter(name)
        seen.add(name)


# Declarations of endpoints, and the routes made from them.


class _PositionConvertor(IntegerConvertor):
    """An integer in a path. Starlette's own has no bound, and Python refuses to read 4,301 digits."""

    regex = "[0-9]{1,18}"


register_url_convertor(
    "lanebus_position", _PositionConvertor()
)  # under a name of its own: an application may use "int"

Handler: TypeAlias = Callable[[ApiContext, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """An endpoint of the API, or a file of the page."""

    path: str
    """the pattern of its path, such as `/api/sessions/{session}`"""
    handler: Handler
    """answers a request; the docstring is the text of the reference"""
    method: Literal["GET", "POST", "PATCH", "DELETE"] = "GET"
    parameters: tuple[Parameter[object], ...] = ()
    """its query parameters"""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """request headers that it reads, with their descriptions"""
    body: object = None
    """type of the JSON body, for its schema; None means no JSON"""
    body_type: str | None = None
    """content type of a body of other bytes; None means JSON, or no body"""
    answer: object = None
    """type of the JSON that it returns, for its schema; None means other bytes"""
    media_types: tuple[str, ...] = ("application/json",)
    """content types of its answers"""
    statuses: tuple[int, ...] = (200,)
    """HTTP statuses of its answers"""
    errors: tuple[int, ...] = ()
    """HTTP statuses of errors that other endpoints do not have; see `all_errors`"""
    is_public: bool = False
    """whether it needs no token"""
    is_file: bool = False
    """whether it is a file of the page, which ignores the query and is no part of the API"""
    is_traced: bool = False
    """whether its requests are recorded as parts of their clients' traces"""

    @property
    def summary(self) -> str:
        """The first paragraph of the handler's docstring, on one line."""
        return " ".join((inspect.getdoc(self.handler) or "").split("\n\n", maxsplit=1)[0].split())

    @property
    def name(self) -> str:
        """The name of the handler, in camel case."""
        first, *rest = self.handler.__name__.split("_")
        return first + "".join(map(str.capitalize, rest))

    @property
    def all_errors(self) -> tuple[int, ...]:
        """HTTP statuses of its errors."""
        common = {400} if self.is_public else {400, 401, 403, 404, 409, 429, 503, 504}
        of_body = set[int]() if self.body is None and self.body_type is None else {408, 413, 415}
        return tuple(sorted(common | of_body | {*self.errors}))

    def route(self, api: ApiContext, tracing: Tracing) -> Route:
        """Return the route of this endpoint."""
        names = frozenset(each.name for each in self.parameters)

        async def handle(request: Request) -> Response:
            if not self.is_file:
                check_parameters(request.query_params, names)
            try:
                return await self.handler(api, request)
            finally:
                give_back(request.scope)

        traced = [Middleware(TracedRoute, route=self.path, tracing=tracing)] if self.is_traced else None
        path = self.path.replace(":int}", ":lanebus_position}")
        return Route(path, handle, methods=[self.method], middleware=traced)


def routes(endpoints: Iterable[ApiEndpoint], api: ApiContext, tracing: Tracing) -> list[Route]:
    """Return the routes of endpoints, in their order.

    Args:
        endpoints: the endpoints.
        api: what they share.
        tracing: records the requests of the endpoints that are traced.
    """
    return [endpoint.route(api, tracing) for endpoint in endpoints]


def methods_of(routes: Iterable[Route], scope: Scope) -> frozenset[str]:
    """Return the methods of the routes that have the path of a request; none if no route has it."""
    found = [route.methods or set[str]() for route in routes if route.matches(scope)[0] is not Match.NONE]
    return frozenset[str]().union(*found)


# Query parameters of several endpoints.

_LANE = "(llm|extension)"
_MOMENT: dict[str, JsonValue] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "minimum": 0}]}


def parse_cursor(text: str) -> Cursor:
    """Return the cursor of a text from a client. Raises InvalidCursor if it is none."""
    if not text.isascii():  # int() also reads digits of other scripts
        raise InvalidCursor(text)
    return Cursor.parse(text)


def count_parameter(name: str, description: str, *, least: int = 0) -> Parameter[int | None]:
    """Return a parameter that is a whole number of at least `least`. Without it, the value is None."""

    def parse(text: str) -> int | None:
        number = number_in(text, 15)
        if number is None or number < least:
            raise InvalidParameter(name, text, f"give a whole number from {least} on")
        return number

    schema: dict[str, JsonValue] = {"type": "integer", "minimum": least, "maximum": 10**15 - 1}
    return Parameter[int | None](name=name, description=description, parse=parse, default=None, schema=schema)


def text_parameter(
    name: str, description: str, choices: Collection[str] = (), *, longest: int = 200
) -> Parameter[str | None]:
    """Return a parameter that is a text of at most `longest` characters, or one of `choices` if there are any.

    Without it, the value is None.
    """

    def parse(text: str) -> str | None:
        if choices and text not in choices:
            raise InvalidParameter(name, text, f"use one of {', '.join(choices)}")
        if len(text) > longest:
            raise InvalidParameter(name, text, f"give at most {longest} characters")
        return text

    bound: dict[str, JsonValue] = {"enum": [*choices]} if choices else {"maxLength": longest}
    schema: dict[str, JsonValue] = {"type": "string", **bound}
    return Parameter[str | None](name=name, description=description, parse=parse, default=None, schema=schema)


def moment(name: str, description: str, *, longest: int = 50) -> Parameter[float | None]:
    """Return a parameter that is a moment: ISO 8601 with a time zone, or Unix seconds. Its value is Unix seconds."""

    def parse(text: str) -> float:
        remedy = "use ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z, or Unix seconds"
        try:
            seconds = float(text) if text.isascii() and len(text) <= longest else math.nan
        except ValueError:
            seconds = _seconds(text)
        if not 0 <= seconds < math.inf:
            raise InvalidParameter(name, text, remedy)
        return seconds

    return Parameter(name=name, description=description, parse=parse, default=None, schema=_MOMENT)


def _seconds(text: str) -> float:
    try:
        found = parse_datetime(text, "")
    except DecodeError:
        return math.nan
    return math.nan if found.tzinfo is None else max(milliseconds_of(found), 0) / 1000


def flag(name: str, description: str, *, default: bool) -> Parameter[bool]:
    """Return a parameter that is `true` or `false`."""

    def parse(text: str) -> bool:
        if text not in {"true", "false"}:
            raise InvalidParameter(name, text, "use true or false")
        return text == "true"

    schema: dict[str, JsonValue] = {"type": "boolean", "default": default}
    return Parameter(name=name, description=description, parse=parse, default=default, schema=schema)


def lanes(description: str, *, default: str) -> Parameter[frozenset[Lane] | None]:
    """Return the parameter `lanes`. The value None means all lanes that the token allows."""

    def parse(text: str) -> frozenset[Lane] | None:
        names = text.split(",")
        if text == "all":
            return None
        if not {*names} <= {lane.value for lane in Lane}:
            raise InvalidParameter("lanes", text, 'use "llm", "extension", both with a comma, or "all"')
        return frozenset(map(Lane, names))

    schema: dict[str, JsonValue] = {"type": "string", "pattern": f"^(all|{_LANE}(,{_LANE})*)$", "default": default}
    return Parameter(name="lanes", description=description, parse=parse, default=parse(default), schema=schema)


def _position(text: str) -> int:
    return parse_cursor(text).position


def _kinds(text: str, most: int = 100) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if not all(kinds) or len(kinds) > most:  # each entry is compared with each kind
        raise InvalidParameter("kinds", text, f"use 1 to {most} names of kinds with commas, such as user,agent.*")
    return kinds


_CURSOR: dict[str, JsonValue] = {
    "type": "string",
    "pattern": r"^[0-9]{1,18}(-[0-9]{1,18}(\.[A-Za-z0-9_-]{1,32}(\.[0-9a-f]{1,8})?)?)?$",
}
AFTER = Parameter(
    name="after",
    description="Start after this position or cursor. Without it, start at the beginning.",
    parse=parse_cursor,
    default=START,
    schema=_CURSOR,
)
UNTIL = Parameter[int | None](
    name="until",
    description="End at this position or cursor. Without it, end at the last entry.",
    parse=_position,
    default=None,
    schema=_CURSOR,
)
BEFORE = count_parameter(
    "before",
    "End before this position, and start so that the answer covers at most `limit` positions. These may hold no entry "
    "that `lanes` and `kinds` select: go on while `previous` is not null, even if `entries` is empty.",
    least=1,
)
LIMIT = count_parameter(
    "limit",
    "Cover at most this many positions, not entries: an answer may have fewer entries, or none, while `more` is true. "
    "A number over 1,000 counts as 1,000, and the server may cover fewer.",
    least=1,
)
KINDS = Parameter[tuple[str, ...] | None](
    name="kinds",
    description="Kinds of messages with commas: roles of the LLM lane such as `user`, kinds of the extension lane such "
    "as `agent.turn.ended`, or a prefix with a star such as `agent.*`. Kinds are open: an unknown one matches nothing. "
    "Entries that cannot be read match every kind.",
    parse=_kinds,
    default=None,
    schema={"type": "string", "pattern": "^[^,]+(,[^,]+){0,99}$"},
)
POSITION = Parameter[int | None](
    name="position",
    description="position of an entry; without it, the end of the session",
    parse=_position,
    default=None,
    schema=_CURSOR,
)


# Record the requests that publish, as parts of the traces that their clients began.


class HttpRecord(Protocol):
    """A request that is being recorded."""

    def answered(self, status: int) -> None:
        """Record the status of the response."""
        ...


@runtime_checkable
class HttpTracing(Protocol):
    """Records HTTP requests. If a bus's `Tracing` also implements this protocol, `serve` uses it."""

    def requesting(
        self, method: str, route: str, scheme: str, path: str, headers: Iterable[tuple[str, str]]
    ) -> AbstractContextManager[HttpRecord | None]:
        """Record a request for the length of the block.

        Args:
            method: HTTP method, in upper case.
            route: the route's pattern, such as `/api/sessions/{session}/messages`.
            scheme: "http" or "https".
            path: the path that was requested.
            headers: names in lower case, with their values.

        Returns:
            A context manager. Its value is None if the server's own instrumentation already records the request.
        """
        ...


class TracedRoute:
    """ASGI middleware that records the requests to one route. `Guard` runs first, so only requests with a token are
    recorded."""

    def __init__(self, app: ASGIApp, *, route: str, tracing: Tracing) -> None:
        self._app, self._route = app, route
        self._tracing = tracing if isinstance(tracing, HttpTracing) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if self._tracing is None:
            await self._app(scope, receive, send)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        asked = (scope["method"], self._route, scope["scheme"], scope["path"])
        with self._tracing.requesting(*asked, headers) as record:

            async def send_recorded(message: Message) -> None:
                if record is not None and message["type"] == "http.response.start":
                    record.answered(message["status"])
                await send(message)

            await self._app(scope, receive, send_recorded)
