"""Fold the usage and cost of a session from its log. A stored state saves time; a rebuild gives the same result.

    python examples/03_usage_projection.py

prints
    2 calls, 310 tokens in, 75 out, $0.002055
    as of entry 5; folded anew from entry 1: the same
"""

import os
from decimal import Decimal

import anyio

from lanebus import AssistantMessage, Bus, ExtensionMessage, Rates, TextBlock, Usage, UserMessage, new_session_id
from lanebus.projections import USAGE, project, rebuild

RATES = Rates(input=Decimal(3), output=Decimal(15))  # US dollars for a million tokens


def answer(text: str, usage: Usage) -> AssistantMessage:
    """Return an answer with its cost. The log stores the cost, so later price changes do not affect it."""
    priced = usage.model_copy(update={"cost": usage.cost_at(RATES, source="my price list")})
    return AssistantMessage(content=(TextBlock(text=text),), model="small", provider="example", usage=priced)


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus:
        session = bus.session(new_session_id())
        await session.publish(UserMessage.text("Hello"))
        await session.publish(answer("Hi!", Usage(input=110, output=25, total_tokens=135)))
        await session.publish(UserMessage.text("And now?"))
        await session.publish(ExtensionMessage.of("progress", {"percent": 50}))  # no model call, so no cost
        await session.publish(answer("Now this.", Usage(input=200, output=50, total_tokens=250)))

        now = await project(session, USAGE)
        total = now.state.total.usage
        cost = total.cost.total if total.cost else "unknown"
        print(f"{now.state.total.calls} calls, {total.input} tokens in, {total.output} out, ${cost}")
        again = await rebuild(session, USAGE)
        print(f"as of entry {now.position}; folded anew from entry 1: {'the same' if again == now else 'another one'}")


if __name__ == "__main__":
    anyio.run(main)
