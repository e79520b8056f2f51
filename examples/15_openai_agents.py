"""Keep a conversation of OpenAI's Agents SDK in lanebus, then run an agent of the SDK in a worker, with an approval.

    python examples/15_openai_agents.py

prints
    Runner: It is on its way.
    stored: user, function_call, function_call_output, assistant
    turns: tokens 25, tokens 25
    worker: refund waits for a person
    worker: Order 7 is refunded.
"""

import os

import anyio
from agents import Agent, Runner, Usage, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call  # answers without a provider

from lanebus import Bus, new_session_id
from lanebus.agent import PersonNeeded, Worker, approve, ask
from lanebus.openai_agents import LanebusSession, RunnerAgent
from lanebus.projections import TURNS, look


@function_tool
def find_order(number: int) -> str:
    return f"Order {number} is on its way."


@function_tool(needs_approval=True)
def refund(number: int) -> str:
    return f"Order {number} is refunded."


def shop(tool: str, answer: str) -> Agent[None]:
    spent = Usage(requests=1, input_tokens=20, output_tokens=5, total_tokens=25)
    call = ModelStep(output=[function_call(tool, {"number": 7}, call_id="call-1")], usage=spent)
    model = ScriptedModel([call, ModelStep(output=[assistant_message(answer)], usage=spent)])
    return Agent(name="shop", model=model, tools=[find_order, refund])


async def main() -> None:
    set_tracing_disabled(True)
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        history = LanebusSession(new_session_id(), bus)
        result = await Runner.run(shop("find_order", "It is on its way."), "Where is order 7?", session=history)
        print("Runner:", result.final_output)
        print("stored:", ", ".join(str(item.get("role") or item.get("type")) for item in await history.get_items()))
        turns = (await look(history.bus_session, TURNS)).state.turns
        print("turns:", ", ".join(f"tokens {turn.usage.total_tokens}" for turn in turns if turn.usage))

        session = bus.session(new_session_id(), agent="shop")
        async with Worker(bus, RunnerAgent(shop("refund", "Order 7 is refunded."), name="shop")):
            try:
                await ask(session, "Refund order 7", key="q")
            except PersonNeeded as needed:
                print("worker:", needed.waiting[0].tool_name, "waits for a person")
                await approve(session, needed.waiting[0].turn_id, needed.waiting[0].tool_call_id)
            print("worker:", (await ask(session, "Refund order 7", key="q")).text_content())


if __name__ == "__main__":
    anyio.run(main)
