"""What a run knows of its session, and when it need not look again."""

import pytest

from bus import AssistantMessage, UserMessage
from handlers.agent.commands import follow_up
from tests.support.agent.agents import fresh_bus, take_run

__all__ = ()


@pytest.mark.parametrize("others", [0, 1])
async def test_run_is_finished_only_if_nobody_spoke_since_the_view_it_decided_on(others: int) -> None:
    async with fresh_bus() as bus:
        session = bus.session("s1")
        await session.publish(UserMessage.text("one"))
        run = await take_run(session)
        await run.refresh()
        decided_at = run.position
        for _ in range(others):
            await follow_up(session, "and then?")
        await run.refresh()  # as while a model speaks
        await run.publish(AssistantMessage.text("First."))
        run.finish(decided_at)
        assert run.is_finished == (others == 0)
