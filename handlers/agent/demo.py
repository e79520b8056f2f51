"""The demo agent: the offline model with a few tools. `lanebus worker lanebus.handlers.agent.demo:agent` runs it."""

import random
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from lanebus.handlers.agent.loop import AgentLoop
from lanebus.handlers.agent.models.offline import OfflineModel, calculate_text
from lanebus.handlers.agent.tools.tool import ToolContext, tool

SYSTEM = "You are the lanebus demo. Answer in one sentence. Use the tools for arithmetic, the time and dice."


@tool(idempotent=True)
async def calculate(expression: Annotated[str, Field(description='such as "17 × 23" or "12*(3+4)"')]) -> str:
    """Work out an arithmetic expression exactly."""
    return calculate_text(expression)


@tool(idempotent=True)
async def clock() -> str:
    """Tell the present date and time, UTC."""
    return f"{datetime.now(UTC):%A, %d %B %Y, %H:%M} UTC"


@tool(idempotent=True)
async def roll_dice(
    context: ToolContext,
    count: Annotated[int, Field(ge=1, le=100)] = 1,
    sides: Annotated[int, Field(ge=2, le=1000)] = 6,
) -> str:
    """Roll dice."""
    # Seeded by the call, so a repeat after a crash gives the same result.
    dice = random.Random(f"{context.session} {context.call_id}")  # noqa: S311  # dice, no secret
    rolls = [dice.randint(1, sides) for _ in range(count)]
    return f"{' + '.join(map(str, rolls))} = {sum(rolls)}" if count > 1 else str(rolls[0])


def demo_agent(*, delay: float = 0.03) -> AgentLoop:
    """Return the demo agent. It waits `delay` seconds before each word of an answer."""
    return AgentLoop(OfflineModel(delay=delay), (calculate, clock, roll_dice), system=SYSTEM)


agent = demo_agent()
