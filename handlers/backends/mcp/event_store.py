"""Events of resumable streams of an MCP server, as entries of one session."""

from contextlib import aclosing, suppress
from typing import NamedTuple

import anyio
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import JsonValue
from starlette.types import ASGIApp

from lanebus.bus.bus import Bus
from lanebus.bus.digits import number_in
from lanebus.bus.errors import CursorTrimmed, DecodeError
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.handlers.backends.mcp.bounds import DEFAULT_MCP_STORE_BOUNDS, McpStoreBounds
from lanebus.handlers.backends.mcp.scope import EventScopes, current_scope
from lanebus.handlers.backends.mcp.trimmed_log import append_trimmed
from lanebus.handlers.backends.names import session_id_of
from lanebus.handlers.backends.own_entries import own_message
from lanebus.handlers.backends.values import load_value, store_value

__all__ = ("McpEventStore",)

_KIND = "store.mcp.event"


class _Stored(NamedTuple):
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
        entry = ExtensionMessage.of(_KIND, data)
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

    async def _send_after(self, last: _Stored, send: EventCallback) -> None:
        entries = self._session.follow(lanes=ALL_LANES, kinds={_KIND}, after=Cursor(last.position))
        async with aclosing(entries):
            async for envelope in entries:
                event = _event_of(envelope)
                if event is None or event.value is None or (event.scope, event.stream) != (last.scope, last.stream):
                    continue
                message = await self._message(event.value)
                await send(EventMessage(message, str(event.position)))
                # An error without an id answers no request, and is sent on the stream of notifications.
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    return

    async def _find(self, position: int) -> _Stored | None:
        entries = self._session.read(lanes=ALL_LANES, kinds={_KIND}, after=Cursor(position - 1), until=position)
        async with aclosing(entries):
            async for envelope in entries:
                return _event_of(envelope)
        return None

    async def _message(self, value: JsonValue) -> JSONRPCMessage:
        try:
            return jsonrpc_message_adapter.validate_json(await load_value(self._session.media, value))
        except ValueError as error:
            raise DecodeError("", "a stored event is no message of MCP") from error


def _event_of(envelope: Envelope) -> _Stored | None:
    """Return the event of an entry; None for an entry of another program, and for an imported one."""
    match own_message(envelope):
        case ExtensionMessage(data={"scope": str(scope), "stream": str(stream), "message": value}):
            return _Stored(envelope.position, scope, stream, value)
        case _:
            return None
