"""An approval counts for the agent that had the session: after a handover to another agent, a person is asked anew."""

from collections.abc import Sequence
from typing import Literal

import pytest

from lanebus import Session, ToolCallBlock, UserMessage
from lanebus.agent import AgentLoop, CallDecided, approve, decide_call, deny, pause, resume, tool
from lanebus.handlers.projections import STATUS
from lanebus.messages import Approve, ControlAnswered, SessionAssigned, ToolStarted, ToolWaiting, TurnId
from lanebus.projections import project
from tests.support.agent.agents import ScriptedModel, answer, take_run
from tests.support.agent.logs import events_of
from tests.support.agent.runs import called, work

CALL = ToolCallBlock(id="c1", name="rm")
TURN = TurnId(loop_id="s1.main.1", turn_index=0)


def named(name: str, ran: list[str], *, idempotent: bool = False) -> AgentLoop:
    def rm() -> str:
        ran.append(name)
        return "done"

    tools = (tool(approval=True, idempotent=idempotent)(rm),)
    return AgentLoop(ScriptedModel(*[answer("Ok.")] * 3), tools, name=name)


async def run(session: Session, agent: AgentLoop) -> None:
    await work(agent, await take_run(session))


async def begin(session: Session) -> None:
    """Publish the log of a call that waits for a person."""
    await session.publish(UserMessage.text("delete it"), agent="sandbox")
    await session.publish(*called(CALL, then=[ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="rm")]))


async def questions(session: Session) -> list[ToolWaiting]:
    return await events_of(session, ToolWaiting)


@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize("over", [("prod",), ("prod", "sandbox")], ids=["handed over", "and back"])
async def test_a_decision_that_no_worker_has_read_is_refused_after_a_handover(
    session: Session, over: Sequence[str], verb: Literal["approve", "deny"]
) -> None:
    ran: list[str] = []
    await begin(session)
    decide = approve if verb == "approve" else deny
    sent = await decide(session, TURN, "c1", by="bob")
    for agent in over:
        await session.hand_over(agent)
    await run(session, named(over[-1], ran))
    (said,) = await events_of(session, ControlAnswered)
    assert (said.control, said.outcome) == (sent.position, "refused")
    assert "handed over" in str(said.reason)
    assert ran == []
    await decide_call(session, Approve(turn_id=TURN, tool_call_id="c1", by="ann"))
    await run(session, named(over[-1], ran))
    assert ran == [over[-1]]


@pytest.mark.parametrize("verb", ["approve", "deny"])
@pytest.mark.parametrize("over", [("prod",), ("prod", "sandbox")], ids=["handed over", "and back"])
async def test_a_decision_that_was_not_carried_out_lapses_at_a_handover_and_a_person_is_asked_anew(
    session: Session, over: Sequence[str], verb: Literal["approve", "deny"]
) -> None:
    ran: list[str] = []
    await begin(session)
    await pause(session)
    await run(session, named("sandbox", ran))
    await (approve if verb == "approve" else deny)(session, TURN, "c1", by="bob")
    await run(session, named("sandbox", ran))
    for agent in over:
        await session.hand_over(agent)
    await resume(session)
    await run(session, named(over[-1], ran))
    assert ran == []
    first, second = await questions(session)
    assert (first.why, second.why) == ("approval", "approval")
    await decide_call(session, Approve(turn_id=second.turn_id, tool_call_id="c1", by="ann"))
    await run(session, named(over[-1], ran))
    assert ran == [over[-1]]
    assert len(await questions(session)) == 2


async def test_a_person_may_decide_anew_before_a_worker_of_the_next_agent_comes(session: Session) -> None:
    ran: list[str] = []
    await begin(session)
    control = Approve(turn_id=TURN, tool_call_id="c1", by="bob")
    await decide_call(session, control)
    with pytest.raises(CallDecided):
        await decide_call(session, control)
    await session.hand_over("prod")
    await decide_call(session, control.model_copy(update={"by": "ann"}))
    await run(session, named("prod", ran))
    assert ran == ["prod"]
    said = [each.outcome for each in await events_of(session, ControlAnswered)]
    assert said == ["refused", "applied"]


async def test_another_agent_asks_before_it_repeats_a_call_that_was_approved_before(session: Session) -> None:
    ran: list[str] = []
    await begin(session)
    sent = await approve(session, TURN, "c1", by="bob")
    started = ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="rm")
    answered = ControlAnswered(control=sent.position, outcome="applied")
    await session.publish(answered.as_extension(), started.as_extension())
    await session.hand_over("prod")
    await run(session, named("prod", ran, idempotent=True))
    assert ran == []
    assert [each.why for each in await questions(session)] == ["approval", "unknown"]
    await approve(session, TURN, "c1", by="ann")
    await run(session, named("prod", ran, idempotent=True))
    assert ran == ["prod"]


async def test_a_log_in_which_a_lapsed_approval_was_carried_out_says_that_the_call_ran(session: Session) -> None:
    await begin(session)
    sent = await approve(session, TURN, "c1", by="bob")
    await session.publish(ControlAnswered(control=sent.position, outcome="applied").as_extension())
    await session.publish(SessionAssigned(agent="prod", previous="sandbox").as_extension())
    lapsed = (await project(session, STATUS)).state.loop
    assert lapsed is not None
    assert ([*lapsed.calls_answered], [*lapsed.calls_lapsed]) == ([], ["c1"])
    await session.publish(ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="rm").as_extension())
    ran = (await project(session, STATUS)).state.loop
    assert ran is not None
    assert ([*ran.calls_answered], [*ran.calls_lapsed]) == (["c1"], [])
