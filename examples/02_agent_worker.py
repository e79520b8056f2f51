"""A worker answers a session in which a user speaks. Its model is an offline one that really calls the tool.

    python examples/02_agent_worker.py

prints
    user: What is 17 × 23?
    tool calculate: 391
    assistant: 17 × 23 is 391.
"""

import os
from contextlib import aclosing

import anyio

from lanebus import AssistantMessage, Bus, Lane, ToolResultMessage, UserMessage, new_session_id
from lanebus.agent import AgentLoop, OfflineModel, Worker, tool


@tool
async def calculate(expression: str) -> str:
    """Multiply two whole numbers, written as "a × b"."""  # what the model is told
    left, _, right = expression.partition("×")
    return str(int(left) * int(right))


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus, anyio.create_task_group() as tasks:
        worker = Worker(bus, AgentLoop(OfflineModel(), (calculate,)), group=new_session_id())  # run as many as you like
        tasks.start_soon(worker.run)

        session = bus.session(new_session_id())
        await session.publish(UserMessage.text("What is 17 × 23?"))
        async with aclosing(session.follow(lanes={Lane.LLM})) as envelopes:
            async for envelope in envelopes:
                match envelope.message:
                    case UserMessage() as question:
                        print(f"user: {question.text_content()}")
                    case ToolResultMessage(tool_name=name) as result:
                        print(f"tool {name}: {result.text_content()}")
                    case AssistantMessage(stop_reason="stop") as answer:
                        print(f"assistant: {answer.text_content()}")
                        break
                    case _:
                        pass  # the model's call of the tool
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
