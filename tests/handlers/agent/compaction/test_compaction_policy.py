"""When a context is compacted, and where it is cut. Pure: given a log, then a decision."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lanebus.agent import CompactionPolicy
from lanebus.handlers.agent import FOLLOW_UP
from lanebus.handlers.agent.compaction import find_cut, wants_compaction
from lanebus.handlers.agent.metadata_keys import CUT
from lanebus.handlers.agent.turn.loop_state import LoopState, SessionSnapshot
from lanebus.handlers.context import DEFERRED, READ_UP_TO, Context
from lanebus.handlers.projections import Status
from lanebus.messages import AssistantMessage, Compaction, Prune, Publishable, TurnId, Usage
from lanebus.providers import to_anthropic
from tests.support.agent.agents import ScriptedModel
from tests.support.log.entries import asks, calls, context_of, results, says

__all__ = ()

TURN = TurnId(loop_id="s.main.1", turn_index=0)
POLICY = CompactionPolicy(window=1_000, reserve=100, keep_recent=200)
LONG = "word " * 200
TOO_LONG = "prompt is too long: 2000 tokens > 1000 maximum"


def full(tokens: int = 950, **fields: object) -> AssistantMessage:
    """An answer for which the provider counted this many tokens."""
    return says("a").model_copy(update={"usage": Usage(input=tokens), **fields})


def view(*messages: Publishable, failed: int = 0) -> SessionSnapshot:
    return SessionSnapshot(context_of(*messages), Status(compactions_failed=failed))


def wants(*messages: Publishable, policy: CompactionPolicy = POLICY, failed: int = 0) -> bool:
    return wants_compaction(view(*messages, failed=failed), policy)


def state_of(context: Context) -> LoopState:
    return SessionSnapshot(context, Status()).loop_state


def cut(*messages: Publishable, policy: CompactionPolicy = POLICY) -> int | None:
    context = context_of(*messages)
    return find_cut(context, state_of(context), policy)


def test_a_context_that_grows_into_the_reserve_is_compacted() -> None:
    assert not wants(asks(LONG), full(900), asks("x"), policy=CompactionPolicy(window=1_100, reserve=100))
    assert wants(asks(LONG), full(950), asks("x"))
    assert wants(asks(LONG), full(880), asks(LONG))  # messages after the answer count too


def test_at_most_half_of_a_small_window_is_reserved() -> None:
    policy = CompactionPolicy(window=1_000)
    assert not wants(asks(LONG), full(400), asks("x"), policy=policy)
    assert wants(asks(LONG), full(500), asks("x"), policy=policy)


def test_with_an_unknown_window_only_a_refused_request_is_compacted() -> None:
    policy = CompactionPolicy(keep_recent=200)
    assert not wants(asks(LONG), full(10**6), asks("x"), policy=policy)
    refused = says(stop_reason="error").model_copy(update={"error_message": TOO_LONG, "metadata": {CUT: True}})
    assert wants(asks(LONG), full(950), asks("x"), refused, policy=policy)


def test_a_policy_without_a_window_uses_that_of_the_model() -> None:
    model = ScriptedModel()
    assert CompactionPolicy().of(model).window is None
    model.context_window = 7
    assert CompactionPolicy().of(model) == CompactionPolicy(window=7, model=model)
    assert CompactionPolicy(window=5).of(model).window == 5


def test_open_calls_end_before_a_compaction() -> None:
    called = calls("c").model_copy(update={"turn_id": TURN, "usage": Usage(input=2_000)})
    assert not wants(asks(LONG), says(LONG), asks("x"), called)
    assert wants(asks(LONG), says(LONG), asks("x"), called, results("c", "r"))


def test_a_context_is_not_compacted_twice_without_an_answer_between() -> None:
    before = (asks(LONG), says(LONG), asks(LONG * 9), Compaction(summary="S", first_kept=3))
    assert not wants(*before)
    assert wants(*before, full(), asks("x"))


def test_a_compaction_is_not_attempted_after_the_last_attempt() -> None:
    assert wants(asks(LONG), full(), asks("x"), failed=2)
    assert not wants(asks(LONG), full(), asks("x"), failed=3)


def test_an_undone_compaction_is_repeated_only_if_the_provider_refuses() -> None:
    undone = (asks(LONG), full(), asks("x"), Compaction(summary="S", first_kept=3), Prune(pruned=(4,)), full())
    assert not wants(*undone, asks("y"))
    refused = says(stop_reason="error").model_copy(update={"error_message": TOO_LONG})
    assert wants(*undone, asks("y"), refused)
    assert wants(*undone, Compaction(summary="T", first_kept=3), full(), asks("z"))


def test_a_single_message_is_not_compacted() -> None:
    assert cut(asks(LONG)) is None
    assert not wants(asks(LONG * 9))


def test_never_more_than_half_is_kept_and_never_less_than_the_last_message() -> None:
    assert cut(asks("1"), says("2"), asks("3"), says("4")) == 3
    assert cut(asks(LONG), says("2"), asks(LONG * 9)) == 3


def test_unanswered_messages_stay() -> None:
    assert cut(asks("1"), says("2"), asks("3"), asks(LONG), asks(LONG * 3)) == 3


def test_a_message_during_an_answer_stays() -> None:
    thought = says(LONG * 3).model_copy(update={"metadata": {READ_UP_TO: 3}, "turn_id": TURN})
    assert cut(asks(LONG), says(LONG), asks("3"), asks("meanwhile"), thought) == 4


def test_a_waiting_follow_up_stays_and_an_answered_one_need_not() -> None:
    later = asks("later").model_copy(update={"metadata": {FOLLOW_UP: True}})
    told = says(LONG * 3).model_copy(update={"metadata": {READ_UP_TO: 4, DEFERRED: [4]}, "turn_id": TURN})
    assert cut(asks(LONG), says(LONG), asks("3"), later, told) == 4
    answered = says(LONG * 3).model_copy(update={"metadata": {READ_UP_TO: 5}, "turn_id": TURN})
    assert cut(asks(LONG), says(LONG), asks("3"), later, told, answered) == 6


def test_an_answer_that_is_continued_stays_with_its_results() -> None:
    called = calls("c").model_copy(update={"turn_id": TURN, "metadata": {READ_UP_TO: 3}})
    assert cut(asks(LONG), says(LONG), asks("3"), called, results("c", LONG * 3)) == 4


def test_a_user_message_between_a_call_and_its_result_does_not_separate_them() -> None:
    called = calls("c").model_copy(update={"turn_id": TURN})
    said = (asks(LONG), called, asks("meanwhile"), results("c", "r"), says("5"), asks("x"))
    # By its size alone the cut would come before the second user.
    assert cut(*said, policy=CompactionPolicy(keep_recent=27)) == 5
    assert cut(*said, policy=CompactionPolicy(keep_recent=99)) == 2


def test_a_failed_answer_alone_is_not_compacted() -> None:
    assert cut(says("half", stop_reason="error"), asks("x")) is None


_SAID = st.sampled_from(("ask", "say", "call", "result", "fail", "compact"))


@given(st.lists(_SAID, max_size=30), st.integers(0, 60))
def test_a_cut_separates_no_call_from_its_result_and_keeps_unanswered_messages(said: Sequence[str], keep: int) -> None:
    entries = [_entry(word, number) for number, word in enumerate(said, 1)]
    context = context_of(*entries)
    before = state_of(context)
    if before.answer is not None and before.answer.open_calls:
        return
    kept = find_cut(context, before, CompactionPolicy(window=1_000, reserve=100, keep_recent=keep))
    if kept is None:
        return
    after = context_of(*entries, Compaction(summary="S", first_kept=kept))
    assert len(after.messages) <= len(context.messages) + 1
    assert state_of(after).prompts == before.prompts
    assert [*after.messages][1:] == [*context.messages][len(context.messages) - len(after.messages) + 1 :]
    orphans = {f"c{at}" for at, word in enumerate(said, 1) if word == "call" and at < kept <= at + 1}
    assert not any(f"c{at}" in orphans and word == "result" for at, word in enumerate(said))
    to_anthropic(after, model="claude-sonnet-5-5")


def _entry(word: str, number: int) -> Publishable:
    turn = TurnId(loop_id="s.main.1", turn_index=number)
    match word:
        case "ask":
            return asks(f"ask {number}")
        case "say":
            return says(f"say {number}").with_turn_id(turn)
        case "fail":
            return says("half", stop_reason="error").with_turn_id(turn)
        case "call":
            return calls(f"c{number}").with_turn_id(turn)
        case "result":
            return results(f"c{number - 1}", "r")
        case _:
            return Compaction(summary=f"S{number}", first_kept=max(1, number - 2))
