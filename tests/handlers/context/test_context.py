"""The fold: entries of the LLM lane become the context that a model sees."""

import dataclasses
from pathlib import Path

import pytest

from lanebus import AssistantMessage, Bus, DecodeFailure, Delta, ExtensionMessage, Lane, SystemMessage, TextBlock
from lanebus.bus.messages import Publishable, ThinkingLevelChange, ToolResultBlock, UserMessage
from lanebus.context import Context, Fault, Misplaced, UnknownTarget, WarmContext, build_context, evolve
from lanebus.errors import ForgedEntry
from lanebus.messages import BranchSummary, Compaction, DeveloperMessage, Label, LeafMove, ModelChange, Prune
from lanebus.providers import to_anthropic
from tests.support.log.entries import ListedSession, asks, calls, context_of, entry, results, says, texts

NONE = "t:No result provided"


def _compacted(summary: str) -> str:
    return (
        "u:The conversation history before this point was compacted into the following summary:\n\n"
        f"<summary>\n{summary}\n</summary>"
    )


def _positions(context: Context) -> list[int]:
    return [envelope.position for envelope in context.path]


def _faults(context: Context) -> list[tuple[int, int]]:
    return [(fault.position, fault.error.target) for fault in context.faults if isinstance(fault.error, UnknownTarget)]


# --- what stands --------------------------------------------------------------------------------------------------


def test_an_empty_session_has_an_empty_context() -> None:
    context = context_of()
    assert (context.position, context.model, context.provider, context.thinking_level) == (0, None, None, None)
    assert not context.messages
    assert not context.path


def test_messages_stand_in_the_order_of_the_log() -> None:
    assert texts(context_of(asks("a"), says("b"), asks("c"))) == ["u:a", "a:b", "u:c"]


def test_failed_and_aborted_answers_stay_in_the_path_and_out_of_the_messages() -> None:
    context = context_of(asks("a"), says("half", stop_reason="aborted"), says("", stop_reason="error"), says("b"))
    assert texts(context) == ["u:a", "a:b"]
    assert _positions(context) == [1, 2, 3, 4]


def test_instructions_are_kept_in_order_and_survive_a_compaction() -> None:
    context = context_of(
        SystemMessage(content=(TextBlock(text="1"),)),
        asks("a"),
        DeveloperMessage(content=(TextBlock(text="2"),)),
        Compaction(summary="S", first_kept=None),
        SystemMessage(content=(TextBlock(text="3"),)),
    )
    assert [message.text_content() for message in context.system] == ["1", "2", "3"]
    assert texts(context) == [_compacted("S")]


def test_a_label_changes_nothing() -> None:
    context = context_of(asks("a"), Label(target=1, label="start"))
    assert texts(context) == ["u:a"]
    assert context.position == 2


# --- model and thinking level -------------------------------------------------------------------------------------


def test_the_last_of_model_changes_and_answers_names_the_model() -> None:
    changed = ModelChange(provider="openai", model="gpt")
    assert context_of(says("a"), changed).model == "gpt"
    assert context_of(changed, says("a")).model == "claude-sonnet-5-5"
    assert context_of(changed, AssistantMessage()).model == "gpt"


def test_the_last_thinking_level_survives_a_compaction() -> None:
    context = context_of(
        ThinkingLevelChange(level="low"), ThinkingLevelChange(level="high"), asks("a"), Compaction(summary="S")
    )
    assert context.thinking_level == "high"


# --- compaction ---------------------------------------------------------------------------------------------------


def test_a_summary_comes_first_then_what_was_kept_then_the_rest() -> None:
    context = context_of(asks("a"), asks("b"), asks("c"), Compaction(summary="S", first_kept=3), asks("d"))
    assert texts(context) == [_compacted("S"), "u:c", "u:d"]
    assert _positions(context) == [4, 3, 5]


def test_only_the_last_compaction_is_shown_though_an_older_one_is_in_what_is_kept() -> None:
    context = context_of(
        asks("a"),
        asks("b"),
        Compaction(summary="S1", first_kept=2),
        asks("c"),
        Compaction(summary="S2", first_kept=1),
        asks("d"),
    )
    assert texts(context) == [_compacted("S2"), "u:a", "u:b", "u:c", "u:d"]


@pytest.mark.parametrize("first_kept", [None, 7, 99])
def test_a_compaction_that_names_no_entry_of_its_path_keeps_nothing(first_kept: int | None) -> None:
    context = context_of(asks("a"), Compaction(summary="S", first_kept=first_kept), asks("b"))
    assert texts(context) == [_compacted("S"), "u:b"]
    assert _faults(context) == ([(2, first_kept)] if first_kept else [])


def test_a_result_whose_call_was_compacted_away_is_left_out() -> None:
    context = context_of(calls("x"), results("x", "r"), Compaction(summary="S", first_kept=2), asks("b"))
    assert texts(context) == [_compacted("S"), "u:b"]


# --- branches -----------------------------------------------------------------------------------------------------


def test_a_leaf_move_leaves_the_entries_after_its_target_out() -> None:
    context = context_of(asks("a"), says("b"), asks("c"), LeafMove(to=2), asks("d"))
    assert texts(context) == ["u:a", "a:b", "u:d"]
    assert _positions(context) == [1, 2, 5]


def test_a_leaf_can_move_back_to_the_branch_it_left() -> None:
    context = context_of(asks("a"), asks("b"), LeafMove(to=1), asks("c"), LeafMove(to=2), asks("d"))
    assert texts(context) == ["u:a", "u:b", "u:d"]


def test_a_move_before_the_first_entry_starts_anew() -> None:
    context = context_of(asks("a"), ModelChange(provider="p", model="m"), LeafMove(), asks("b"))
    assert texts(context) == ["u:b"]
    assert context.model is None


def test_a_move_to_a_move_leads_where_that_one_led() -> None:
    context = context_of(asks("a"), asks("b"), LeafMove(to=1), asks("c"), LeafMove(to=3), asks("d"))
    assert texts(context) == ["u:a", "u:d"]


def test_a_move_before_a_compaction_undoes_it() -> None:
    context = context_of(asks("a"), asks("b"), Compaction(summary="S"), asks("c"), LeafMove(to=2), asks("d"))
    assert texts(context) == ["u:a", "u:b", "u:d"]


@pytest.mark.parametrize("target", [2, 3, 4, 99])
def test_a_move_to_an_unknown_or_later_entry_is_recorded_and_moves_nothing(target: int) -> None:
    # position 2 is of the extension lane, 3 is the move itself
    entries = [entry(1, asks("a")), entry(3, LeafMove(to=target)), entry(4, asks("b"))]
    context = Context("s")
    for envelope in entries:
        context = evolve(context, envelope)
    assert texts(context) == ["u:a", "u:b"]
    assert _faults(context) == [(3, target)]


def test_a_branch_summary_stands_in_its_place_and_an_empty_one_is_skipped() -> None:
    context = context_of(asks("a"), BranchSummary(summary="B"), BranchSummary(summary=""), asks("b"))
    text = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nB</summary>"
    assert texts(context) == ["u:a", f"u:{text}", "u:b"]


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_summary_or_memo_adds_nothing_and_still_covers_entries(blank: str) -> None:
    compacted = context_of(asks("a"), asks("b"), Compaction(summary=blank, first_kept=2), BranchSummary(summary=blank))
    assert texts(compacted) == ["u:b"]
    assert texts(context_of(asks("a"), Compaction(summary=blank), asks("b"))) == ["u:b"]
    assert texts(context_of(asks("a"), asks("b"), Prune(pruned=(1,), memo=blank))) == ["u:b"]


# --- calls and results --------------------------------------------------------------------------------------------


def test_results_follow_their_calls_in_order_regardless_of_arrival() -> None:
    context = context_of(calls("x", "y"), asks("wait"), results("y", "2"), says("hm"), results("x", "1"))
    assert texts(context) == ["a:<x><y>", "t:1", "t:2", "u:wait", "a:hm"]


def test_an_unanswered_call_has_a_placeholder_until_its_result_arrives() -> None:
    before = context_of(asks("a"), calls("x"))
    assert texts(before) == ["u:a", "a:<x>", NONE]
    assert before.messages[2].model_dump()["is_error"] is True
    after = evolve(before, entry(3, results("x", "1")))
    assert texts(after) == ["u:a", "a:<x>", "t:1"]
    assert texts(before) == ["u:a", "a:<x>", NONE]


def test_the_first_of_two_results_counts() -> None:
    assert texts(context_of(calls("x"), results("x", "1"), results("x", "2"))) == ["a:<x>", "t:1"]


def test_a_result_without_a_call_is_left_out() -> None:
    assert texts(context_of(asks("a"), results("x", "1"), says("b"))) == ["u:a", "a:b"]


def test_a_result_that_comes_before_its_call_is_left_out() -> None:
    assert texts(context_of(results("x", "1"), calls("x"))) == ["a:<x>", NONE]


def test_the_results_of_a_failed_answer_are_left_out_too() -> None:
    assert texts(context_of(asks("a"), calls("x", stop_reason="aborted"), results("x", "1"))) == ["u:a"]


def test_an_id_used_again_belongs_to_the_newest_call() -> None:
    context = context_of(calls("x"), calls("x"), results("x", "2"), results("x", "again"))
    assert texts(context) == ["a:<x>", NONE, "a:<x>", "t:2"]


def test_an_id_that_a_failed_answer_used_again_answers_no_older_call() -> None:
    context = context_of(calls("x"), calls("x", stop_reason="error"), results("x", "of the failed one"))
    assert texts(context) == ["a:<x>", NONE]


def test_two_calls_of_one_message_with_one_id_get_their_results_in_turn() -> None:
    assert texts(context_of(calls("x", "x"), results("x", "1"), results("x", "2"))) == ["a:<x><x>", "t:1", "t:2"]


def test_results_inside_a_user_message_stand_like_all_others() -> None:
    answer = UserMessage(
        content=(
            TextBlock(text="and now?"),
            ToolResultBlock(tool_call_id="x", content=(TextBlock(text="1"),)),
            ToolResultBlock(tool_call_id="gone", content=(TextBlock(text="2"),)),
        )
    )
    assert texts(context_of(calls("x"), answer)) == ["a:<x>", "t:1", "u:and now?"]


# --- what is refused ----------------------------------------------------------------------------------------------


def test_an_unreadable_entry_is_recorded_as_a_fault_and_skipped() -> None:
    forged = ForgedEntry("s:llm", "2-0", "not written by the bus")
    unreadable = entry(2, asks("x"))._replace(message=DecodeFailure(forged, b"{}"))
    context = Context("s")
    for envelope in (entry(1, asks("a")), unreadable, entry(3, LeafMove(to=2)), entry(4, says("b"))):
        context = evolve(context, envelope)
    assert texts(context) == ["u:a", "a:b"]
    assert context.faults == (Fault(2, forged),)
    assert to_anthropic(context).warnings == (f"entry 2: {forged}",)


def test_an_entry_forged_below_a_position_is_recorded_once_and_ends_no_reader() -> None:
    forged = entry(1, asks("x"))._replace(message=DecodeFailure(ForgedEntry("s:llm", "1-1", "forged"), b""), delta=1)
    context = evolve(evolve(context_of(asks("a")), forged), forged)
    assert [fault.position for fault in context.faults] == [1]
    assert texts(evolve(context, entry(2, says("b")))) == ["u:a", "a:b"]


def test_no_entry_of_the_extension_lane_gets_into_a_context() -> None:
    with pytest.raises(ForgedEntry):
        evolve(Context("s"), entry(1, ExtensionMessage.of("progress", {"percent": 4})))


def test_an_extension_message_in_the_wrong_lane_is_refused() -> None:
    with pytest.raises(ForgedEntry):
        evolve(Context("s"), entry(1, ExtensionMessage.of("progress"))._replace(lane=Lane.LLM))


def test_a_message_in_the_wrong_lane_is_refused() -> None:
    with pytest.raises(ForgedEntry):
        evolve(Context("s"), entry(1, asks("a"))._replace(lane=Lane.EXTENSION))


def test_a_live_delta_is_refused() -> None:
    delta = entry(1, asks("a"))._replace(message=Delta(kind="text", message_id="m", delta="a"), delta=1)
    with pytest.raises(Misplaced):
        evolve(Context("s"), delta)


@pytest.mark.parametrize("again", [1, 2])
def test_an_entry_is_folded_in_once(again: int) -> None:
    with pytest.raises(Misplaced):
        evolve(context_of(asks("a"), asks("b")), entry(again, asks("c")))


def test_an_entry_of_another_session_is_refused() -> None:
    with pytest.raises(Misplaced):
        evolve(Context("s"), entry(1, asks("a"), session="other"))


def test_a_context_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        context_of(asks("a")).model = "other"  # type: ignore[misc]  # the point


# --- from a session -----------------------------------------------------------------------------------------------


async def test_a_context_is_built_as_of_any_position() -> None:
    said: list[Publishable] = [asks("a"), ExtensionMessage.of("progress"), says("b"), LeafMove(to=1), asks("c")]
    session = ListedSession(*said)
    assert texts(await build_context(session, at=3)) == ["u:a", "a:b"]
    now = await build_context(session)
    assert texts(now) == ["u:a", "u:c"]
    assert now.position == 5


async def test_a_warm_context_reads_only_what_is_new() -> None:
    session = ListedSession(*(asks(str(number)) for number in range(20)))
    warm = WarmContext(session)
    first = await warm.refresh()
    session.entries.append(entry(21, says("b")))
    second = await warm.refresh()
    assert session.given == 21
    assert len(first.messages) == 20
    assert second == await build_context(session)


async def test_a_context_comes_out_of_a_real_log_as_it_went_in(tmp_path: Path) -> None:
    progress = ExtensionMessage.of("progress")
    said: list[Publishable] = [ModelChange(provider="anthropic", model="m"), asks("a"), progress, calls("x")]
    later: list[Publishable] = [results("x", "1"), progress, Compaction(summary="S", first_kept=2), says("b")]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        warm = WarmContext(session)
        await session.publish(*said)
        before = await warm.refresh()
        await session.publish(*later)
        assert texts(before) == ["u:a", "a:<x>", NONE]
        assert await warm.refresh() == await build_context(session)
        assert texts(warm.context) == [_compacted("S"), "u:a", "a:<x>", "t:1", "a:b"]
        assert warm.context.position == 8
        assert await build_context(session, at=4) == before
