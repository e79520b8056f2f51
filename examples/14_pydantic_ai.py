"""Run an agent of pydantic-ai in a worker, and store its conversations. The agent itself is unchanged.

    python examples/14_pydantic_ai.py

prints
    the worker answered: Your order is on its way.
    its turns: completed (tools: 1), completed (tools: 0)
    a stored conversation: the first run added 4 messages, the second 2
    a fork of it: 4 messages, and then 6
    what the page shows of the fork: user, assistant, toolResult, assistant, user, assistant
"""

import os

import anyio
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel

from lanebus import Bus, new_session_id
from lanebus.agent import Worker, ask
from lanebus.projections import TURNS, project
from lanebus.pydantic_ai import LanebusConversationStore, PydanticAgent


def find_order(number: int) -> str:
    """Look up an order."""
    return f"Order {number} is on its way."


agent = Agent(TestModel(custom_output_text="Your order is on its way."), tools=[find_order])  # or "openai:gpt-5"


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        session = bus.session(new_session_id(), agent="pydantic-ai")
        async with Worker(bus, PydanticAgent(agent)):
            print(f"the worker answered: {(await ask(session, 'Where is my order?')).text_content()}")
        turns = (await project(session, TURNS)).state.turns
        print("its turns:", ", ".join(f"{turn.status} (tools: {len(turn.tools)})" for turn in turns))

        store = LanebusConversationStore(bus)
        conversation = Conversation(conversation_id=new_session_id())
        first = await store.save(await agent.run("Where is my order?", conversation=conversation))
        added = await store.save(await agent.run("Thanks", conversation=await store.load(conversation.conversation_id)))
        print(f"a stored conversation: the first run added {len(first)} messages, the second {len(added)}")

        fork = await store.fork(conversation.conversation_id, at=4)
        result = await agent.run("And order 7?", conversation=fork)
        await store.save(result)
        print(f"a fork of it: {len(fork.messages)} messages, and then {len(result.conversation.messages)}")
        shown = bus.session(fork.conversation_id).read(kinds={"user", "assistant", "toolResult"})
        print(
            "what the page shows of the fork:", ", ".join([getattr(each.message, "role", "") async for each in shown])
        )


if __name__ == "__main__":
    anyio.run(main)
