"""Let an agent give a task to another agent. The task runs in its own session, on any worker of the group.

    python examples/09_sub_agents.py

prints
    user: Ask the clerk what 17 × 23 is.
    clerk: 17 × 23 is 391.
    assistant: The clerk says: 17 × 23 is 391.
    clerk worked in a session of its own, 1 below
    2 sessions, 4 model calls
"""

import os
from collections.abc import AsyncGenerator

import anyio

from lanebus import AssistantMessage, Bus, Lane, ToolCallBlock, ToolResultMessage, UserMessage, new_session_id
from lanebus.agent import AgentLoop, ModelEvent, ModelRequest, OfflineModel, SubAgent, Worker, ask
from lanebus.handlers.agent.demo import calculate
from lanebus.projections import read_links, tree_usage


class Manager:
    """A model that always asks the clerk and repeats the clerk's answer. A real model decides whom to ask."""

    provider, name, context_window = "offline", "manager", None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        last = request.context.messages[-1]
        if isinstance(last, ToolResultMessage):
            yield AssistantMessage.text(f"The clerk says: {last.text_content()}")
        else:
            call = ToolCallBlock(id="call-1", name="clerk", arguments={"task": "What is 17 × 23?"})
            yield AssistantMessage(content=(call,), stop_reason="toolUse")


async def main() -> None:
    clerk = SubAgent("clerk", AgentLoop(OfflineModel(), (calculate,)), "Knows arithmetic.")
    agent = AgentLoop(Manager(), (clerk,))
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus, Worker(bus, agent, group=new_session_id()):
        session = bus.session(new_session_id())
        answer = await ask(session, "Ask the clerk what 17 × 23 is.")
        async for envelope in session.read(lanes={Lane.LLM}):
            match envelope.message:
                case UserMessage() as question:
                    print(f"user: {question.text_content()}")
                case ToolResultMessage() as result:
                    print(f"clerk: {result.text_content()}")
                case _:
                    pass  # the tool call and the answer of the manager
        print(f"assistant: {answer.text_content()}")
        (link,) = (await read_links(session)).children
        print(f"{link.agent} worked in a session of its own, {link.depth} below")
        tree = [each for _, each in (await tree_usage(session)).walk()]
        print(f"{len(tree)} sessions, {sum(each.own.calls for each in tree)} model calls")


if __name__ == "__main__":
    anyio.run(main)
