"""A recorder that is cancelled at each place where it waits: it passes on, and the next one finishes the session."""

from functools import partial

import anyio
import pytest

from lanebus import AssistantMessage, Session, ToolCallBlock, Usage, UserMessage
from lanebus.agent import Recorder
from lanebus.messages import TurnId
from lanebus.projections import TURNS, USAGE, rebuild
from tests.support.agent.agents import SECONDS, fresh_bus
from tests.support.agent.logs import answers, said
from tests.support.laws.cancelling import Moment, cut

__all__ = ()

CALL = ToolCallBlock(id="c1", name="work", arguments={})
USED = Usage(input=10, output=2, total_tokens=12)


async def own_loop(session: Session) -> None:
    """Call a tool, then answer; what the model says follows from what it is shown."""
    async with Recorder(session) as recorder:
        while await recorder.wait_for_work(0):
            async with recorder.turn(model="m-1", tools=(), max_tokens=100) as turn:
                if turn.context.messages[-1].text_content() == "go":
                    await turn.answer(AssistantMessage(content=(CALL,), stop_reason="toolUse"), usage=USED)
                else:
                    turn.piece("So ")
                    await anyio.lowlevel.checkpoint()
                    turn.piece("it is.")
                    await turn.answer(usage=USED)
                for call in turn.calls:
                    async with turn.tool(call) as tool:
                        await anyio.lowlevel.checkpoint()
                        tool.result = "done"


async def check(session: Session) -> None:
    """The session is finished, each step is there once, and nothing is open."""
    log = await said(session)
    asked = await answers(session)
    good = [message for message in asked if not message.is_failed]
    assert [message.text_content() for message in good] == ["", "So it is."]
    assert len([text for text in log if text.startswith("result")]) == 1
    assert (log.count("agent.started"), log.count("agent.ended")) == (1, 1)
    turns = (await rebuild(session, TURNS)).state
    assert turns.running == ()
    assert all(turn.status in {"completed", "aborted"} for turn in turns.turns)
    usage = (await rebuild(session, USAGE)).state
    assert (usage.mismatch_count, usage.problems) == (0, 0)
    assert await session.open_messages() == []
    numbers = [TurnId(loop_id="s1.main.1", turn_index=index) for index in range(len(asked))]
    assert [message.turn_id for message in asked] == numbers


@pytest.mark.full
@pytest.mark.parametrize("moment", Moment)
async def test_a_recorder_cancelled_at_any_await_leaves_a_session_that_the_next_finishes(moment: Moment) -> None:
    at, is_cut = 0, True
    while is_cut:
        at += 1
        async with fresh_bus() as bus:
            session = bus.session("s1")
            await session.publish(UserMessage.text("go"))
            trial = await cut(partial(own_loop, session), at=at, moment=moment)
            assert trial.is_honest, (at, trial)
            is_cut = trial.is_cut
            with anyio.fail_after(SECONDS):
                await own_loop(session)
            try:
                await check(session)
            except AssertionError as error:
                raise AssertionError(f"cut at {at}, {moment}: {await said(session)}") from error
    assert at > 10
