"""What the replicas of an MCP server share: the events of resumable streams, and change notices for subscribers.

These are the two seams of the MCP Python SDK for servers in several processes. `McpEventStore` keeps the events, which
clients of the protocol up to 2025-11-25 read again after a lost connection. `McpSubscriptionBus` delivers change
notices to the subscribers of all processes.
"""

import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from typing import NamedTuple, Self

import anyio
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import JsonValue
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanebus import (
    ALL_LANES,
    Bus,
    BusError,
    Closed,
    Cursor,
    Envelope,
    ExtensionMessage,
    Lane,
    Receipt,
    Session,
    Unavailable,
)
from lanebus.errors import CursorTrimmed, DecodeError, LogRolledBack, NotEntered
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_STORE_BOUNDS, McpStoreBounds
from lanebus.handlers.integrations.session_states import load_value, own_message, session_id_of, store_value
from lanebus.integration import Backoff, logged, number_in

_EVENT_KIND = "store.mcp.event"


class _StoredEvent(NamedTuple):
    position: int
    scope: str
    stream: str
    value: JsonValue
    """the message, as `store_value` wrote it; None for the event that only begins a stream"""


class McpEventStore(EventStore):
    """An `EventStore` of the MCP SDK whose events are on disk before a client gets them.

        store = McpEventStore(bus)
        app = store.separated(server.streamable_http_app(event_store=store))

    An event id is the position of its entry, as text. After `store_event` has returned, every process with the same
    bus and name can replay the event, also if this process is killed. The events of the newest `kept_entries` entries
    are kept; an older id is unknown.

    The SDK gives all clients of a server one store, and numbers the streams of each client alike. `separated` keeps
    them apart. Without it, use the store for one client only, as otherwise a client gets the events of others.
    """

    def __init__(
        self, bus: Bus, name: str = "mcp-events", *, bounds: McpStoreBounds = DEFAULT_MCP_STORE_BOUNDS
    ) -> None:
        """
        Args:
            bus: the bus.
            name: name of the session that holds the events.
            bounds: number of kept events, and the size from which a message goes to the media store.
        """
        self._session = bus.session(session_id_of(name, prefix="mcp"))
        self._bounds = bounds

    def separated(self, app: ASGIApp) -> ASGIApp:
        """Return an application that keeps the events of each MCP session apart, with the lifespan of `app`.

        Args:
            app: the application of the SDK that was given this store.
        """
        return EventScopes(app)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event, and return its id. If the call is cancelled, the event may be stored.

        Args:
            stream_id: the SDK's id of the stream.
            message: the message; None for the event that only begins a stream.

        Raises:
            MediaTooLarge: the message is larger than the media store allows.
            SessionErased: the session of the events was erased.
            LogRolledBack: the server lost events, so clients may hold ids of events that no longer exist.
            OutcomeUnknown: the event was sent, and not acknowledged in time.
            Unavailable: the event was not stored.
        """
        value = None
        if message is not None:
            text = message.model_dump_json(by_alias=True, exclude_unset=True)
            value = await store_value(self._session.media, text.encode(), bounds=self._bounds.values)
        data: JsonValue = {"scope": current_scope(), "stream": stream_id, "message": value}
        entry = ExtensionMessage.of(_EVENT_KIND, data)
        return str((await append_trimmed(self._session, entry, kept=self._bounds.kept_entries)).positions[-1])

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> None:
        """Send the later events of the stream that an event belongs to, in order, and then new ones as they are stored.

        The call ends when the answer that ends the stream was sent, or after `resume_seconds`: the client then connects
        again. The SDK would continue a stream by itself if this call returned its id. It would lose the events that are
        stored meanwhile, and all events of other processes.

        Args:
            last_event_id: id of the last event that the client has. Nothing is sent if it is unknown, was trimmed, or
                belongs to another MCP session.
            send_callback: sends one event to the client.

        Raises:
            DecodeError: a stored message is damaged.
            MediaMissing: the media store no longer has a message.
            MediaDamaged: a stored message was changed.
            SessionErased: the session of the events was erased.
            Unavailable: the server or the media store cannot be reached.
        """
        position = number_in(last_event_id)
        if not position or position > (await self._session.head()).position:
            return
        with suppress(CursorTrimmed):
            last = await self._find(position)
            if last is None or last.scope != current_scope():
                return
            with anyio.move_on_after(self._bounds.resume_seconds):
                await self._send_after(last, send_callback)

    async def _send_after(self, last: _StoredEvent, send: EventCallback) -> None:
        entries = self._session.follow(lanes=ALL_LANES, kinds={_EVENT_KIND}, after=Cursor(last.position))
        async with aclosing(entries):
            async for envelope in entries:
                event = _stored_event(envelope)
                if event is None or event.value is None or (event.scope, event.stream) != (last.scope, last.stream):
                    continue
                message = await self._message(event.value)
                await send(EventMessage(message, str(event.position)))
                # An error without an id answers no request, and is sent on the stream of notifications.
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    return

    async def _find(self, position: int) -> _StoredEvent | None:
        entries = self._session.read(lanes=ALL_LANES, kinds={_EVENT_KIND}, after=Cursor(position - 1), until=position)
        async with aclosing(entries):
            async for envelope in entries:
                return _stored_event(envelope)
        return None

    async def _message(self, value: JsonValue) -> JSONRPCMessage:
        try:
            return jsonrpc_message_adapter.validate_json(await load_value(self._session.media, value))
        except ValueError as error:
            raise DecodeError("", "a stored event is no message of MCP") from error


def _stored_event(envelope: Envelope) -> _StoredEvent | None:
    """Return the event of an entry; None for an entry of another program, and for an imported one."""
    match own_message(envelope):
        case ExtensionMessage(data={"scope": str(scope), "stream": str(stream), "message": value}):
            return _StoredEvent(envelope.position, scope, stream, value)
        case _:
            return None


# The MCP session that a stored event belongs to.
#
# The SDK passes a store neither the session nor the client. Its tasks inherit the context of the request that opened
# their session, so a context variable of that request holds the session.

_SESSION_HEADER = "mcp-session-id"


@dataclass(slots=True)
class _EventScope:
    name: str = field(default_factory=token_hex)
    """id of the MCP session. A random name until the SDK has given the session an id"""


_current_scope: ContextVar[_EventScope | None] = ContextVar("lanebus.mcp_events", default=None)


def current_scope() -> str:
    """Return the name of the MCP session of this task; "" outside of `EventScopes`."""
    found = _current_scope.get()
    return "" if found is None else found.name


class EventScopes:
    """ASGI middleware that names the MCP session of each request, and of the tasks that a request starts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection. The SDK answers for the lifespan and for other connections."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get(_SESSION_HEADER)
        known = _EventScope() if asked is None else _EventScope(asked)

        async def send_and_name(message: Message) -> None:
            if asked is None and message["type"] == "http.response.start":
                known.name = Headers(raw=message["headers"]).get(_SESSION_HEADER, known.name)
            await send(message)

        token = _current_scope.set(known)
        try:
            await self._app(scope, receive, send_and_name)
        finally:
            _current_scope.reset(token)


_log = logging.getLogger(__name__)

_CHANGE_KIND = "mcp.changed"
_LIST_CHANGES: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}


class McpSubscriptionBus:
    """A `SubscriptionBus` of the MCP SDK: an event that one process publishes reaches the listeners of all processes.

        async with Bus.open(url) as bus, McpSubscriptionBus(bus) as subscriptions:
            server = MCPServer("docs", subscriptions=subscriptions)

    The events are a session's entries, so every process delivers them in the same order. Each process delivers what is
    published while it is in the block, also after the server was unreachable. Events are level triggers without a
    replay for clients: a client that connects again reads anew what it needs.
    """

    def __init__(
        self, bus: Bus, name: str = "mcp-changes", *, bounds: McpStoreBounds = DEFAULT_MCP_STORE_BOUNDS
    ) -> None:
        """
        Args:
            bus: the bus.
            name: name of the session that holds the events. Processes with the same name share their events.
            bounds: number of kept events, and how long `publish` waits.
        """
        self._session = bus.session(session_id_of(name, prefix="mcp"))
        self._bounds = bounds
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}
        self._waiting: dict[int, anyio.Event] = {}
        self._cursor = Cursor(0)
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Begin to deliver what is published from now on.

        Raises:
            SessionErased: the session of the events was erased.
            Unavailable: the server cannot be reached.
        """
        self._cursor = (await self._session.head()).cursor
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._deliver_forever)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop delivering. Events of other processes stay in the log."""
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    async def publish(self, event: ServerEvent) -> None:
        """Store an event, and wait until the listeners of this process have it.

        Other processes get it at about the same time. If the call is cancelled, the event may be published.

        Args:
            event: the event.

        Raises:
            NotEntered: the object was not entered with `async with`.
            SessionErased: the session of the events was erased.
            OutcomeUnknown: the event was sent, and not acknowledged in time.
            Unavailable: the event was not stored.
        """
        if self._tasks is None:
            raise NotEntered("McpSubscriptionBus(bus)", "used without `async with`")
        message, kept = ExtensionMessage.of(_CHANGE_KIND, _change_data(event)), self._bounds.kept_entries
        try:
            receipt = await append_trimmed(self._session, message, kept=kept)
        except LogRolledBack:  # raised once: earlier events are lost, which says nothing about this one
            receipt = await append_trimmed(self._session, message, kept=kept)
        position = receipt.positions[-1]
        if position > self._cursor.position:
            delivered = self._waiting.setdefault(position, anyio.Event())
            try:
                with anyio.move_on_after(self._bounds.deliver_seconds):
                    await delivered.wait()
            finally:
                self._waiting.pop(position, None)
        await anyio.lowlevel.checkpoint()  # the streams send this event before the next one is published

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Call a listener for each event from now on.

        Args:
            listener: called in the event loop. What it raises is logged, and the other listeners are called.

        Returns:
            A function that ends the subscription. A second call of it does nothing.
        """
        key = object()  # the same function may subscribe twice
        self._listeners[key] = listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    async def _deliver_forever(self) -> None:
        bounds = self._bounds
        backoff = Backoff(bounds.first_pause_seconds, bounds.longest_pause_seconds)
        while True:
            try:
                await self._deliver(backoff)
            except Closed:
                return
            except (CursorTrimmed, LogRolledBack) as error:
                _log.warning("events of session %s were missed", self._session.id, exc_info=logged(error))
                with suppress(Unavailable):
                    self._move((await self._session.head()).cursor)
                    for event in _LIST_CHANGES.values():  # so that clients read the lists anew
                        self._tell(event)
                await backoff.wait()
            except Unavailable:
                await backoff.wait()

    async def _deliver(self, backoff: Backoff) -> None:
        # Without `kinds`, so that the cursor passes each entry.
        async with aclosing(self._session.follow(lanes={Lane.EXTENSION}, after=self._cursor)) as entries:
            async for envelope in entries:
                backoff.reset()
                message = own_message(envelope)
                if isinstance(message, ExtensionMessage) and (event := _change_of(message)) is not None:
                    self._tell(event)
                self._move(envelope.cursor)

    def _move(self, cursor: Cursor) -> None:
        self._cursor = cursor
        for position in [each for each in self._waiting if each <= cursor.position]:
            self._waiting.pop(position).set()

    def _tell(self, event: ServerEvent) -> None:
        for listener in [*self._listeners.values()]:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001  # code of the SDK or the user
                _log.error("a listener of MCP events failed", exc_info=logged(error))


def _change_data(event: ServerEvent) -> JsonValue:
    if isinstance(event, ResourceUpdated):
        return {"resource": event.uri}
    return {"list": next(name for name, each in _LIST_CHANGES.items() if each == event)}


def _change_of(message: ExtensionMessage) -> ServerEvent | None:
    """Return the event of an entry; None for an entry of another program or of a newer version."""
    match message.kind, message.data:
        case "mcp.changed", {"resource": str(uri)}:
            return ResourceUpdated(uri=uri)
        case "mcp.changed", {"list": str(name)}:
            return _LIST_CHANGES.get(name)
        case _:
            return None


async def append_trimmed(session: Session, message: ExtensionMessage, *, kept: int) -> Receipt:
    """Append one message without waking a worker, and trim the session if it is its turn.

    Of all processes, the one whose entry has a multiple of `kept` as its position trims. A trim that fails is logged,
    and the next one makes up for it. If the call is cancelled, the message may be appended.

    Args:
        session: the session.
        message: the message.
        kept: number of the newest entries to keep.

    Raises:
        BusError: the errors of `Session.publish`.
    """
    receipt = await session.publish(message, wake=False)
    position = receipt.positions[-1]
    if position % kept == 0 and position > kept:
        try:
            await session.trim(position - kept + 1)
        except BusError as error:
            _log.warning("session %s was not trimmed", session.id, exc_info=logged(error))
    return receipt
