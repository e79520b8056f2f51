"""Works a session of a scenario off, again and again from wherever it stands, until there is nothing left to do."""

from bus import Session
from handlers.agent.run import Agent, Run
from handlers.agent.standing import read_standing
from tests.laws.await_scenarios import Scenario

__all__ = ("OWNER", "work_off")

OWNER = "worker"
"""Who takes a lease again under the same name need not wait for its end, and fences who had it before."""


async def work_off(session: Session, scenario: Scenario, agent: Agent) -> None:
    """Do what the scenario's people do, and let the agent work after each act."""
    lease = await session.acquire_lease(OWNER, 60)
    assert lease is not None
    run = Run(session, lease)
    for act in scenario.acts:
        await act(session)
        while read_standing(*await run.refresh()).has_work:
            await agent(run)
