"""Print how many files of the product one request crosses: what a reader opens to follow it, and how often again.

    python -m bench.walks           a line for each walk
    python -m bench.walks turn      the files of one walk too, in the order in which they are entered

Each request is made once before it is traced, so that what only happens at a start is not counted. "Returns" are the
calls into a file that the walk had entered before, counted once for each pair of caller's and called file.
"""

import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import anyio
import anyio.to_thread

from bench.instant import InstantModel
from lanebus import Bus, UserMessage
from lanebus.agent import AgentLoop, Worker
from lanebus.handlers.serve import serve

__all__ = ("main",)

ROOT = Path(__file__).resolve().parent.parent
GOALS = {"publish": 8, "read": 7, "follow": 9, "turn": 40, "GET entries": 22, "LangGraph aput": 14}
TOKEN = "bench-token-of-one-run"  # noqa: S105  # of a server that runs for seconds


class Walk:
    """The files of the product that one request enters."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._pairs = set[tuple[str | None, str]]()

    @property
    def returns(self) -> int:
        return len(self._pairs) - len(self.files)

    def enter(self, frame: FrameType, event: str, arg: object) -> None:
        """Note the file of a call, as a profiler of `sys.setprofile`."""
        del arg
        file = _file(frame.f_code.co_filename)
        if event != "call" or file is None:
            return
        caller = _caller(frame.f_back)
        if file not in self.files:
            self.files.append(file)
            self._pairs.add((None, file))
        elif caller is not None and caller != file:
            self._pairs.add((caller, file))


@cache
def _file(name: str) -> str | None:
    path = Path(name).resolve()
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in {"bus", "handlers", "lanebus"}:
        return None
    return path.relative_to(ROOT).as_posix()


def _caller(frame: FrameType | None) -> str | None:
    while frame is not None:
        file = _file(frame.f_code.co_filename)
        if file is not None:
            return file
        frame = frame.f_back
    return None


async def walks() -> dict[str, Walk]:
    """Make each request on an embedded server, and return its walk."""
    made = dict[str, Walk]()
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        async with Bus.open(data_dir=data_dir) as bus:
            made["publish"] = await _traced(lambda: _publish(bus), Walk())
            made["read"] = await _traced(lambda: _read(bus), Walk())
            made["follow"] = await _follow(bus, data_dir)
            made["turn"] = await _turn(bus, data_dir)
            made["GET entries"] = await _get_entries(bus)
            if find_spec("langgraph") is not None:
                made["LangGraph aput"] = await _aput(bus)
    return made


async def _traced(request: Callable[[], Awaitable[object]], walk: Walk) -> Walk:
    await request()
    with _tracing(walk):
        await request()
    return walk


@contextmanager
def _tracing(walk: Walk) -> Generator[None]:
    sys.setprofile(walk.enter)
    try:
        yield
    finally:
        sys.setprofile(None)


async def _publish(bus: Bus) -> None:
    await bus.session("s").publish(UserMessage.text("Hello"))


async def _read(bus: Bus) -> None:
    async for _ in bus.session("s").read():
        pass


async def _elsewhere(data_dir: Path, question: Callable[[Bus], Awaitable[object]]) -> None:
    """Ask on a bus of another thread, which is not traced."""

    async def ask() -> None:
        async with Bus.open(data_dir=data_dir) as other:
            await question(other)

    await anyio.to_thread.run_sync(lambda: anyio.run(ask))


async def _follow(bus: Bus, data_dir: Path) -> Walk:
    walk = Walk()
    async with aclosing(bus.session("followed").follow()) as entries:
        for _ in range(2):
            await _elsewhere(data_dir, lambda other: other.session("followed").publish(UserMessage.text("Hello")))
            await anext(entries)
        with _tracing(walk):
            await _elsewhere(data_dir, lambda other: other.session("followed").publish(UserMessage.text("Hello")))
            await anext(entries)
    return walk


async def _turn(bus: Bus, data_dir: Path) -> Walk:
    async def ask(other: Bus) -> None:
        session = other.session("asked")
        receipt = await session.publish(UserMessage.text("hello?"))
        async with aclosing(session.follow(after=receipt.cursor)) as entries:
            async for entry in entries:
                if getattr(entry.message, "kind", "") == "agent.ended":
                    return

    walk = Walk()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Worker(bus, AgentLoop(InstantModel())).run)
        await _traced(lambda: _elsewhere(data_dir, ask), walk)
        tasks.cancel_scope.cancel()
    return walk


async def _get_entries(bus: Bus) -> Walk:
    urls, is_ready = list[str](), anyio.Event()

    def on_ready(url: str) -> None:
        urls.append(url)
        is_ready.set()

    def get() -> None:
        address = f"{urls[0].partition('#')[0].removesuffix('/')}/api/sessions/s/entries"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            answer.read()

    walk = Walk()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(serve, bus, port=0, token=TOKEN, on_ready=on_ready))
        await is_ready.wait()
        await _traced(lambda: anyio.to_thread.run_sync(get), walk)
        tasks.cancel_scope.cancel()
    return walk


async def _aput(bus: Bus) -> Walk:
    from langchain_core.runnables import RunnableConfig  # noqa: PLC0415  # needs the extra
    from langgraph.checkpoint.base import Checkpoint, empty_checkpoint  # noqa: PLC0415  # needs the extra

    from lanebus.langgraph import LanebusSaver  # noqa: PLC0415  # needs the extra

    saver, number = LanebusSaver(bus), 0

    async def put() -> None:
        nonlocal number
        number += 1
        config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        made: Checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"n": number},
            "channel_versions": {"n": number},
        }
        await saver.aput(config, made, {"source": "loop", "step": number, "parents": {}}, {"n": number})

    return await _traced(put, Walk())


async def main(names: list[str]) -> None:
    """Print a line for each walk, and the files of those that are named."""
    for name, walk in (await walks()).items():
        print(f"{name:16} {len(walk.files):4} files, goal {GOALS[name]:3} {walk.returns:5} returns")
        if name in names:
            print(*(f"    {file}" for file in walk.files), sep="\n")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
