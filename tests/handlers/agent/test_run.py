"""What a run knows about its session, and when it need not read again."""

import pytest

from lanebus import AssistantMessage, Session, UserMessage
from lanebus.agent import AgentLoop, Run, follow_up
from lanebus.handlers.agent.session_cache import CachedSession
from tests.support.agent.agents import ScriptedModel, answer, take_run

__all__ = ()


@pytest.mark.parametrize("others", [0, 1])
async def test_a_run_is_unchanged_if_no_other_client_appended_since_the_decision(session: Session, others: int) -> None:
    await session.publish(UserMessage.text("one"))
    run = await take_run(session)
    await run.refresh()
    decided_at = run.position
    for _ in range(others):
        await follow_up(session, "and then?")
    await run.refresh()  # as during an answer
    await run.publish(AssistantMessage.text("First."))
    assert run.is_unchanged_since(decided_at) == (others == 0)


async def test_a_run_notices_an_unread_message_at_its_next_append(session: Session) -> None:
    run = await take_run(session)
    await run.refresh()
    decided_at = run.position
    await follow_up(session, "and then?")
    assert run.is_unchanged_since(decided_at), "it does not know of it: the message wakes a worker"
    await run.publish(AssistantMessage.text("First."))
    assert not run.is_unchanged_since(decided_at)


async def test_a_run_does_not_read_again_what_was_read_under_its_lease(session: Session) -> None:
    await session.publish(UserMessage.text("one"))
    cache = CachedSession(session)
    await cache.refresh()
    run = Run(session, (await take_run(session)).lease, cache, is_read=True)
    assert run.position == 1
    assert run.snapshot.loop_state.prompts == (1,)


async def test_a_loop_starts_from_the_snapshot_that_its_worker_has_read(session: Session) -> None:
    await session.publish(UserMessage.text("one"))
    run = await take_run(session)
    snapshot = await run.refresh()
    await session.publish(UserMessage.text("two"))
    model = ScriptedModel(answer("One."))
    looked_at = await AgentLoop(model).work_from(run, snapshot)
    assert [message.text_content() for message in model.requests[0].context.messages] == ["one"]
    assert looked_at is not None
    assert not run.is_unchanged_since(looked_at), "the worker looks again"
