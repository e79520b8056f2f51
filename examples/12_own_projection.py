"""Define your own projection as one annotated function. Its state is stored with a checkpoint and can be rebuilt.

    python examples/12_own_projection.py

prints
    entry 1: {'search': 1}
    entry 3: {'search': 1, 'roll_dice': 0}
    folded anew: the same, 1 event could not be read
    over all sessions: {'search': 2, 'roll_dice': 0}
"""

import os
from collections.abc import Mapping
from contextlib import aclosing

import anyio

from lanebus import Bus, ExtensionMessage, new_session_id
from lanebus.messages import ToolEnded, TurnId
from lanebus.projections import follow, project_all, projection, rebuild

Counts = Mapping[str, int]


@projection("tool-errors", version=1, forked={})
def tool_errors(errors: Counts, ended: ToolEnded) -> Counts:
    return {**errors, ended.tool_name: errors.get(ended.tool_name, 0) + ended.is_error}


def merge(one: Counts, other: Counts) -> Counts:
    return {tool: one.get(tool, 0) + other.get(tool, 0) for tool in {**one, **other}}


def ended(tool: str, *, is_error: bool) -> ExtensionMessage:
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    return ToolEnded(turn_id=turn, tool_call_id="1", tool_name=tool, is_error=is_error).as_extension()


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL"), namespace=new_session_id()) as bus:
        session = bus.session(new_session_id())
        await session.publish(ended("search", is_error=True))
        async with aclosing(follow(session, tool_errors)) as states:
            print(f"entry 1: {dict((await anext(states)).state)}")
            await session.publish(ExtensionMessage.of("agent.tool.ended", "not an event"))
            await session.publish(ended("roll_dice", is_error=False))
            await anext(states)  # the malformed event is skipped and counted
            now = await anext(states)
            print(f"entry {now.position}: {dict(now.state)}")
        again = await rebuild(session, tool_errors)
        same = "the same" if again == now else "another state"
        print(f"folded anew: {same}, {again.unreadable} event could not be read")

        await bus.session(new_session_id()).publish(ended("search", is_error=True))
        print(f"over all sessions: {dict((await project_all(bus, tool_errors, merge)).state)}")


if __name__ == "__main__":
    anyio.run(main)
