"""Shared by the tests of MCP tools: servers as separate processes, and calls of their tools."""

import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, cast

import anyio
from pydantic import JsonValue

from lanebus import ToolCallBlock, ToolResultMessage
from lanebus.agent import Tool
from lanebus.handlers.agent import ToolContext
from lanebus.mcp import McpServer, McpTool, McpTools
from lanebus.messages import TurnId
from tests.support.agent.agents import SECONDS
from tests.support.servers.clusters import wait_until
from tests.support.servers.real import eventually, spawn

if TYPE_CHECKING:
    from mcp import Client, StdioServerParameters

__all__ = (
    "KINDS",
    "Kind",
    "Notes",
    "as_tools",
    "call",
    "context",
    "http_server",
    "named",
    "notes_in",
    "raw",
    "served",
    "warm_servers",
)

HERE = Path(__file__).resolve().parent

Kind = Literal["stdio", "stdio legacy", "http", "http legacy"]
KINDS: tuple[Kind, ...] = ("stdio", "stdio legacy", "http", "http legacy")


class Notes:
    """The notes of a server for a test, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    async def wait_for(self, beginning: str, count: int = 1) -> str:
        """Wait for the `count`th line that starts with `beginning`. Return the rest of it."""

        def found() -> list[str]:
            return [line.removeprefix(beginning).strip() for line in self.lines() if line.startswith(beginning)]

        await eventually(lambda: len(found()) >= count)
        return found()[count - 1]

    async def pid(self, count: int = 1) -> int:
        """Return the process id of the `count`th server that was started."""
        return int(await self.wait_for("pid", count))


_sockets: list[str] = []


@contextmanager
def warm_servers() -> Generator[None]:
    """Fork servers from a process that has imported the SDK, during the block. All of them end with the block."""
    with TemporaryDirectory(prefix="lb-mcp-") as folder:
        path = Path(folder) / "s"
        warm = spawn(sys.executable, "-m", "tests.support.mcp.mcp_warm", str(path))
        try:
            wait_until(path.exists)
            _sockets.append(str(path))
            yield
        finally:
            _sockets.clear()
            warm.kill()
            warm.wait()


def _door(notes: Notes) -> list[str]:
    return ["-I", "-S", str(HERE / "mcp_door.py"), *_sockets, str(notes.path)]


@asynccontextmanager
async def notes_in() -> AsyncGenerator[Notes, None]:
    """Yield notes in a file that is removed afterwards."""
    with TemporaryDirectory(prefix="lb-mcp-") as folder:
        yield Notes(Path(folder) / "notes")


@asynccontextmanager
async def http_server(notes: Notes, *, port: int = 0) -> AsyncGenerator[str, None]:
    """Start the test's server on HTTP. Yield its address."""
    count = len([line for line in notes.lines() if line.startswith("at ")]) + 1
    command = [sys.executable, *_door(notes), "--http", str(port)]
    async with await anyio.open_process(command, stdin=None, stdout=None, stderr=None) as process:
        try:
            yield await notes.wait_for("at ", count)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)


@asynccontextmanager
async def served(kind: Kind) -> AsyncGenerator[tuple[McpServer, Notes], None]:
    """Return the test's server in the form that `mcp_tools` takes. "legacy" speaks the protocol before that of 2026."""
    from mcp import StdioServerParameters

    async with notes_in() as notes:
        if kind.startswith("stdio"):
            here = StdioServerParameters(command=sys.executable, args=_door(notes))
            yield _client_of(here) if "legacy" in kind else here, notes
        else:
            async with http_server(notes) as url:
                yield _client_of(url) if "legacy" in kind else url, notes


def _client_of(server: "StdioServerParameters | str") -> "Callable[[], Client]":
    from mcp import Client

    return lambda: Client(server, mode="legacy")


def raw(kind: str) -> "StdioServerParameters":
    """Return a server without the SDK, see `mcp_raw.py`."""
    from mcp import StdioServerParameters

    return StdioServerParameters(command=sys.executable, args=["-I", "-S", str(HERE / "mcp_raw.py"), kind])


def context(told: list[str] | None = None) -> ToolContext:
    """Return the context of a call. Its progress is appended to `told`."""

    async def progress(text: str) -> None:
        if told is not None:
            told.append(text)

    return ToolContext("s1", TurnId(loop_id="s1.main.1", turn_index=0), "c1", progress)


def named(tools: Sequence[McpTool], name: str) -> McpTool:
    return next(tool for tool in tools if tool.name == name)


async def call(tools: Sequence[McpTool], name: str, arguments: JsonValue = None) -> ToolResultMessage:
    """Return a call's result."""
    with anyio.fail_after(SECONDS):
        return await named(tools, name).run(ToolCallBlock(id="c1", name=name, arguments=arguments), context())


def as_tools(tools: McpTools) -> Sequence[Tool]:
    """Return the tools in the form that an agent takes."""
    return cast("Sequence[Tool]", tools)
