"""An editor for tests: the official client of ACP, connected to this process or to a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import anyio
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
)
from acp.stdio import spawn_agent_process
from pydantic import BaseModel, JsonValue

from lanebus import Bus
from lanebus.handlers.agent import Agent, Worker, name_of
from lanebus.handlers.protocols import ProtocolFiles, serve_editor
from lanebus.handlers.protocols.acp.editor_session import DEFAULT_EDITOR_BOUNDS, EditorBounds
from tests.support.agent.agents import SECONDS
from tests.support.paths import ROOT
from tests.support.servers.real import eventually

CWD = "/project"

Decide = Callable[[ToolCallUpdate, list[PermissionOption]], Awaitable[RequestPermissionResponse]]
"""what the person answers to a request for permission"""


async def allow(call: ToolCallUpdate, options: list[PermissionOption]) -> RequestPermissionResponse:
    """Choose the first option that allows the call."""
    return _chosen("allow_once", options)


async def reject(call: ToolCallUpdate, options: list[PermissionOption]) -> RequestPermissionResponse:
    """Choose the first option that rejects the call."""
    return _chosen("reject_once", options)


async def cancelled(call: ToolCallUpdate, options: list[PermissionOption]) -> RequestPermissionResponse:
    """Answer that the prompt was cancelled."""
    return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


async def never(call: ToolCallUpdate, options: list[PermissionOption]) -> RequestPermissionResponse:
    """Give no answer."""
    await anyio.sleep_forever()
    raise AssertionError


def _chosen(kind: str, options: list[PermissionOption]) -> RequestPermissionResponse:
    option = next(each for each in options if each.kind == kind)
    return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option.option_id))


@dataclass
class Editing:
    """What an editor was sent, and its connection."""

    decide: Decide = never
    updates: list[tuple[str, dict[str, JsonValue]]] = field(default_factory=list[tuple[str, dict[str, JsonValue]]])
    """session and update, in their order"""
    asked: list[ToolCallUpdate] = field(default_factory=list[ToolCallUpdate])
    """the calls about which it was asked"""
    raw: list[dict[str, JsonValue]] = field(default_factory=list[dict[str, JsonValue]])
    """the messages that it received"""
    connection: ClientSideConnection | None = None
    process: asyncio.subprocess.Process | None = None

    @property
    def client(self) -> ClientSideConnection:
        assert self.connection is not None
        return self.connection

    async def open(self, cwd: str = CWD) -> str:
        """Make a session. Return its id."""
        return (await self.client.new_session(cwd=cwd, mcp_servers=[])).session_id

    async def say(self, session: str, text: str) -> PromptResponse:
        """Prompt with a text, and wait for the end."""
        with anyio.fail_after(SECONDS):
            return await self.client.prompt(session_id=session, prompt=[TextContentBlock(type="text", text=text)])

    def told(self, session: str, *, after: int = 0) -> list[str]:
        """Return the updates of a session in short, with joined chunks: `agent: text`, `tool 1 completed: 3`.

        Args:
            session: the session.
            after: number of updates to skip.
        """
        lines: list[str] = []
        numbers: dict[JsonValue, int] = {}
        last: tuple[JsonValue, JsonValue] | None = None
        for name, update in self.updates[after:]:
            if name != session:
                continue
            kind = str(update["sessionUpdate"])
            if kind.endswith("_chunk"):
                place, said = (kind, update.get("messageId")), _text(update["content"])
                if place == last:
                    lines[-1] += said
                else:
                    lines.append(f"{kind.removesuffix('_chunk').removesuffix('_message').replace('_', ' ')}: {said}")
                last = place
                continue
            last = None
            if kind == "plan":
                lines.append(f"plan: {update['entries']}")
                continue
            number = numbers.setdefault(update["toolCallId"], len(numbers) + 1)
            words = [f"tool {number}", *(str(update[key]) for key in ("title", "status", "rawInput") if key in update)]
            contents = update.get("content")
            if isinstance(contents, list):
                words[-1] += ": " + "".join(_text(cast("dict[str, JsonValue]", each)["content"]) for each in contents)
            lines.append(" ".join(words))
        return lines

    async def until(self, session: str, text: str) -> None:
        """Wait until an update of a session contains a text."""
        await eventually(lambda: any(text in line for line in self.told(session)), SECONDS)

    def observe(self, event: StreamEvent) -> None:
        """Note a message."""
        if event.direction is StreamDirection.INCOMING:
            self.raw.append(event.message)

    async def session_update(self, session_id: str, update: BaseModel, **_: object) -> None:
        """Note an update. It was validated."""
        self.updates.append((session_id, update.model_dump(mode="json", by_alias=True, exclude_none=True)))

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        """Ask the person."""
        self.asked.append(tool_call)
        return await self.decide(tool_call, options)

    def on_connect(self, conn: object) -> None:
        """Do nothing."""


def _text(content: JsonValue) -> str:
    assert isinstance(content, dict)
    match content.get("type"):
        case "text":
            return str(content["text"])
        case "resource_link":
            return f"<{content['name']} {content['uri']}>"
        case kind:
            return f"<{kind}>"


@asynccontextmanager
async def editing(
    bus: Bus,
    agent: Agent,
    decide: Decide = never,
    *,
    has_worker: bool = True,
    bounds: EditorBounds = DEFAULT_EDITOR_BOUNDS,
) -> AsyncGenerator[Editing]:
    """Connect an editor to this process with pipes."""
    loop = asyncio.get_running_loop()
    (stdin, to_agent), (from_agent, stdout) = os.pipe(), os.pipe()
    files = ProtocolFiles(os.fdopen(stdin, "rb", buffering=0), os.fdopen(stdout, "wb", buffering=0))
    reader = asyncio.StreamReader(limit=2**26)
    receiving, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_agent, "rb", buffering=0)
    )
    sending, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(to_agent, "wb", buffering=0)
    )
    seen = Editing(decide)
    async with anyio.create_task_group() as tasks:
        worker = Worker(bus, agent, name="editor") if has_worker else None

        async def serve() -> None:
            await serve_editor(bus, name_of(agent, bus.default_agent), files, worker=worker, bounds=bounds)

        tasks.start_soon(serve)
        seen.connection = ClientSideConnection(
            cast("Client", seen),
            asyncio.StreamWriter(sending, protocol, None, loop),
            reader,
            use_unstable_protocol=True,
            observers=[seen.observe],
        )
        await seen.client.initialize(protocol_version=1)
        try:
            yield seen
        finally:
            sending.close()  # the end of stdin, after which the server ends by itself
            with anyio.move_on_after(SECONDS, shield=True) as patience:
                while not reader.at_eof():  # noqa: ASYNC110  # another task reads it
                    await anyio.sleep(0.01)
            assert not patience.cancelled_caught
            await seen.client.close()
            receiving.close()


@asynccontextmanager
async def editing_process(
    agent: str,
    decide: Decide = never,
    *,
    env: Mapping[str, str],
    options: tuple[str, ...] = (),
    stderr: int | None = None,
) -> AsyncGenerator[Editing]:
    """Start `lanebus acp` as an editor does, and connect to it."""
    seen = Editing(decide)
    async with spawn_agent_process(
        cast("Client", seen),
        *(sys.executable, "-W", "error", "-m", "lanebus", "acp", agent, *options),
        env={**os.environ, **env},
        cwd=ROOT,
        transport_kwargs={"stderr": stderr, "limit": 2**26, "shutdown_timeout": SECONDS},
        use_unstable_protocol=True,
        observers=[seen.observe],
    ) as (connection, process):
        seen.connection, seen.process = connection, process
        await connection.initialize(protocol_version=1)
        yield seen
