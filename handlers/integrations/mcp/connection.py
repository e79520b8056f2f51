"""A connection to an MCP server that is opened again after it was lost, and the list of its tools.

The tools are listed again when they change. Imports the SDK, which is slow to import.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client, ClientSession, MCPError, types
from mcp.client.subscriptions import SubscriptionLost
from pydantic import ValidationError

from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.integrations.mcp.definition import McpUnavailable
from lanebus.integration import Backoff, describe_error, logged, without_secrets

if TYPE_CHECKING:
    from mcp.client.session import MessageHandlerFnT


# List a server's tools, and list the tools again when they change. Imports the SDK.

Take = Callable[[Sequence[types.Tool]], None]
"""A function that receives each list of the server's tools. It may raise only for the first list."""

_log = logging.getLogger(__name__)


class ListFollower:
    """Lists a server's tools whenever the server notifies of a change."""

    def __init__(self, take: Take, *, label: str, seconds: float, bounds: McpBounds = DEFAULT_MCP_BOUNDS) -> None:
        """Store the receiver of lists.

        Args:
            take: receives each list.
            label: name of the server in logs.
            seconds: time limit for listing the tools.
            bounds: limits and periods.
        """
        self._take, self._label, self._seconds, self._bounds = take, label, seconds, bounds
        self._changed = anyio.Event()

    def handler(self, then: "MessageHandlerFnT | None") -> "MessageHandlerFnT":
        """Return a message handler for the SDK's client. It passes each message on to `then`.

        After a change notification, `run` lists the tools again. Only servers with older protocol versions send these
        notifications to the handler; `run` subscribes to those of other servers.
        """

        async def handle(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._changed.set()
            if then is not None:
                await then(message)

        return handle

    async def run(self, client: Client, doubt: Callable[[], None]) -> None:
        """Wait for change notifications until cancelled, and list the tools after each.

        Args:
            client: the connected client.
            doubt: called if the server does not answer.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, client)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                try:
                    with anyio.fail_after(self._seconds):
                        listed = await list_tools(client.session, self._bounds)
                except Exception as error:  # noqa: BLE001  # the next call checks whether the server still answers
                    _log.warning(
                        "the MCP server %s did not list its changed tools", self._label, exc_info=logged(error)
                    )
                    doubt()
                else:
                    self._take(listed)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes on servers with the newer protocol, and again whenever the subscription ends."""
        backoff = Backoff(self._bounds.stream_pause_seconds, self._bounds.longest_stream_pause_seconds)
        tools = client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                with suppress(SubscriptionLost, TimeoutError):
                    async with client.listen(tools_list_changed=True) as events:
                        async for _ in events:
                            self._changed.set()
            except (RuntimeError, MCPError) as error:  # the server has an older protocol, or refuses to listen
                _log.debug("the MCP server %s sends no change notifications: %s", self._label, error)
                return
            await backoff.wait()
            self._changed.set()  # changes during the pause were not received


async def list_tools(session: ClientSession, bounds: McpBounds) -> list[types.Tool]:
    """Return a server's whole list of tools.

    Args:
        session: the session with the server.
        bounds: limits of the list.

    Raises:
        MCPError: the server refused, or the connection was lost.
        ValueError: the list has more than `pages` pages, or more than `tools` tools.
        pydantic.ValidationError: the list is malformed.
    """
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(bounds.pages):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        if len(tools) > bounds.tools:
            raise ValueError(f"the list of its tools has over {bounds.tools} tools")
        if not (cursor := page.next_cursor):
            return tools
    raise ValueError(f"the list of its tools has over {bounds.pages} pages")


def reason_of(error: BaseException) -> str:
    """Describe an error in one line; for an exception group, its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return without_secrets("; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:3]))
    return describe_error(error)


# A separate task opens and closes the client. A cancel scope must be left by the task that entered it, and callers may
# be cancelled at any time.


class _OpenClient(NamedTuple):
    client: Client
    release: anyio.Event
    """set to ask the client's task to close the client"""
    closed: anyio.Event


class _Renewal:
    """An attempt to get a working connection. Concurrent callers wait for the same attempt."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.client: Client | None = None
        self.failure: Exception | None = None


class McpConnection:
    """A connection to one server. Calls may run concurrently."""

    def __init__(
        self,
        make: Callable[[], Client],
        tasks: TaskGroup,
        take: Take,
        *,
        label: str,
        seconds: float,
        bounds: McpBounds = DEFAULT_MCP_BOUNDS,
    ) -> None:
        """Store the server. `get` connects.

        Args:
            make: returns a client that is not connected.
            tasks: task group for connections. Await `close` before the group ends.
            take: receives each list of tools from the server.
            label: name of the server in logs and errors.
            seconds: time limit for one attempt to connect and list the tools.
            bounds: limits and periods.
        """
        self._make, self._tasks, self._take = make, tasks, take
        self._label, self._seconds, self._bounds = label, seconds, bounds
        self._open: _OpenClient | None = None
        self._renewal: _Renewal | None = None
        self._is_doubted = False
        self._answered = 0.0
        """time of the server's last answer, by the event loop's clock"""
        self._calls = 0
        self._quiet: tuple[float, str] = (0.0, "")
        """time until which no attempt to connect is made, and the reason of the last failure"""
        self._list = ListFollower(take, label=label, seconds=seconds, bounds=bounds)
        self._is_closed = False

    @property
    def client(self) -> Client | None:
        """The connected client, or None."""
        return self._open.client if self._open else None

    def doubt(self) -> None:
        """Make the next `get` check whether the server still answers."""
        self._is_doubted = True

    @contextmanager
    def calling(self) -> Generator[None, None, None]:
        """Count a call as running during the block. While calls run, a server that does not answer counts as busy, not
        as lost."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._answered = anyio.current_time()

    async def get(self) -> Client:
        """Return a connected client: the current client if it works, else a new one.

        If the call is cancelled, the attempt to connect continues for other callers.

        Raises:
            DuplicateTool: two tools of the server's first list have the same name.
            McpUnavailable: the server cannot be reached.
        """
        is_idle = anyio.current_time() - self._answered > self._bounds.idle_seconds and not self._calls
        if self._open is not None and not self._is_doubted and not is_idle and self._renewal is None:
            return self._open.client
        renewal = self._renewal
        if renewal is None and not self._is_closed:
            # In a separate task: callers with short time limits would otherwise never find out that the server hangs.
            renewal = self._renewal = _Renewal()
            self._tasks.start_soon(self._renew, renewal)
        if renewal is not None:
            await renewal.done.wait()
            if renewal.client is not None:
                return renewal.client
            if renewal.failure is not None:
                raise renewal.failure
        raise McpUnavailable(self._label, "it was closed")

    async def _renew(self, renewal: _Renewal) -> None:
        """Check the current connection, and reconnect if needed."""
        try:
            if self._open is not None and not await self._still_answers(self._open.client):
                _log.info("the MCP server %s does not answer; connecting again", self._label)
                await self._drop()
            renewal.client = (self._open or await self._connect()).client
        except Exception as error:  # noqa: BLE001  # raised to the waiting callers
            renewal.failure = error
        finally:
            self._renewal = None
            renewal.done.set()

    async def close(self) -> None:
        """Close the connection for good. A server process that the client started ends."""
        self._is_closed = True
        with anyio.move_on_after(self._bounds.close_seconds, shield=True):
            await self._drop()

    async def _still_answers(self, client: Client) -> bool:
        """Request the tool list, store the list, and return whether the server answered.

        The request for the list is used because every MCP version has it. While calls are running, a timeout counts as
        an answer.
        """
        try:
            with anyio.fail_after(self._seconds):
                listed = await list_tools(client.session, self._bounds)
        except TimeoutError:
            return self._calls > 0
        except Exception:  # noqa: BLE001  # of the SDK and its HTTP client
            return False
        self._is_doubted, self._answered = False, anyio.current_time()
        self._take(listed)
        return True

    async def _connect(self) -> _OpenClient:
        until, reason = self._quiet
        if anyio.current_time() < until:
            raise McpUnavailable(self._label, reason)
        cause: Exception | None = None
        backoff = Backoff(self._bounds.first_pause_seconds, factor=4.0, jitter=0.5)
        for attempt in range(self._bounds.attempts):
            if attempt:
                await backoff.wait()
            try:
                with anyio.fail_after(self._seconds):
                    opened, listed = cast(
                        "tuple[_OpenClient, Sequence[types.Tool]]", await self._tasks.start(self._hold, name="mcp")
                    )
            except Exception as error:  # noqa: BLE001  # of the system, the SDK and its HTTP client
                cause = error
                _log.debug("the MCP server %s: no connection", self._label, exc_info=logged(error))
                continue
            self._is_doubted, self._answered = False, anyio.current_time()
            self._take(listed)
            return opened
        reason = reason_of(cause) if cause else ""
        self._quiet = anyio.current_time() + self._bounds.quiet_seconds, reason
        raise McpUnavailable(self._label, reason) from cause

    async def _hold(self, *, task_status: TaskStatus[tuple[_OpenClient, Sequence[types.Tool]]]) -> None:
        """Open a connection, and keep it open until the connection breaks or `release` is set."""
        opened: _OpenClient | None = None
        client = self._make()
        client.message_handler = self._list.handler(client.message_handler)
        try:
            async with client:
                listed = await list_tools(client.session, self._bounds)
                opened = self._open = _OpenClient(client, anyio.Event(), anyio.Event())
                task_status.started((opened, listed))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._list.run, client, self.doubt)
                    await opened.release.wait()
                    tasks.cancel_scope.cancel()
        except Exception as error:
            if opened is None:
                raise  # raised in `_connect`, which waits for `started`
            _log.info("the MCP server %s: the connection broke: %s", self._label, reason_of(error))
        finally:
            if opened is not None:
                opened.closed.set()
                if self._open is opened:
                    self._open = None

    async def _drop(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.release.set()
            await opened.closed.wait()
