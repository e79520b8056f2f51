"""Shared by the agent's tests: a fresh bus, a scripted model, and short forms of the log."""

import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import anyio
import pytest

from lanebus import AssistantMessage, Bounds, Bus, Session, TextBlock, ToolCallBlock, Usage
from lanebus.agent import ModelEvent, ModelRequest, Piece, Run, RunBounds
from lanebus.bus.embedded.keeper import KEEPER_LOCK, lock_owner
from lanebus.messages import StopReason
from tests.support.agent.logs import (
    SECONDS,
    answers,
    events,
    events_of,
    log,
    messages,
    results,
    said,
    until,
    wait_for,
    watch_deltas,
)
from tests.support.held import held
from tests.support.servers.kinds import OWN, SHARED
from tests.support.servers.real import AnyServer, eventually

__all__ = (
    "SECONDS",
    "Pause",
    "ScriptedModel",
    "Step",
    "answer",
    "answers",
    "bus",
    "calls",
    "events",
    "events_of",
    "fresh_bus",
    "log",
    "messages",
    "opening",
    "other",
    "results",
    "said",
    "session",
    "short_folder",
    "take_run",
    "until",
    "wait_for",
    "watch_deltas",
)


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


_BOUNDS = RunBounds()
_namespaces = count()


def fresh_bus() -> AbstractAsyncContextManager[Bus]:
    """Open a bus on the Valkey that tests share, in a namespace that no other test uses."""
    return SHARED.as_it_is("valkey").bus(f"fresh{next(_namespaces)}", bounds=Bounds())


@pytest.fixture
def opening(request: pytest.FixtureRequest) -> Callable[[], AbstractAsyncContextManager[Bus]]:
    """Open a bus on the server that the test names, or a fresh one."""
    for name in ("server", *OWN):
        if name in request.fixturenames:
            server: AnyServer = request.getfixturevalue(name)
            return server.bus
    return fresh_bus


@pytest.fixture
async def bus(opening: Callable[[], AbstractAsyncContextManager[Bus]]) -> AsyncGenerator[Bus, None]:
    """A fresh bus, or one on the server that the test names."""
    async with held(opening()) as bus:
        yield bus


@pytest.fixture
async def other(opening: Callable[[], AbstractAsyncContextManager[Bus]]) -> AsyncGenerator[Bus, None]:
    """A second bus on the server that the test names."""
    async with held(opening()) as bus:
        yield bus


@pytest.fixture
async def session(bus: Bus) -> Session:
    """An empty session of a fresh bus, `s1`."""
    return bus.session("s1")


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


async def take_run(session: Session, owner: str = "test", *, bounds: RunBounds = _BOUNDS) -> Run:
    """Return a run that holds the session's lease. Taking it again as the same owner fences the previous run."""
    lease = await session.acquire_lease(owner, 60)
    assert lease is not None
    return Run(session, lease, bounds=bounds)
