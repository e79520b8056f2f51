"""Define a tool that needs approval. The call waits in the log, without a time limit, until a person decides.

    python examples/10_tools.py

prints
    user: Please roll 2d6.
    roll_dice waits; approved
    tool roll_dice: 7
    user: Please roll 3d6.
    roll_dice waits; denied
    tool roll_dice: Denied by the user
"""

import os

import anyio

from lanebus import Bus, ToolResultMessage, new_session_id
from lanebus.agent import AgentLoop, OfflineModel, PersonNeeded, ToolContext, Worker, approve, ask, deny, tool


def is_for_money(sides: int) -> bool:
    """Return whether a person must approve the call. Declare only those parameters of the tool that you need, by
    name."""
    return sides == 6


@tool(approval=is_for_money, on_unknown="ask", timeout=10)
async def roll_dice(context: ToolContext, count: int, sides: int) -> int:
    """Roll dice for money.

    Args:
        count: how many dice.
        sides: of each.
    """
    await context.progress(f"paying for {context.key}")  # a retry has the same key
    return count * sides * 7 // 12


async def main() -> None:
    agent = AgentLoop(OfflineModel(), (roll_dice,))
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus, Worker(bus, agent, group=new_session_id()):
        session = bus.session(new_session_id())
        for question in ("Please roll 2d6.", "Please roll 3d6."):
            print(f"user: {question}")
            try:
                await ask(session, question, key=question)
            except PersonNeeded as needed:
                (call,) = needed.waiting
                if "2d6" in question:
                    await approve(session, call.turn_id, call.tool_call_id)
                else:
                    await deny(session, call.turn_id, call.tool_call_id, reason="too many dice")
                print(f"{call.tool_name} waits; {'approved' if '2d6' in question else 'denied'}")
                await ask(session, question, key=question)  # same key: waits for the answer and publishes nothing
            results = [envelope.message async for envelope in session.read(kinds={"toolResult"})]
            if isinstance(result := results[-1], ToolResultMessage):
                print(f"tool {result.tool_name}: {result.text_content()}")


if __name__ == "__main__":
    anyio.run(main)
