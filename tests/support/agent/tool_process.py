"""A worker in its own process that executes the tool calls of an answer, for tests that kill it there.

The arguments are DIR and CASE. CASE is what it does when it is killed, see `CASES`.

It prints "ready" once it is there, and then hangs. Its tool appends a line to DIR/outside at each run.
"""

import sys
from pathlib import Path

import anyio

from lanebus import Bus, ToolCallBlock
from lanebus.agent import FunctionTool, ToolContext, tool
from tests.support.agent.agents import take_run
from tests.support.agent.tool_runs import called, go_on

CASES = ("asked for", "started", "idempotent", "in a thread", "waiting")


def tool_of(case: str, outside: Path, *, hangs: bool) -> FunctionTool:
    """Return the tool of a case. It notes each run outside of the log."""

    def note(context: ToolContext) -> str:
        with outside.open("a") as file:
            file.write(f"{context.key} {context.attempt}\n")
        return "done"

    async def function(context: ToolContext) -> str:
        note(context)
        if hangs:
            print("ready", flush=True)
            await anyio.sleep_forever()
        return "done"

    def in_a_thread(context: ToolContext) -> str:
        note(context)
        if hangs:
            print("ready", flush=True)
            anyio.from_thread.run(anyio.sleep_forever)
        return "done"

    is_idempotent = case in {"idempotent", "in a thread"}
    made = in_a_thread if case == "in a thread" else function
    return tool(name="a", idempotent=is_idempotent, approval=case == "waiting")(made)


def main() -> None:
    """Work up to the place of the case, and hang there."""
    anyio.run(_work)


async def _work() -> None:
    folder, case = Path(sys.argv[1]), sys.argv[2]
    async with Bus.open(data_dir=folder / "d") as bus:
        run = await take_run(bus.session("s1"))
        await called(run, ToolCallBlock(id="c0", name="a"))
        if case != "asked for":
            await go_on(run, tool_of(case, folder / "outside", hangs=True))
        print("ready", flush=True)
        await anyio.sleep_forever()
