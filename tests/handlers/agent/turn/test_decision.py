"""The next decision for a given log, one line for each case."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.agent import AgentLoop, LoopLimits, Run, tool
from lanebus.bus.messages import Abort, Approve, Cost, Deny, Handoff, Pause, Resume, SessionLinked, Steer, ToolEnded
from lanebus.handlers.agent.tools.tool_call import StartCall, decide_calls
from lanebus.handlers.agent.turn.decision import CompactContext, Idle, command_outcome, next_decision
from lanebus.handlers.agent.turn.loop_state import AGAIN, CUT, WARNING, SessionSnapshot
from lanebus.handlers.context import READ_UP_TO
from lanebus.handlers.projections import waiting_calls
from lanebus.messages import Compact, Compaction, ExtensionMessage, SystemMessage, TurnId, Usage, UserMessage
from tests.support.agent.agents import ScriptedModel
from tests.support.agent.folding import Said
from tests.support.agent.loop_logs import (
    answered,
    asks,
    begun,
    called,
    ended,
    follows_up,
    in_words,
    result,
    says,
    started,
    tool_started,
    turn,
    view_of,
    waiting,
)
from tests.support.suite.scale import examples

SETTINGS = AgentLoop(ScriptedModel()).settings
T0, T1 = turn(0), turn(1)
U0 = turn(0, "s1.main.2")
FORKED = turn(3, "p.main.7")

RUNS: list[Said] = [asks(), started(), begun(T0)]
CALLS: list[Said] = [*RUNS, called(T0, "a", "b", seen=1)]
"""the answer stands at 4"""
WAITS: list[Said] = [*CALLS, result(T0, "a"), waiting(T0, "b")]
"""b waits for a person since 6"""


def note(seen: int) -> UserMessage:
    return UserMessage.text("[Agent stopped: x]").with_turn_id(T0).model_copy(update={"metadata": {READ_UP_TO: seen}})


def warning() -> UserMessage:
    return UserMessage.text("[Warning: x]").with_turn_id(T0).model_copy(update={"metadata": {WARNING: [1]}})


CASES: dict[str, tuple[Sequence[Said], str]] = {
    "an empty session": ([], "rest"),
    "a question": ([asks()], "speak s1.main.1#0 user [1] from None initial"),
    "two questions": ([asks(), asks()], "speak s1.main.1#0 user [1, 2] from None initial"),
    "a question after a loop": (
        [*RUNS, says(T0, "!", seen=1), ended(), asks()],
        "speak s1.main.2#0 user [6] from s1.main.1 default",
    ),
    "a session that another one began": (
        [SessionLinked(parent="p", child="s1", turn_id=FORKED, tool_call_id="c", agent="a"), asks()],
        "speak s1.main.1#0 subAgent [2] from None initial",
    ),
    "imported history": ([asks(), says(None, "!")], "rest"),
    # --- a loop that is open
    "a turn that died before its first word": (RUNS, "speak s1.main.1#0 user [1]"),
    "the same with a warning": ([*RUNS, warning()], "speak s1.main.1#0 user [1]"),
    "a loop that died before its first turn": ([asks(), started()], "speak s1.main.1#0 user [1]"),
    "an answer": ([*RUNS, says(T0, "!", seen=1), ended()], "rest"),
    "an answer that was cut": (
        [*RUNS, says(T0, "h", stop_reason="aborted", seen=1, mark=CUT)],
        "speak s1.main.1#1 user [1]",
    ),
    "an answer that failed for a while": (
        [*RUNS, says(T0, stop_reason="error", seen=1, mark=AGAIN)],
        "speak s1.main.1#1 user [1]",
    ),
    "an answer that failed": ([*RUNS, says(T0, stop_reason="error", seen=1), ended("error")], "rest"),
    "a worker's word that the loop failed": ([*RUNS, says(None, stop_reason="error", seen=1)], "rest"),
    "a question after that": ([*RUNS, says(None, stop_reason="error", seen=1), asks()], "speak s1.main.1#0 user [5]"),
    "open calls": (CALLS, "run a,b of s1.main.1#0"),
    "calls that run": ([*CALLS, tool_started(T0, "a"), tool_started(T0, "b")], "run a,b of s1.main.1#0"),
    "a call that is left": ([*CALLS, result(T0, "a")], "run b of s1.main.1#0"),
    "a question among the calls": ([*CALLS, asks()], "run a,b of s1.main.1#0"),
    "all results": ([*CALLS, result(T0, "a"), result(T0, "b")], "speak s1.main.1#1 continuation [5, 6]"),
    "the next turn, begun": (
        [*CALLS, result(T0, "a"), result(T0, "b"), begun(T1)],
        "speak s1.main.1#1 continuation [5, 6]",
    ),
    "the next turn, cut": (
        [*CALLS, result(T0, "a"), result(T0, "b"), begun(T1), says(T1, stop_reason="aborted", seen=6, mark=CUT)],
        "speak s1.main.1#2 continuation [5, 6]",
    ),
    # --- messages during an answer
    "a question while the model thinks": (
        [*RUNS, asks(), says(T0, "!", seen=1), ended()],
        "speak s1.main.2#0 user [4] from s1.main.1 default",
    ),
    "a question while it thinks of calls": (
        [*RUNS, asks(), called(T0, "a", seen=1), result(T0, "a")],
        "speak s1.main.1#1 continuation [6, 4]",
    ),
    "a follow-up while no loop runs": ([follows_up()], "speak s1.main.1#0 user [1] from None initial"),
    "a follow-up while one runs": (
        [*CALLS, follows_up(), result(T0, "a"), result(T0, "b")],
        "speak s1.main.1#1 continuation [6, 7] holds [5]",
    ),
    "a follow-up and a question": (
        [*CALLS, follows_up(), asks(), result(T0, "a"), result(T0, "b")],
        "speak s1.main.1#1 continuation [7, 8, 6] holds [5]",
    ),
    "the follow-up when the loop is over": (
        [*CALLS, follows_up(), result(T0, "a"), result(T0, "b"), begun(T1), says(T1, "!", seen=7, held=[5]), ended()],
        "speak s1.main.2#0 user [5] from s1.main.1 default",
    ),
    "a follow-up that began the loop which died": (
        [follows_up(), started(), begun(T0), follows_up()],
        "speak s1.main.1#0 user [1] holds [4]",
    ),
    "a follow-up to a turn that was cut": (
        [*RUNS, follows_up(), says(T0, stop_reason="aborted", seen=4, held=[4], mark=CUT)],
        "speak s1.main.1#1 user [1] holds [4]",
    ),
    # --- calls that wait for a person
    "a call that waits": (WAITS, "rest"),
    "a call that waits beside one that runs": ([*CALLS, waiting(T0, "b")], "run a,b of s1.main.1#0"),
    "a call that waits, and a follow-up": ([*WAITS, follows_up()], "rest"),
    "a call that waits, and a question": (
        [*WAITS, asks()],
        "close b of s1.main.1#0: Skipped due to queued user message.",
    ),
    "a call that waits, and a question from before it": (
        [*RUNS, asks(), called(T0, "a", seen=1), waiting(T0, "a")],
        "rest",
    ),
    "an approval": ([*WAITS, Approve(turn_id=T0, tool_call_id="b")], "obey 7"),
    "a call that was approved": ([*WAITS, Approve(turn_id=T0, tool_call_id="b"), answered(7)], "run b of s1.main.1#0"),
    "a call that was denied": ([*WAITS, Deny(turn_id=T0, tool_call_id="b"), answered(7)], "run b of s1.main.1#0"),
    "an approval that was refused": ([*WAITS, Approve(turn_id=T0, tool_call_id="x"), answered(7, "late")], "rest"),
    # --- commands
    "a command to an empty session": ([Pause()], "obey 1"),
    "the oldest of two": ([*RUNS, Resume(), Pause()], "obey 4"),
    "one that cannot be read": ([ExtensionMessage.of("control.sing", {}), asks()], "obey 1"),
    "abort, while nothing runs": ([*RUNS, Abort()], "obey 4"),
    "abort, with calls": ([*CALLS, Abort()], "close a,b of s1.main.1#0: Aborted by the user"),
    "abort behind another command": ([*CALLS, Pause(), Abort()], "close a,b of s1.main.1#0: Aborted by the user"),
    "abort of another loop": ([*CALLS, Abort(loop_id="s1.main.9")], "obey 5"),
    "abort, once the calls are closed": ([*CALLS, Abort(), result(T0, "a"), result(T0, "b")], "obey 5"),
    "abort after the turn": ([*CALLS, Abort(when="turn")], "run a,b of s1.main.1#0"),
    "abort after a turn that waits": ([*WAITS, Abort(when="turn")], "close b of s1.main.1#0: Aborted by the user"),
    "steer, with calls": ([*CALLS, asks(), Steer(position=5)], "obey 6"),
    "steer at once, with calls": (
        [*CALLS, asks(), Steer(position=5, when="now")],
        "close a,b of s1.main.1#0: Skipped due to queued user message.",
    ),
    "steer at once, to nobody": ([*CALLS, Steer(position=1, when="now")], "obey 5"),
    "pause, with calls": ([*CALLS, Pause()], "run a,b of s1.main.1#0"),
    "handoff, with calls": ([*CALLS, Handoff()], "run a,b of s1.main.1#0"),
    "pause, with a call that waits": ([*WAITS, Pause()], "obey 7"),
    "pause, after the turn": ([*CALLS, Pause(), result(T0, "a"), result(T0, "b")], "obey 5"),
    "compact, without a compaction": ([asks(), Compact()], "obey 2"),
    # --- halted, and resumed
    "a question while it is paused": ([Pause(), answered(1), asks()], "rest"),
    "a command while it is paused": ([Pause(), answered(1), asks(), Resume()], "obey 4"),
    "a question once it is resumed": (
        [Pause(), answered(1), asks(), Resume(), answered(4)],
        "speak s1.main.1#0 user [3] from None initial",
    ),
    "a loop that was paused": (
        [*CALLS, result(T0, "a"), result(T0, "b"), ended("paused"), Pause(), answered(8), asks()],
        "rest",
    ),
    "a loop that is resumed": (
        [*CALLS, result(T0, "a"), result(T0, "b"), ended("paused"), asks()],
        "speak s1.main.2#0 continuation [5, 6, 8] from s1.main.1 default",
    ),
    "a loop that is resumed holds what was held": (
        [*CALLS, follows_up(), result(T0, "a"), result(T0, "b"), ended("handoff"), started("s1.main.2")],
        "speak s1.main.2#0 continuation [6, 7] holds [5]",
    ),
    "a loop that was paused before its first answer": (
        [*RUNS, ended("paused")],
        "speak s1.main.2#0 user [1] from s1.main.1 default",
    ),
    "calls of a loop that was paused": ([*WAITS, ended("paused")], "take up b in s1.main.2#0 from s1.main.1 default"),
    "the same, taken up, waits as before": ([*WAITS, ended("paused"), started("s1.main.2"), begun(U0)], "rest"),
    "the same, with a word from before it was taken up": (
        [*WAITS, ended("paused"), Approve(turn_id=T0, tool_call_id="b"), answered(8), started("s1.main.2"), begun(U0)],
        "run b of s1.main.2#0",
    ),
    "the same, with its result": (
        [*WAITS, ended("paused"), started("s1.main.2"), begun(U0), result(U0, "b")],
        "speak s1.main.2#1 continuation [5, 10]",
    ),
    "a loop that ended for a compaction": (
        [*CALLS, result(T0, "a"), result(T0, "b"), ended("contextCompacted"), Compaction(summary="x", first_kept=4)],
        "speak s1.main.2#0 continuation [5, 6] from s1.main.1 compaction",
    ),
    "the same where nothing was kept": (
        [*CALLS, result(T0, "a"), result(T0, "b"), Compaction(summary="x"), ended("contextCompacted")],
        "speak s1.main.2#0 continuation [] from s1.main.1 compaction",
    ),
    # --- forks
    "calls of a loop from before the fork": (
        [asks(), called(FORKED, "a", seen=1)],
        "take up a in s1.main.1#0 from p.main.7 branch",
    ),
    "the same, taken up": ([asks(), called(FORKED, "a", seen=1), started(), begun(T0)], "run a of s1.main.1#0"),
    "the results of such a loop": (
        [asks(), called(FORKED, "a", seen=1), result(FORKED, "a")],
        "speak s1.main.1#0 continuation [3] from p.main.7 branch",
    ),
    # --- ends
    "a note that a limit was reached": ([*RUNS, note(1), ended("maxTurns")], "rest"),
    "a question that the note has not seen": (
        [*RUNS, asks(), note(1), ended("maxTurns")],
        "speak s1.main.2#0 user [4] from s1.main.1 default",
    ),
    "an abort": ([*RUNS, says(T0, stop_reason="aborted", seen=4), ended("aborted")], "rest"),
    "a question behind it": (
        [*RUNS, asks(), Abort(), asks(), says(T0, stop_reason="aborted", seen=5), ended("aborted"), answered(5)],
        "speak s1.main.2#0 user [6] from s1.main.1 default",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_next_step_after_a_log(name: str) -> None:
    messages, step = CASES[name]
    assert in_words(next_decision(view_of(*messages), SETTINGS, 0.0)) == step


def test_the_system_prompt_is_added_after_commands_and_before_everything_else() -> None:
    told = replace(SETTINGS, system="Be brief.")
    assert in_words(next_decision(view_of(asks()), told, 0.0)) == "instruct Be brief."
    assert in_words(next_decision(view_of(asks(), Abort()), told, 0.0)) == "obey 2"
    assert in_words(next_decision(view_of(Pause(), answered(1), asks()), told, 0.0)) == "rest"
    assert in_words(next_decision(view_of(SystemMessage.text("Mine."), asks()), told, 0.0)).startswith("speak")


# --- limits -------------------------------------------------------------------------------------------------------

SPENT = Usage(input=60, cache_read=30, output=10, cost=Cost(total=Decimal("0.5")))
ONE_TURN: list[Said] = [*RUNS, called(T0, "a", seen=1, usage=SPENT), result(T0, "a")]


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        (LoopLimits(turns=2), None),
        (LoopLimits(turns=1), "maxTurns seen 1: turn limit of 1 reached"),
        (LoopLimits(tokens=101), None),
        (LoopLimits(tokens=100), "guardRail seen 1: token limit of 100 reached"),
        (LoopLimits(cost=Decimal("0.51")), None),
        (LoopLimits(cost=Decimal("0.50")), "guardRail seen 1: cost limit of $0.50 reached"),
        (LoopLimits(seconds=8.5), None),
        (LoopLimits(seconds=8.0), "guardRail seen 1: time limit of 8 s reached"),
        (LoopLimits(turns=None), None),
    ],
)
def test_a_loop_at_its_limit_is_stopped(limits: LoopLimits, reached: str | None) -> None:
    step = in_words(next_decision(view_of(*ONE_TURN), replace(SETTINGS, limits=limits), now=10.0))  # begun at 2
    assert step == ("speak s1.main.1#1 continuation [5]" if reached is None else f"stop s1.main.1#0 {reached}")


def test_limits_apply_to_one_loop_whose_prompts_are_not_answered_again() -> None:
    def step(limits: LoopLimits, *said: Said, now: float = 0.0) -> str:
        return in_words(next_decision(view_of(*said), replace(SETTINGS, limits=limits), now))

    log = [*ONE_TURN, begun(T1), says(T1, "!", seen=5), ended(), asks()]
    assert step(LoopLimits(turns=1, tokens=1, seconds=1.0), *log, now=99.0).startswith("speak s1.main.2#0")
    # Begun at 2, with the last entry at 5: it is at least as old as that if the clock is slow.
    assert step(LoopLimits(seconds=3.0), *ONE_TURN).startswith("stop")
    failed = says(T0, stop_reason="error", seen=1, mark=AGAIN)
    stop = "stop s1.main.1#0"
    assert step(LoopLimits(turns=1), *RUNS, failed, asks()) == f"{stop} maxTurns seen 1: turn limit of 1 reached"
    assert step(LoopLimits(seconds=1.0), *RUNS, now=9.0) == f"{stop} guardRail seen 1: time limit of 1 s reached"


# --- compaction ---------------------------------------------------------------------------------------------------


class Always:
    """Always wants to compact."""

    def wants(self, view: SessionSnapshot) -> bool:
        return bool(view.context.messages)

    async def compact(self, run: Run, view: SessionSnapshot, step: CompactContext) -> None:
        del run, view, step


@pytest.mark.parametrize(
    ("messages", "step"),
    [
        ([asks()], "compact before s1.main.1#0"),
        (CALLS, "run a,b of s1.main.1#0"),
        ([*CALLS, result(T0, "a"), result(T0, "b")], "compact in s1.main.1#1"),
        ([*CALLS, Compact()], "run a,b of s1.main.1#0"),
        ([Compact()], "compact before s1.main.1#0"),
    ],
)
def test_the_context_is_compacted_between_turns(messages: list[Said], step: str) -> None:
    compacting = replace(SETTINGS, compaction=Always())
    assert in_words(next_decision(view_of(*messages), compacting, 0.0)) == step


# --- what holds of all --------------------------------------------------------------------------------------------

_WORDS: list[Said] = [message for messages, _ in CASES.values() for message in messages]


@examples(300)
@given(st.lists(st.sampled_from(_WORDS), max_size=14))
def test_a_session_has_work_exactly_if_there_is_a_next_step(messages: list[Said]) -> None:
    view = view_of(*messages)
    step = next_decision(view, SETTINGS, 0.0)
    assert view.loop_state.has_work is not isinstance(step, Idle)
    assert next_decision(view, SETTINGS, 0.0) == step


# --- what one loop leaves to the next ------------------------------------------------------------------------------


def tool_ended(turn_id: TurnId, call: str) -> ToolEnded:
    return ToolEnded(turn_id=turn_id, tool_call_id=call, tool_name="tool", is_error=False)


@tool(name="tool")
def plain() -> None:
    """Do it."""


def test_a_call_with_the_id_of_a_call_before_a_pause_is_another_call() -> None:
    before: list[Said] = [*RUNS, called(T0, "a", seen=1), tool_started(T0, "a"), result(T0, "a"), tool_ended(T0, "a")]
    after: list[Said] = [ended("paused"), started("s1.main.2"), begun(U0), called(U0, "a", seen=7)]
    view = view_of(*before, *after)
    answer = view.loop_state.answer
    assert answer is not None
    assert [decision for _, decision in decide_calls(answer, {"tool": plain}, view.status).values()] == [StartCall(1)]


def test_a_waiting_call_of_a_paused_loop_no_longer_waits_after_an_abort() -> None:
    aborted: list[Said] = [ended("paused"), Abort(), says(T0, stop_reason="aborted", seen=8), answered(8)]
    again: list[Said] = [asks(), started("s1.main.2"), begun(U0)]
    view = view_of(*WAITS, *aborted, *again)
    assert view.status.loop is not None
    assert waiting_calls(view.status.loop) == ()
    # Nor does a call with that id of the next loop's model.
    assert in_words(next_decision(view_of(*WAITS, *aborted, *again, called(U0, "b", seen=11)), SETTINGS, 0.0)) == (
        "run b of s1.main.2#0"
    )


def test_an_approval_under_the_turn_of_a_stopped_loop_is_applied() -> None:
    again: list[Said] = [
        ended("paused"),
        started("s1.main.2"),
        begun(U0),
        waiting(U0, "b"),
        ended("paused", "s1.main.2"),
    ]
    third: list[Said] = [started("s1.main.3"), begun(turn(0, "s1.main.3")), Approve(turn_id=U0, tool_call_id="b")]
    view = view_of(*WAITS, *again, *third)
    assert command_outcome(view, view.status.commands[0]).outcome == "applied"
