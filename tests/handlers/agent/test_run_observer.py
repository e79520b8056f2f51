"""What a run appends is counted and logged: loops, turns, usage and failures."""

import logging
from decimal import Decimal

import pytest

from lanebus import AssistantMessage, ExtensionMessage, UserMessage
from lanebus.agent import ModelFailure
from lanebus.bus.messages import AgentEnded, AgentStarted, Cost, TurnEnded, TurnId, TurnStarted, Usage
from lanebus.handlers.agent import LogContext, WorkerCounts
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.agent.run import RunObserver

__all__ = ()

LOOP, TURN = "s.main.1", TurnId(loop_id="s.main.1", turn_index=0)
USAGE = Usage(input=10, output=5, cache_read=30, total_tokens=45, cost=Cost(total=Decimal("0.25")))
START = (AgentStarted(loop_id=LOOP, agent="support").as_extension(), TurnStarted(turn_id=TURN).as_extension())


@pytest.fixture
def observed() -> tuple[RunObserver, WorkerCounts]:
    counts = WorkerCounts()
    return RunObserver(LogContext(session="s", worker="w"), counts), counts


async def test_a_loop_is_counted_by_its_agent_model_and_outcome(
    observed: tuple[RunObserver, WorkerCounts], caplog: pytest.LogCaptureFixture
) -> None:
    observer, counts = observed
    answer = AssistantMessage.text("secret").model_copy(update={"model": "m", "provider": "p", "usage": USAGE})
    ended = AgentEnded(loop_id=LOOP, stop_reason="stop", turns=1, usage=USAGE)
    with caplog.at_level(logging.DEBUG):
        observer.appended(START)
        turn = TurnEnded(turn_id=TURN, stop_reason="stop", usage=USAGE, message=3)
        observer.appended((answer, turn.as_extension(), ended.as_extension()))
    assert counts.loops.sums == {("support", "stop"): 1}
    assert counts.turns.sums == {("support", "m", "stop"): 1}
    assert counts.tokens.sums == {("m", "input"): 10, ("m", "output"): 5, ("m", "cache_read"): 30}
    assert counts.cost.sums == {("m",): 0.25}
    assert counts.prompts.sums == {("m", "hit"): 1}
    assert sum(counts.turn_seconds.counts) == 1
    found = [(vars(each)["event"], vars(each)["turn"], vars(each)["agent"]) for each in caplog.records]
    assert found == [
        ("loop.begun", "", "support"),
        ("turn.ended", "s.main.1#0", "support"),
        ("loop.ended", "", "support"),
    ]
    assert "secret" not in caplog.text


async def test_a_failed_call_is_counted_by_its_status_and_logged_without_its_text(
    observed: tuple[RunObserver, WorkerCounts], caplog: pytest.LogCaptureFixture
) -> None:
    observer, counts = observed
    failed = AssistantMessage(stop_reason="error", error_message="secret", model="m", provider="p")
    observer.appended((with_failure(failed, ModelFailure(status=529, is_transient=True)),))
    observer.appended((failed,))
    assert counts.model_failures.sums == {("m", "529"): 1, ("m", ""): 1}
    assert [vars(each)["is_transient"] for each in caplog.records] == [True, False]
    assert "secret" not in caplog.text


async def test_what_no_model_said_counts_for_no_model(observed: tuple[RunObserver, WorkerCounts]) -> None:
    observer, counts = observed
    marker = AssistantMessage(stop_reason="error", error_message="the agent failed")
    unreadable = ExtensionMessage.of(TurnEnded.KIND, {"turnId": "no turn"})
    observer.appended((UserMessage.text("hello"), marker, unreadable))
    assert (counts.model_failures.sums, counts.turns.sums, counts.prompts.sums) == ({}, {}, {})
