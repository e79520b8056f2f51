"""One run of a tool ends in a result or is stopped."""

import asyncio
import logging
from functools import partial
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from lanebus.agent import FunctionTool, ToolContext, ToolSpec, tool
from lanebus.handlers.agent.tools.tool_executor import invoke_tool
from lanebus.messages import ToolCallBlock, ToolResultMessage, TurnId

__all__ = ()

CALL = ToolCallBlock(id="c1", name="a")


async def silent(text: str) -> None:
    del text


CONTEXT = ToolContext("s1", TurnId(loop_id="s1.main.1", turn_index=0), "c1", silent)


async def called(subject: FunctionTool) -> ToolResultMessage:
    return await invoke_tool(subject, CALL, CONTEXT)


async def test_a_tool_that_takes_too_long_is_stopped_with_an_unknown_outcome() -> None:
    cleaned = anyio.Event()

    @tool(name="a", timeout=0.01)
    async def hangs() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.lowlevel.checkpoint()
            cleaned.set()
        return "never"

    result = await called(hangs)
    assert result.is_error
    assert result.text_content().startswith(
        "Unknown outcome: a was started, but it was stopped after 0.01 s, before a result came. It may have done all,"
    )
    assert cleaned.is_set()


async def test_a_sync_tool_that_takes_too_long_is_abandoned() -> None:
    go = anyio.Event()

    @tool(name="a", timeout=0.01)
    def hangs() -> None:
        anyio.from_thread.run(go.wait)

    assert (await called(hangs)).is_error
    go.set()


async def test_a_tool_that_cancels_itself_has_an_unknown_outcome() -> None:
    @tool(name="a")
    async def gives_up() -> str:
        raise asyncio.CancelledError

    result = await called(gives_up)
    assert result.is_error
    assert result.text_content().startswith("Unknown outcome: a was started, but it was cancelled before a result came")


class Foreign(FunctionTool):
    """A foreign tool whose `run` breaks the protocol."""

    def __init__(self, outcome: Exception | ToolResultMessage) -> None:
        super().__init__(lambda: None, name="a")
        self.spec = ToolSpec("a", "", {"type": "object"})
        self._outcome = outcome

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (ToolResultMessage.of("other", "fine"), "a gave the result of another call"),
        (cast("ToolResultMessage", "fine"), "a gave no result, but str"),
    ],
)
async def test_errors_of_a_foreign_tool_become_its_result(outcome: Exception | ToolResultMessage, text: str) -> None:
    result = await called(Foreign(outcome))
    assert (result.tool_call_id, result.is_error, result.text_content()) == ("c1", True, text)


async def test_a_tool_that_does_not_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    reached, go, over = anyio.Event(), anyio.Event(), anyio.Event()

    @tool(name="a")
    async def stays() -> str:
        reached.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        over.set()
        return "late"

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(invoke_tool, stays, CALL, CONTEXT, clean_up_seconds=0.01))
            await reached.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert "is abandoned" in caplog.text
    go.set()
    await over.wait()


async def test_a_tool_that_fails_in_its_clean_up_counts_as_stopped(caplog: pytest.LogCaptureFixture) -> None:
    reached = anyio.Event()

    class Fails(Foreign):
        async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
            reached.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise RuntimeError("no way out")

    with caplog.at_level(logging.WARNING), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, Fails(KeyError()))
            await reached.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert "failed while it was stopped" in caplog.text
