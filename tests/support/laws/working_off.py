"""Work on a scenario's session, from wherever it stands, until nothing is left to do."""

from contextlib import suppress

from lanebus import Session
from lanebus.agent import RunBounds, TryAgain
from lanebus.handlers.agent import Run
from lanebus.handlers.agent.bounds import DEFAULT_RUN_BOUNDS
from tests.support.laws.await_scenarios import Scenario
from tests.support.laws.clerk import Book

__all__ = ("OWNER", "work_off")

OWNER = "worker"
"""an owner that takes a lease again under its name need not wait for the expiry, and fences the previous holder"""


async def work_off(session: Session, scenario: Scenario, book: Book, *, bounds: RunBounds = DEFAULT_RUN_BOUNDS) -> None:
    """Take the scenario's actions of people, and let the agent work after each."""
    agent = scenario.agent(book, session)
    lease = await session.acquire_lease(OWNER, 60)
    assert lease is not None
    run = Run(session, lease, bounds=bounds)
    for act in scenario.acts:
        await act(session)
        while (await run.refresh()).loop_state.has_work:
            with suppress(TryAgain):  # retry at once
                await agent(run)
