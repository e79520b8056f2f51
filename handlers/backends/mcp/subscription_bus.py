"""Change notices of an MCP server, for the subscribers of all its processes."""

import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Self

import anyio
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from pydantic import JsonValue

from lanebus.bus.bus import Bus
from lanebus.bus.error_text import logged
from lanebus.bus.errors import Closed, CursorTrimmed, LogRolledBack, NotEntered, Unavailable
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.backends.mcp.bounds import DEFAULT_MCP_STORE_BOUNDS, McpStoreBounds
from lanebus.handlers.backends.mcp.trimmed_log import append_trimmed
from lanebus.handlers.backends.names import session_id_of
from lanebus.handlers.backends.own_entries import own_message

__all__ = ("McpSubscriptionBus",)

_log = logging.getLogger(__name__)

_KIND = "mcp.changed"
_LISTS: dict[str, ServerEvent] = {
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
        message, kept = ExtensionMessage.of(_KIND, _data_of(event)), self._bounds.kept_entries
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
                    for event in _LISTS.values():  # so that clients read the lists anew
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
                if isinstance(message, ExtensionMessage) and (event := _event_of(message)) is not None:
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


def _data_of(event: ServerEvent) -> JsonValue:
    if isinstance(event, ResourceUpdated):
        return {"resource": event.uri}
    return {"list": next(name for name, each in _LISTS.items() if each == event)}


def _event_of(message: ExtensionMessage) -> ServerEvent | None:
    """Return the event of an entry; None for an entry of another program or of a newer version."""
    match message.kind, message.data:
        case "mcp.changed", {"resource": str(uri)}:
            return ResourceUpdated(uri=uri)
        case "mcp.changed", {"list": str(name)}:
            return _LISTS.get(name)
        case _:
            return None
