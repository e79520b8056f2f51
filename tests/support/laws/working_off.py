"""Works a session of a scenario off, again and again from wherever it stands, until there is nothing left to do."""

from contextlib import suppress

from lanebus import Session
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS, RunBounds
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.run import Run
from tests.support.laws.await_scenarios import Scenario
from tests.support.laws.clerk import Book

__all__ = ("OWNER", "work_off")

OWNER = "worker"
"""Who takes a lease again under the same name need not wait for its end, and fences who had it before."""


async def work_off(session: Session, scenario: Scenario, book: Book, *, bounds: RunBounds = DEFAULT_RUN_BOUNDS) -> None:
    """Do what the scenario's people do, and let the agent work after each act."""
    agent = scenario.agent(book, session)
    lease = await session.acquire_lease(OWNER, 60)
    assert lease is not None
    run = Run(session, lease, bounds=bounds)
    for act in scenario.acts:
        await act(session)
        while (await run.refresh()).loop_state.has_work:
            with suppress(TryAgain):  # later is now
                await agent(run)
