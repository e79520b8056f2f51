"""The HTTP API that the page uses. Other clients may use it too."""

from collections.abc import Awaitable, Callable, Container
from dataclasses import replace

import anyio
from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lanebus.bus.bus import Bus
from lanebus.bus.errors import InvalidCursor, SessionErased
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.session.session import Session
from lanebus.bus.tracing import Tracing
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.access.access import Access
from lanebus.handlers.agent.commands import follow_up, send
from lanebus.handlers.agent.metadata_keys import BY
from lanebus.handlers.projections.views import Views
from lanebus.handlers.ui.auth import identified
from lanebus.handlers.ui.body import read_json
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.budget import ByteBudget
from lanebus.handlers.ui.call import call_view
from lanebus.handlers.ui.entries import EntriesQuery, entries_json
from lanebus.handlers.ui.errors import ServerBusy
from lanebus.handlers.ui.frames import SharedFrames, session_frames
from lanebus.handlers.ui.gate import Gate
from lanebus.handlers.ui.history import History
from lanebus.handlers.ui.media import stored_media
from lanebus.handlers.ui.open_streams import OpenStreams
from lanebus.handlers.ui.paced import PacedAnswer, PacedResponse, PacedWhole
from lanebus.handlers.ui.page import Asset, PageFiles
from lanebus.handlers.ui.posted import read_command, read_handover, read_posted_message
from lanebus.handlers.ui.replies import answer
from lanebus.handlers.ui.stream import EventStream
from lanebus.handlers.ui.tracing import TracedRoute
from lanebus.handlers.ui.views import status_view, turns_view, usage_view

__all__ = ("Api",)


class Api:
    """The endpoints of one bus. Clients need not create a session: a session exists from its first message on."""

    def __init__(
        self, bus: Bus, page: PageFiles, closing: anyio.Event, access: Access, bounds: UiBounds = DEFAULT_UI_BOUNDS
    ) -> None:
        self._bus, self._page, self._closing, self._bounds = bus, page, closing, bounds
        self._gate = Gate(access, bus)
        self._views = Views(bounds.views)
        self._budget, self._history = ByteBudget(bounds), History(bounds)
        self._streams, self._shared = OpenStreams(closing, bounds), SharedFrames(bounds.shared_bytes)
        self._folding = anyio.CapacityLimiter(1)

    def routes(self, tracing: Tracing) -> list[BaseRoute]:
        """Return all routes. The guard checks each request before a route handles it.

        Args:
            tracing: records the requests that publish.
        """
        session = "/api/sessions/{session}"

        def posted(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
            traced = Middleware(TracedRoute, route=path, tracing=tracing)
            return Route(path, endpoint, methods=["POST"], middleware=[traced])

        return [
            Route("/", self.index),
            Route("/static/{path:path}", self.static),
            Route("/favicon.ico", self.favicon),
            Route("/api/access", self.access),
            Route("/api/sessions", self.sessions),
            Route(session, self.head),
            Route(f"{session}/entries", self.entries),
            Route(session + "/entries/{position:int}/media/{sha256}", self.media),
            Route(f"{session}/events", self.events),
            posted(f"{session}/messages", self.post_message),
            posted(f"{session}/commands", self.post_command),
            posted(f"{session}/agent", self.post_agent),
            Route(f"{session}/status", self.status),
            Route(f"{session}/call", self.call),
            Route(f"{session}/turns", self.turns),
            Route(f"{session}/usage", self.usage),
        ]

    async def index(self, request: Request) -> Response:
        """Return the page."""
        del request
        return _file(self._page.document)

    async def static(self, request: Request) -> Response:
        """Return a file of the page; 404 if the page has no file of this name."""
        path = str(request.path_params["path"])
        if path not in self._page.assets:
            raise HTTPException(404)
        return _file(self._page.assets[path])

    async def favicon(self, request: Request) -> Response:
        """Return the icon for browsers that request it at the root."""
        del request
        return _file(self._page.assets["favicon.svg"])

    async def access(self, request: Request) -> Response:
        """Return `{"name": …, "canWrite": …, "actions": […], "lanes": […], "sessions": […], "expires": …}`: what the
        client's token allows. `expires` is a Unix time in seconds, or null.
        """
        principal = identified(request.scope).principal
        return answer(
            {
                "name": principal.name,
                "canWrite": any(each.partition(".")[0] != "read" for each in principal.actions),
                "actions": list(principal.actions),
                "lanes": sorted(lane.value for lane in principal.lanes),
                "sessions": list(principal.sessions),
                "expires": principal.expires,
            }
        )

    async def sessions(self, request: Request) -> Response:
        """Return `{"count": <all>, "sessions": [head, …]}`, most recently active first, at most `UiBounds.sessions`."""
        await self._gate.require(request, "read.sessions")

        async def listed() -> object:
            heads, served = await self._bus.sessions(), await self._bus.live_workers()
            heads = [
                head
                for head in heads
                if await self._gate.may(request, "read.sessions", session=head.session, agent=head.agent)
            ]
            shown = heads[: self._bounds.sessions]
            return {"count": len(heads), "sessions": [_head_json(head, served) for head in shown]}

        return PacedAnswer(listed, closing=self._closing, budget=self._budget, bounds=self._bounds)

    async def head(self, request: Request) -> Response:
        """Return the head of a session. The position is 0 if the session has no entries. 409 if it was erased."""
        session = self._session(request)
        await self._gate.require(request, "read.head", session=session.id)
        head = await session.head()
        if head.is_erased:
            raise SessionErased(head.session)
        return answer(_head_json(head, await self._bus.live_workers()))

    async def entries(self, request: Request) -> Response:
        """Return `{"entries": [envelope, …], "cursor": …, "more": …}`: the entries after `?after=`, up to and including
        `?until=`. `?lanes=extension` returns one lane.

        An answer has at most `UiBounds.page_entries` and about `UiBounds.answer_bytes`. If `more` is true, the client
        requests the rest with `?after=` and the answer's cursor. 503 if other answers take all memory.
        """
        session, query = self._session(request), request.query_params
        wanted = EntriesQuery.of(_cursor(query.get("after")), query.get("until"), query.get("lanes"))
        if query.get("lanes"):
            await self._gate.require(request, "read.entries", session=session.id, lanes=wanted.lanes)
        else:
            lanes, _ = await self._gate.allowed_lanes(request, "read.entries", session.id)
            wanted = wanted._replace(lanes=lanes)
        return PacedResponse(
            lambda share: entries_json(session, wanted, share, self._history, self._bounds),
            closing=self._closing,
            budget=self._budget,
            bounds=self._bounds,
        )

    async def media(self, request: Request) -> Response:
        """Return stored media that the entry at `position` refers to, by their SHA-256. 404 if it refers to none such.

        Media over `UiBounds.media_bytes` are refused with 413.
        """
        session = self._session(request)
        await self._gate.require(request, "read.media", session=session.id, lanes=(Lane.LLM,))
        position, sha256 = int(request.path_params["position"]), str(request.path_params["sha256"])
        limit = self._bounds.media_bytes
        return PacedWhole(
            lambda: stored_media(session, position, sha256, limit_bytes=limit),
            limit,
            closing=self._closing,
            budget=self._budget,
            bounds=self._bounds,
        )

    async def events(self, request: Request) -> Response:
        """Stream the session as server-sent events after `Last-Event-ID`, else after `?after=`, else from its start."""
        session = self._session(request)
        after = _cursor(request.headers.get("last-event-id") or request.query_params.get("after"))
        lanes, allowed = await self._gate.allowed_lanes(request, "read.events", session.id)
        return EventStream(
            lambda share, outlet: session_frames(
                *(session, after, share, self._history),
                outlet=outlet,
                shared=self._shared,
                lanes=lanes,
                bounds=self._bounds,
            ),
            streams=self._streams,
            budget=self._budget,
            bounds=self._bounds,
            access=self._gate.stream(request, allowed),
        )

    async def post_message(self, request: Request) -> Response:
        """Publish `{"text": …, "key"?: …, "followUp"?: …, "agent"?: …}` as a user message, and wake a worker.

        201 with positions. A new session belongs to `agent`; 409 if an existing session belongs to another agent.

        A follow-up waits until the running loop has ended. A client that got no response repeats the request with the
        same key. If the message was already published, it is not published again, and the status is 200.
        """
        session = self._session(request)
        posted = read_posted_message(await self._body(request))
        principal = await self._gate.require(request, "send", session=session.id, agent=posted.agent, lanes=(Lane.LLM,))
        message = _said(posted.text, principal.name)
        if posted.is_follow_up:
            return _published(await follow_up(session, message, key=posted.key))
        return _published(await session.publish(message, key=posted.key, wake=True, agent=posted.agent))

    async def post_command(self, request: Request) -> Response:
        """Publish a command, `{"command": "abort", "key"?: …, …}`. 201 with positions. [Commands](#commands)
        lists the commands and their fields.

        The last of the positions is the command's. A worker answers with a `ControlAnswered` event that names this
        position. If a request is repeated with the same key, nothing is published, and the status is 200.
        """
        session = self._session(request)
        by = identified(request.scope).principal.name
        posted = read_command(await self._body(request), session.id, by)
        lanes = (Lane.EXTENSION,) if posted.text is None else (Lane.LLM, Lane.EXTENSION)
        await self._gate.require(request, f"command.{posted.name}", session=session.id, lanes=lanes)
        said = None if posted.text is None else _said(posted.text, by)
        return _published(await send(session, posted.control, said, key=posted.key))

    async def post_agent(self, request: Request) -> Response:
        """Hand the session over with `{"agent": …, "by"?: …, "reason"?: …}`. 201 with the position of the event.

        A repeated request changes nothing, and its status is 200.
        """
        session = self._session(request)
        posted = read_handover(await self._body(request))
        principal = await self._gate.require(
            request, "hand_over", session=session.id, agent=posted.agent, lanes=(Lane.EXTENSION,)
        )
        return _published(await session.hand_over(posted.agent, by=principal.name, reason=posted.reason))

    async def status(self, request: Request) -> Response:
        """Return what the agent does, which calls wait for a person, and which commands have no answer yet."""
        session = self._session(request)
        await self._gate.require(request, "read.status", session=session.id, lanes=(Lane.EXTENSION,))
        return self._view(lambda: status_view(self._views, session))

    async def call(self, request: Request) -> Response:
        """Return one tool call of the newest loop: the call whose id is the query parameter `id`. 404 if there is none.

        The field `text` has all arguments, and the field `callHash` their hash. An approval that repeats this
        `callHash` is refused if the call's arguments have another hash.
        """
        session, call_id = self._session(request), request.query_params.get("id", "")
        await self._gate.require(request, "read.call", session=session.id, lanes=(Lane.LLM,))
        return self._view(lambda: call_view(self._views, session, call_id))

    async def turns(self, request: Request) -> Response:
        """Return the newest turns, with their tools and usage."""
        session = self._session(request)
        await self._gate.require(request, "read.turns", session=session.id, lanes=Lane)
        return self._view(lambda: turns_view(self._views, session, self._bounds.turns))

    async def usage(self, request: Request) -> Response:
        """Return the tokens and the cost of the session."""
        session = self._session(request)
        await self._gate.require(request, "read.usage", session=session.id, lanes=Lane)
        return self._view(lambda: usage_view(self._views, session))

    def _view(self, look: Callable[[], Awaitable[object]]) -> Response:
        async def folded() -> object:
            # One at a time: a fold reads large pages, and a repeat finds the state of the first in the cache.
            with anyio.move_on_after(self._bounds.wait_seconds):
                await self._folding.acquire()
                try:
                    return await look()
                finally:
                    self._folding.release()
            raise ServerBusy

        return PacedAnswer(folded, closing=self._closing, budget=self._budget, bounds=self._bounds)

    def _session(self, request: Request) -> Session:
        return self._bus.session(str(request.path_params["session"]))

    async def _body(self, request: Request) -> JsonValue:
        own = identified(request.scope).principal.body_bytes
        bounds = self._bounds
        return await read_json(
            request, bounds if own is None else replace(bounds, body_bytes=min(own, bounds.body_bytes))
        )


def _cursor(text: str | None) -> Cursor:
    if text and not text.isascii():  # int() also reads digits of other scripts
        raise InvalidCursor(text)
    return Cursor.parse(text) if text else START


def _said(text: str, by: str) -> UserMessage:
    return UserMessage.text(text).model_copy(update={"metadata": {BY: by}})


def _published(receipt: Receipt) -> Response:
    return answer(
        {"positions": list(receipt.positions), "duplicate": receipt.is_duplicate}, 200 if receipt.is_duplicate else 201
    )


def _head_json(head: SessionHead, served: Container[str]) -> JsonValue:
    origin = head.origin
    return {
        "id": head.session,
        "agent": head.agent,
        "hasWorker": head.agent in served,
        "position": head.position,
        "created": head.created,
        "updated": head.updated,
        "sizeBytes": head.size_bytes,
        "trimmed": head.trimmed,
        "firstKept": head.first_kept,
        "archived": head.archived,
        "isClosed": head.is_closed,
        "origin": {"session": origin.session, "position": origin.position} if origin else None,
    }


def _file(asset: Asset) -> Response:
    return Response(asset.content, headers={"Content-Type": asset.media_type})
