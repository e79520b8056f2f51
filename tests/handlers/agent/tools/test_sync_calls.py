"""Sync tools in threads: the share of a session, abandoned threads, and what a thread can do."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from lanebus import Session, Unavailable, UserMessage
from lanebus.agent import RunBounds
from lanebus.handlers.agent.tasks import SyncCalls
from tests.support.servers.real import background, eventually

SECONDS = 60.0
TINY = RunBounds(tool_threads=2, abandoned_threads=2, abandoned_in_all=3)


class Hanging:
    """A function that hangs until `release` is set, and counts its calls."""

    def __init__(self) -> None:
        self.release, self.calls = threading.Event(), 0
        self._lock, self._begun = threading.Lock(), threading.Semaphore(0)

    def __call__(self) -> str:
        with self._lock:
            self.calls += 1
        self._begun.release()
        self.release.wait(SECONDS)
        return "late"

    async def wait_begun(self) -> None:
        """Wait until one more call has begun."""
        with anyio.fail_after(SECONDS):
            await anyio.to_thread.run_sync(self._begun.acquire, abandon_on_cancel=True)


async def abandoned(calls: SyncCalls, session: str, function: Hanging) -> None:
    """Call a function that hangs, and stop the call."""
    async with background() as tasks:
        tasks.start_soon(calls.run, session, "hangs", function)
        await function.wait_begun()


async def eventually_none(calls: SyncCalls) -> None:
    await eventually(lambda: not calls.abandoned, SECONDS)


async def test_calls_of_one_session_wait_for_its_share_and_others_do_not() -> None:
    calls, hangs = SyncCalls(TINY), Hanging()
    results: list[str] = []

    async def run(session: str, function: Callable[[], str]) -> None:
        results.append(await calls.run(session, "a", function))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(run, "hung", hangs)
            await hangs.wait_begun()
            await hangs.wait_begun()
            for each in ("s1", "s2", "s3"):
                await run(each, lambda: "quick")
            assert results == ["quick"] * 3
            assert hangs.calls == TINY.tool_threads
            hangs.release.set()
    assert results[3:] == ["late"] * 5


async def test_a_session_with_too_many_abandoned_threads_is_refused_until_they_end_and_others_are_not() -> None:
    calls, hangs = SyncCalls(TINY), Hanging()
    for _ in range(TINY.abandoned_threads):
        await abandoned(calls, "hung", hangs)
    assert calls.abandoned == TINY.abandoned_threads
    with pytest.raises(Unavailable, match=r"^a was not run: 2 earlier calls of this session were stopped"):
        await calls.run("hung", "a", hangs)
    assert hangs.calls == TINY.abandoned_threads
    assert await calls.run("other", "a", lambda: "quick") == "quick"
    hangs.release.set()
    await eventually_none(calls)
    assert await calls.run("hung", "a", lambda: "quick") == "quick"


async def test_at_the_bound_of_all_sessions_only_those_with_abandoned_threads_are_refused() -> None:
    calls, hangs = SyncCalls(TINY), Hanging()
    for session in ("s1", "s2", "s3"):
        await abandoned(calls, session, hangs)
    with pytest.raises(Unavailable, match="1 earlier calls"):
        await calls.run("s1", "a", lambda: "quick")
    assert await calls.run("s4", "a", lambda: "quick") == "quick"
    hangs.release.set()
    await eventually_none(calls)


async def test_a_call_that_is_stopped_while_it_waits_for_a_thread_says_that_it_did_not_run() -> None:
    calls, hangs, told = SyncCalls(TINY), Hanging(), list[str]()

    async def waits() -> None:
        try:
            await calls.run("s1", "b", hangs)
        except Unavailable as error:
            told.append(str(error))

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(TINY.tool_threads):
                tasks.start_soon(calls.run, "s1", "a", hangs)
                await hangs.wait_begun()
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(waits)
                await anyio.wait_all_tasks_blocked()
                waiting.cancel_scope.cancel()
            hangs.release.set()
    assert told == ["b was not run: it was stopped while it waited for one of the session's 2 threads"]
    assert hangs.calls == TINY.tool_threads


async def test_a_thread_sees_that_its_call_was_stopped() -> None:
    calls, begun, seen = SyncCalls(TINY), anyio.Event(), threading.Event()

    def checks() -> None:
        anyio.from_thread.run_sync(begun.set)
        try:
            while True:
                anyio.from_thread.check_cancelled()
                threading.Event().wait(0.001)
        finally:
            seen.set()

    with anyio.fail_after(SECONDS):
        async with background() as tasks:
            tasks.start_soon(calls.run, "s1", "checks", checks)
            await begun.wait()
        await anyio.to_thread.run_sync(seen.wait)
        await eventually_none(calls)


async def test_a_sync_tool_may_run_an_event_loop_of_its_own() -> None:
    async def inner() -> str:
        await anyio.lowlevel.checkpoint()
        return "inner"

    assert await SyncCalls(TINY).run("s1", "a", lambda: anyio.run(inner)) == "inner"


@pytest.mark.parametrize("error", [StopIteration("x"), GeneratorExit(), KeyboardInterrupt()], ids=repr)
async def test_what_would_end_the_event_loop_becomes_an_error_of_the_call(error: BaseException) -> None:
    def raises() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await SyncCalls(TINY).run("s1", "a", raises)


async def test_nothing_is_kept_of_a_session_whose_calls_have_ended() -> None:
    calls = SyncCalls(TINY)
    await calls.run("s1", "a", lambda: None)
    assert not calls._shares  # pyright: ignore[reportPrivateUsage]


ENDS = """
import threading

import anyio

from lanebus import Bus, ToolCallBlock
from lanebus.agent import AgentLoop, Worker, ask, tool
from lanebus.testing import ScriptedModel


@tool(idempotent=True, timeout=0.1)
def hangs() -> None:
    threading.Event().wait()


async def main() -> None:
    agent = AgentLoop(ScriptedModel(ToolCallBlock(id="c", name="hangs", arguments={}), "sorry"), (hangs,))
    async with Bus.open() as bus, Worker(bus, agent) as worker:
        print((await ask(bus.session("s"), "go")).text_content(), worker.status.abandoned_threads)


anyio.run(main)
"""


@pytest.mark.full
async def test_a_sync_tool_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    environ = {**os.environ, "LANEBUS_DATA_DIR": str(tmp_path)}
    with anyio.fail_after(SECONDS):
        ended = await anyio.run_process([sys.executable, "-c", ENDS], env=environ)
    assert ended.stdout.decode().split() == ["sorry", "1"]


async def test_the_bus_has_threads_of_its_own(session: Session) -> None:
    release = threading.Event()

    async def wait() -> None:
        await anyio.to_thread.run_sync(release.wait)

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(int(anyio.to_thread.current_default_thread_limiter().total_tokens)):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await session.publish(UserMessage.with_images("?", [b"\x89PNG\r\n\x1a\n" + bytes(2_000_000)]))
            release.set()
