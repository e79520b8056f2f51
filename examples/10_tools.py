"""A tool that asks first: the call waits in the log for a person's word, on whichever worker, for as long as it takes.

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
from contextlib import aclosing

import anyio

from lanebus import Bus, ExtensionMessage, ToolResultMessage, UserMessage, new_session_id
from lanebus.agent import AgentLoop, OfflineModel, ToolContext, Worker, approve, deny, tool
from lanebus.messages import AgentEnded, ToolWaiting, parse_event


@tool(approval=lambda arguments: arguments["sides"] == 6, on_unknown="ask", timeout=10)
async def roll_dice(context: ToolContext, count: int, sides: int) -> int:
    """Roll dice for money.

    Args:
        count: how many dice.
        sides: of each.
    """
    await context.progress(f"paying for {context.key}")  # the same key if it has to be run again
    return count * sides * 7 // 12


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(Worker(bus, AgentLoop(OfflineModel(), (roll_dice,)), group=new_session_id()).run)
        session = bus.session(new_session_id())
        for question in ("Please roll 2d6.", "Please roll 3d6."):
            print(f"user: {question}")
            asked = await session.publish(UserMessage.text(question))
            async with aclosing(session.follow(after=asked.cursor)) as envelopes:
                async for envelope in envelopes:
                    message = envelope.message
                    event = parse_event(message) if isinstance(message, ExtensionMessage) else None
                    if isinstance(message, ToolResultMessage):
                        print(f"tool {message.tool_name}: {message.text_content()}")
                    elif isinstance(event, ToolWaiting):
                        if "2d6" in question:
                            await approve(session, event.turn_id, event.tool_call_id)
                        else:
                            await deny(session, event.turn_id, event.tool_call_id, reason="too many dice")
                        print(f"{event.tool_name} waits; {'approved' if '2d6' in question else 'denied'}")
                    elif isinstance(event, AgentEnded):
                        break
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
