"""Agents for worker processes: one on the Messages API at $LANEBUS_TEST_API, one that always raises, one that never
ends, and one whose tool waits for a person."""

import os

import anyio
from anthropic import AsyncAnthropic

from lanebus.agent import AgentLoop, OfflineModel, Run, tool
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent.models.provider_model import AnthropicModel
from tests.support.agent.api_key import API_KEY

agent = AgentLoop(
    AnthropicModel(
        "claude-test",
        client=AsyncAnthropic(
            api_key=API_KEY, base_url=os.environ.get("LANEBUS_TEST_API", "http://127.0.0.1:1"), max_retries=0
        ),
    ),
    name="support",
    retry=RetryPolicy(attempts=2, base=0.01, longest=0.01),
)


async def broken(run: Run) -> None:
    """Raise an error that quotes the session's messages."""
    snapshot = await run.refresh()
    raise ValueError("; ".join(str(message) for message in snapshot.context.messages))


async def endless(run: Run) -> None:
    """Wait forever, and append nothing."""
    del run
    await anyio.sleep_forever()


@tool(approval=True)
async def roll_dice(count: int, sides: int) -> int:
    """Roll dice.

    Args:
        count: how many dice.
        sides: of each.
    """
    return count * sides // 2


asking = AgentLoop(OfflineModel(delay=0), (roll_dice,), name="asking")
