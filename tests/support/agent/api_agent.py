"""Agents for worker processes: one on the Messages API at $LANEBUS_TEST_API, and one that always raises."""

import os

from anthropic import AsyncAnthropic

from lanebus.agent import AgentLoop, Run
from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.handlers.agent.models.anthropic_model import AnthropicModel
from tests.support.agent.api_key import API_KEY

__all__ = ("agent", "broken")

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
