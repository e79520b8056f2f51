"""Shared by the agent's tests: a fresh bus, a scripted model, and short forms of the log."""

import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import anyio

from lanebus import Bounds, Bus, Envelope, Session, TextBlock, ToolCallBlock, Usage
from lanebus.agent import RunBounds
from lanebus.bus.embedded.keeper import KEEPER_LOCK, lock_owner
from lanebus.bus.messages import (
    AgentEvent,
    AssistantMessage,
    Delta,
    ExtensionMessage,
    LlmMessage,
    StopReason,
    ToolResultMessage,
    parse_event,
)
from lanebus.handlers.agent import ModelRequest, Run
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from lanebus.handlers.providers import ModelEvent, Piece
from tests.support.servers.kinds import SHARED
from tests.support.servers.real import eventually

__all__ = (
    "SECONDS",
    "Pause",
    "ScriptedModel",
    "Step",
    "answer",
    "calls",
    "events",
    "fresh_bus",
    "log",
    "messages",
    "said",
    "short_folder",
    "take_run",
    "until",
    "wait_for",
    "watch_deltas",
)

SECONDS = 120.0
"""seconds after which a test fails; generous, for a machine under load"""


@asynccontextmanager
async def short_folder() -> AsyncGenerator[Path, None]:
    """Yield a directory with a path short enough for a unix socket. `d` in it is for a server.

    The directory is removed after the server has ended: the process that ends the server needs its files until then.
    """
    folder = Path(mkdtemp(prefix="lb-", dir="/tmp"))
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await eventually(lambda: lock_owner(str(folder / "d"), KEEPER_LOCK) is None)
        shutil.rmtree(folder)


_namespaces = count()


def fresh_bus() -> AbstractAsyncContextManager[Bus]:
    """Open a bus on the Valkey that tests share, in a namespace that no other test uses."""
    return SHARED.as_it_is("valkey").bus(f"fresh{next(_namespaces)}", bounds=Bounds())


class Pause:
    """A place in a script or a tool that waits until the test releases it."""

    def __init__(self) -> None:
        self.reached, self.over = anyio.Event(), anyio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.over.wait()


Step = ModelEvent | Pause | Exception


class ScriptedModel:
    """Gives the scripted answers, one for each call, and keeps the requests."""

    provider = "scripted"
    name = "scripted-1"
    context_window: int | None = None

    def __init__(self, *answers: Sequence[Step]) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        for step in self._answers.pop(0):
            match step:
                case Pause():
                    await step.wait()
                case Exception():
                    raise step
                case _:
                    yield step


def answer(text: str, *, stop_reason: StopReason = "stop") -> list[Step]:
    """Return an answer in two pieces."""
    whole = AssistantMessage(
        content=(TextBlock(text=text),), stop_reason=stop_reason, usage=Usage(input=10, output=2, total_tokens=12)
    )
    return [Piece("text", text[:3]), Piece("text", text[3:]), whole]


def calls(*tools: ToolCallBlock) -> list[Step]:
    """Return an answer that calls tools."""
    return [AssistantMessage(content=tools, stop_reason="toolUse", usage=Usage(input=5, output=1, total_tokens=6))]


async def take_run(session: Session, owner: str = "test", *, bounds: RunBounds = DEFAULT_RUN_BOUNDS) -> Run:
    """Return a run that holds the session's lease. Taking it again as the same owner fences the previous run."""
    lease = await session.acquire_lease(owner, 60)
    assert lease is not None
    return Run(session, lease, bounds=bounds)


async def log(session: Session) -> list[Envelope]:
    """Return all entries of the log."""
    return [envelope async for envelope in session.read()]


async def messages(session: Session) -> list[LlmMessage]:
    """Return the messages of the LLM lane."""
    return [envelope.message for envelope in await log(session) if isinstance(envelope.message, LlmMessage)]


async def events(session: Session) -> list[AgentEvent]:
    """Return the agent events of the extension lane."""
    found = [parse_event(e.message) for e in await log(session) if isinstance(e.message, ExtensionMessage)]
    return [event for event in found if event is not None]


async def said(session: Session) -> list[str]:
    """Return the log in short: "role: text" for messages, the kind for other entries."""
    return [_said(envelope) for envelope in await log(session)]


def _said(envelope: Envelope) -> str:
    match envelope.message:
        case AssistantMessage() as message:
            called = "".join(f"<{call.name}>" for call in message.tool_calls())
            return f"assistant {message.stop_reason}: {message.text_content()}{called}"
        case ToolResultMessage() as message:
            return f"result{' error' if message.is_error else ''}: {message.text_content()}"
        case LlmMessage() as message:
            return f"{getattr(message, 'role', '?')}: {message.text_content()}"
        case ExtensionMessage() as message:
            return message.kind
        case other:
            return type(other).__name__


async def watch_deltas(session: Session, pause: Pause, until: str) -> list[Delta]:
    """Follow live until an entry equals `until`. Release the model only once the follower is sure to see its deltas."""
    found: list[Delta] = []
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow(live=True):
            if isinstance(envelope.message, Delta):
                found.append(envelope.message)
            elif _said(envelope) == "agent.message.started":
                pause.over.set()
            elif _said(envelope).startswith(until):
                break
    return found


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll an async condition, such as one that asks the server. `eventually` is for a plain condition."""
    with anyio.fail_after(SECONDS):
        while not await condition():  # noqa: ASYNC110  # the server sets no events of ours
            await anyio.sleep(0.02)


async def wait_for(session: Session, word: str, count: int = 1) -> None:
    """Wait until `count` entries of the log, in the form of `said`, are `word` or start with it."""
    with anyio.fail_after(SECONDS):
        async for envelope in session.follow():
            count -= _said(envelope).startswith(word)
            if count <= 0:
                return
