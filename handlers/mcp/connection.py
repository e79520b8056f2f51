"""A connection to an MCP server that is made anew where it was lost. Imports the SDK, an extra and slow to import.

It is held by a task of its own: its scopes must be left by who entered them, and those who call on it come and go.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client, types

from lanebus.bus.servers.backoff import Backoff
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.mcp.errors import McpUnavailable
from lanebus.handlers.mcp.tool_list import ListFollower, Take, list_tools, reason_of

__all__ = ("McpConnection",)

_log = logging.getLogger(__name__)


class _Held(NamedTuple):
    client: Client
    let_go: anyio.Event
    gone: anyio.Event


class _Renewal:
    """What is being done for a good connection; those who need one wait for it together."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.client: Client | None = None
        self.failure: Exception | None = None


class McpConnection:
    """The way to one server. Calls on it may be made side by side."""

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
        """
        Args:
            make: gives a client that is not connected yet.
            tasks: where connections live; before its end `close` must have been awaited.
            seconds: that an attempt to connect may take, and a list.
        """
        self._make, self._tasks, self._take = make, tasks, take
        self._label, self._seconds, self._bounds = label, seconds, bounds
        self._held: _Held | None = None
        self._renewal: _Renewal | None = None
        self._is_doubted = False
        self._answered = 0.0
        """when the server was heard last"""
        self._calls = 0
        self._quiet: tuple[float, str] = (0.0, "")
        """until when nothing is tried, and why"""
        self._list = ListFollower(take, label=label, seconds=seconds, bounds=bounds)
        self._is_closed = False

    @property
    def client(self) -> Client | None:
        """The present one, if there is one."""
        return self._held.client if self._held else None

    def doubt(self) -> None:
        """Have the next call see first whether the server still answers."""
        self._is_doubted = True

    @contextmanager
    def calling(self) -> Generator[None, None, None]:
        """For the length of a call: as long as there are some, a server that is silent may be at work on them."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._answered = anyio.current_time()

    async def get(self) -> Client:
        """A connected client, the present one or a new one. Cancelled, what it waits for goes on for the next one.

        Raises:
            DuplicateTool: the server's first list has two tools of one name.
            McpUnavailable: there is none to be had.
        """
        is_idle = anyio.current_time() - self._answered > self._bounds.idle and not self._calls
        if self._held is not None and not self._is_doubted and not is_idle and self._renewal is None:
            return self._held.client
        renewal = self._renewal
        if renewal is None and not self._is_closed:
            # A task of its own: whoever has less patience than a server that hangs would never find out that it does.
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
        """See to it that there is a good connection."""
        try:
            if self._held is not None and not await self._still_answers(self._held.client):
                _log.info("the MCP server %s does not answer: it is connected to anew", self._label)
                await self._drop()
            renewal.client = (self._held or await self._connect()).client
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            renewal.failure = error
        finally:
            self._renewal = None
            renewal.done.set()

    async def close(self) -> None:
        """Let go of the server, for good. One that was started for this is ended."""
        self._is_closed = True
        with anyio.move_on_after(self._bounds.close, shield=True):
            await self._drop()

    async def _still_answers(self, client: Client) -> bool:
        """Whether a connection on which a call failed is good. Every version of the protocol knows this question."""
        try:
            with anyio.fail_after(self._seconds):
                listed = await list_tools(client.session, self._bounds.pages)
        except TimeoutError:
            return self._calls > 0
        except Exception:  # noqa: BLE001  # of the SDK and its HTTP client
            return False
        self._is_doubted, self._answered = False, anyio.current_time()
        self._take(listed)
        return True

    async def _connect(self) -> _Held:
        until, reason = self._quiet
        if anyio.current_time() < until:
            raise McpUnavailable(self._label, reason)
        cause: Exception | None = None
        backoff = Backoff(self._bounds.pause, factor=4.0, jitter=0.5)
        for attempt in range(self._bounds.attempts):
            if attempt:
                await backoff.wait()
            try:
                with anyio.fail_after(self._seconds):
                    held, listed = cast(
                        "tuple[_Held, Sequence[types.Tool]]", await self._tasks.start(self._hold, name="mcp")
                    )
            except Exception as error:  # noqa: BLE001  # of the system, the SDK and its HTTP client
                cause = error
                _log.debug("the MCP server %s: no connection", self._label, exc_info=True)
                continue
            self._is_doubted, self._answered = False, anyio.current_time()
            self._take(listed)
            return held
        reason = reason_of(cause) if cause else ""
        self._quiet = anyio.current_time() + self._bounds.quiet, reason
        raise McpUnavailable(self._label, reason) from cause

    async def _hold(self, *, task_status: TaskStatus[tuple[_Held, Sequence[types.Tool]]]) -> None:
        """Open a connection, and hold it until it breaks or is let go."""
        held: _Held | None = None
        client = self._make()
        client.message_handler = self._list.heard(client.message_handler)
        try:
            async with client:
                listed = await list_tools(client.session, self._bounds.pages)
                held = self._held = _Held(client, anyio.Event(), anyio.Event())
                task_status.started((held, listed))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._list.run, client, self.doubt)
                    await held.let_go.wait()
                    tasks.cancel_scope.cancel()
        except Exception as error:
            if held is None:
                raise  # to who connects
            _log.info("the MCP server %s: the connection broke: %s", self._label, reason_of(error))
        finally:
            if held is not None:
                held.gone.set()
                if self._held is held:
                    self._held = None

    async def _drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.let_go.set()
            await held.gone.wait()
