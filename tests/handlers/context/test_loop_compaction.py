"""Compaction blocks of loops, and answers that are of no use to a request."""

from collections.abc import Sequence

from lanebus import TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.context import BY_BYTES, TokenEstimator, loops_of
from lanebus.handlers.context.cutting import head_and_tail
from lanebus.handlers.context.fold import without_empty_answers, without_unusable_end
from lanebus.handlers.context.loop_compaction import BlockSettings, block_of, blocks_of, one_line_each, turns_of
from lanebus.messages import AssistantMessage, CompactionBlock, LlmMessage, SystemMessage, ThinkingBlock, TurnId
from tests.support.log.entries import asks, calls, results, says

__all__ = ()

CREATED = "2026-03-01T10:00:00Z"


def turn(number: int, *messages: LlmMessage, loop: str = "s.main.1") -> list[LlmMessage]:
    return [message.with_turn_id(TurnId(loop_id=loop, turn_index=number)) for message in messages]


def loop_of(turns: int, *, loop: str = "s.main.1") -> list[LlmMessage]:
    return [said for number in range(turns) for said in turn(number, asks(f"q{number}"), says(f"a{number}"), loop=loop)]


def bounds(block: CompactionBlock) -> list[tuple[int, int] | None]:
    sections = (block.keep_compacted, block.keep_recent)
    ranges = [block.keep_first, *(section.range if section else None for section in sections)]
    return [(of.start_turn, of.end_turn) if of else None for of in ranges]


def lines(*messages: LlmMessage, tokens: int = 1000) -> list[str]:
    return [message.text_content() for message in one_line_each(messages, tokens, BY_BYTES)]


# --- turns --------------------------------------------------------------------------------------------------------


def test_messages_of_one_turn_stand_together_and_unstamped_ones_alone() -> None:
    said = [asks("old"), says("old"), *turn(2, asks("a"), says("b")), *turn(3, asks("c"))]
    assert [(one.number, len(one.messages)) for one in turns_of(said)] == [(0, 1), (1, 1), (2, 2), (3, 1)]


def test_loops_are_taken_apart_in_their_order() -> None:
    said = [asks("before"), *loop_of(1, loop="b"), *loop_of(1, loop="a"), *turn(1, asks("late"), loop="b")]
    assert {loop: len(messages) for loop, messages in loops_of(said).items()} == {"b": 3, "a": 2}
    assert list(loops_of(said)) == ["b", "a"]


# --- blocks -------------------------------------------------------------------------------------------------------


def test_a_loop_is_its_first_turns_a_summary_of_the_middle_and_its_recent_turns() -> None:
    settings = BlockSettings(keep_first=2, keep_recent=3)
    assert bounds(block_of(loop_of(8), settings, is_latest=True)) == [(0, 1), (2, 4), (5, 7)]
    assert bounds(block_of(loop_of(8), settings, is_latest=False)) == [None, (0, 7), None]


def test_no_turn_is_kept_twice() -> None:
    settings = BlockSettings(keep_first=2, keep_recent=10)
    assert bounds(block_of(loop_of(5), settings, is_latest=True)) == [(0, 1), None, (2, 4)]
    assert bounds(block_of(loop_of(1), settings, is_latest=True)) == [(0, 0), None, None]
    assert bounds(block_of([], settings, is_latest=True)) == [None, None, None]


def test_instructions_are_in_no_block() -> None:
    said = [*turn(0, SystemMessage(content=(TextBlock(text="be brief"),))), *loop_of(1)]
    block = block_of(said, BlockSettings(keep_first=0), is_latest=True)
    assert [type(message) for message in block.messages] == [UserMessage, AssistantMessage]


def test_long_outputs_of_recent_tools_are_cut_and_nothing_else_is() -> None:
    long = "\n".join(map(str, range(200)))
    said = turn(
        0, asks(long), calls("x"), ToolResultMessage(tool_call_id="x", content=(TextBlock(text=long),), structured=[1])
    )
    _, call, result = block_of(said, BlockSettings(keep_first=0, tool_lines=4), is_latest=True).messages
    assert call == said[1]
    assert isinstance(result, ToolResultMessage)
    assert result.text_content() == "0\n1\n\n[... 196 lines truncated ...]\n\n198\n199"
    assert (result.structured, result.turn_id) == (None, said[2].turn_id)


def test_the_latest_loop_and_those_in_scope_get_blocks_but_none_a_second() -> None:
    loops = {name: loop_of(4, loop=name) for name in "abcd"}
    size = sum(map(BY_BYTES.message, loops["a"]))
    assert list(blocks_of(loops, BlockSettings(scope=1))) == ["c", "d"]
    assert list(blocks_of(loops, BlockSettings(scope=9))) == ["a", "b", "c", "d"]
    assert list(blocks_of(loops, BlockSettings(scope=9), known=["b", "d"])) == ["a", "c", "d"]
    assert list(blocks_of(loops, BlockSettings(scope="tokens", window_tokens=2 * size))) == ["b", "c", "d"]
    assert list(blocks_of(loops, BlockSettings(scope="tokens", window_tokens=size - 1))) == ["d"]
    assert blocks_of({}, BlockSettings()) == {}


def test_another_summarizer_can_be_passed() -> None:
    def in_short(messages: Sequence[LlmMessage], tokens: int, estimator: TokenEstimator) -> list[LlmMessage]:
        return [asks(f"{len(messages)} in {tokens} of {estimator.text('1234')}")]

    block = block_of(loop_of(3), BlockSettings(), is_latest=False, created_at=CREATED, summarize=in_short)
    assert [message.text_content() for message in block.messages] == ["6 in 2000 of 1"]
    assert block.created_at == CREATED


# --- lines --------------------------------------------------------------------------------------------------------


def test_each_answer_becomes_one_line() -> None:
    calling = AssistantMessage(content=(ToolCallBlock(id="1", name="x"), ToolCallBlock(id="2", name="x")))
    long = says("x" * 201)
    assert lines(asks("q"), says("short", "too"), calling, long) == [
        "[Summary] short too",
        "[Summary] [Assistant used 2 tool(s)]",
        "[Summary] [Assistant response]",
    ]


def test_messages_that_do_not_fit_are_counted() -> None:
    said = [asks("q"), says("1234"), asks("q"), says("5678"), results("x", "r")]
    assert lines(*said, tokens=5) == ["[Summary] 1234", "[Context compacted: 3 messages removed to fit context window]"]
    assert lines(asks("q")) == ["[Context compacted: 1 messages removed to fit context window]"]


def test_a_text_is_cut_in_its_middle_only_where_it_is_too_long() -> None:
    assert head_and_tail("a\nb\nc", 3) == "a\nb\nc"
    assert head_and_tail("a\nb\nc\nd\ne", 3) == "a\n\n[... 2 lines truncated ...]\n\nd\ne"
    assert head_and_tail("a\nb", 0) == "\n\n[... 2 lines truncated ...]\n\n"


# --- answers of no use --------------------------------------------------------------------------------------------


def test_answers_at_the_end_that_no_model_can_continue_from_are_left_out() -> None:
    good = [asks("q"), says("a")]
    for bad in (says(" "), calls("x"), says("half", stop_reason="length"), AssistantMessage()):
        assert without_unusable_end([*good, bad, bad]) == tuple(good)
        assert without_unusable_end([bad, *good]) == (bad, *good)
    assert without_unusable_end([calls("x")]) == ()


def test_empty_answers_are_left_out_wherever_they_stand() -> None:
    thinking = AssistantMessage(content=(ThinkingBlock(text="hm"),))
    said = [says(""), asks(""), thinking, calls("x"), AssistantMessage(), says("a")]
    assert without_empty_answers(said) == (asks(""), thinking, said[3], said[5])
