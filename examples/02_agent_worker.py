"""Run a worker that answers a user's question. The offline model needs no provider and really calls the tool.

    python examples/02_agent_worker.py

prints
    user: What is 17 × 23?
    tool calculate: 391
    assistant: 17 × 23 is 391.
"""

import os

import anyio

from lanebus import Bus, Lane, ToolResultMessage, UserMessage, new_session_id
from lanebus.agent import AgentLoop, OfflineModel, Worker, ask, tool


@tool
async def calculate(expression: str) -> str:
    """Multiply two whole numbers, written as "a × b"."""  # the model reads this description
    left, _, right = expression.partition("×")
    return str(int(left) * int(right))


async def main() -> None:
    agent = AgentLoop(OfflineModel(), (calculate,))
    async with (
        Bus.open(os.environ.get("LANEBUS_URL")) as bus,
        Worker(bus, agent, group=new_session_id()),  # any number of workers can share a group
    ):
        session = bus.session(new_session_id())
        answer = await ask(session, "What is 17 × 23?")  # waits for the end of the loop
        async for envelope in session.read(lanes={Lane.LLM}):
            match envelope.message:
                case UserMessage() as question:
                    print(f"user: {question.text_content()}")
                case ToolResultMessage(tool_name=name) as result:
                    print(f"tool {name}: {result.text_content()}")
                case _:
                    pass  # the tool call and the answer of the model
        print(f"assistant: {answer.text_content()}")


if __name__ == "__main__":
    anyio.run(main)
