"""Compaction blocks of loops, and answers that are of no use to a request."""

from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from lanebus import LlmMessage, SystemMessage, TextBlock, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages import CompactedSection, Compaction, CompactionBlock, Label, LeafMove, parse_json, read_llm
from lanebus.context import BY_BYTES, TokenEstimator, UnknownTarget, loops_of
from lanebus.errors import DecodeError
from lanebus.handlers.context.loop_compaction import (
    BlockSettings,
    block_of,
    blocks_of,
    head_and_tail,
    one_line_each,
    read_block,
    turns_of,
    write_block,
)
from lanebus.messages import AssistantMessage, LoopCompaction, Prune, Publishable, TurnId, TurnRange
from tests.support.log.entries import asks, calls, context_of, folded, log, results, says, texts

__all__ = ()

CREATED = "2026-03-01T10:00:00.123456789Z"


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


# --- overlays ------------------------------------------------------------------------------------------------------


def section(first: int, last: int, *messages: LlmMessage) -> CompactedSection:
    return CompactedSection.model_validate({"range": TurnRange(start_turn=first, end_turn=last), "messages": messages})


def told(
    *, first: int | None = None, between: CompactedSection | None = None, recent: CompactedSection | None = None
) -> LoopCompaction:
    kept = None if first is None else TurnRange(start_turn=0, end_turn=first)
    block = CompactionBlock(keep_first=kept, keep_compacted=between, keep_recent=recent, created_at=CREATED)
    return LoopCompaction(loop_id="s.main.1", block=block)


# --- a loop told shorter ------------------------------------------------------------------------------------------


S = asks("S")
ALL_TOLD = told(first=0, between=section(1, 2, S), recent=section(3, 3, asks("q3"), says("a3, cut")))
CALLED = turn(0, asks("q"), calls("x"))
RESULT = turn(0, results("x", "r"))
OVERLAYS: dict[str, tuple[Sequence[Publishable], list[str]]] = {
    "first turns, a summary and recent turns": (
        [*loop_of(4), ALL_TOLD, asks("next")],
        ["u:q0", "a:a0", "u:S", "u:q3", "a:a3, cut", "u:next"],
    ),
    "an earlier loop is replaced in its place": (
        [asks("before"), *loop_of(2), *loop_of(1, loop="s.main.2"), told(between=section(0, 1, S))],
        ["u:before", "u:S", "u:q0", "a:a0"],
    ),
    "messages after the compaction stay": (
        [*loop_of(2), told(between=section(0, 1, S)), *turn(1, says("late")), *turn(2, asks("q2"))],
        ["u:S", "a:late", "u:q2"],
    ),
    "the last block may show what an older one hid": (
        [*loop_of(3), told(between=section(0, 2, asks("S1"))), told(first=1, between=section(2, 2, S))],
        ["u:q0", "a:a0", "u:q1", "a:a1", "u:S"],
    ),
    "a block of a loop on another branch": (
        [*loop_of(1), LeafMove(to=None), asks("anew"), told(between=section(0, 0, S))],
        ["u:anew"],
    ),
    "a result is left out whose call was compacted": ([*CALLED, told(between=section(0, 0, S)), *RESULT], ["u:S"]),
    "a repeated call gets a later result": (
        [*CALLED, told(recent=section(0, 0, asks("q"), calls("x"))), *RESULT],
        ["u:q", "a:<x>", "t:r"],
    ),
    # --- pruned entries
    "a memo stands for the first pruned entry": (
        [asks("a"), asks("b"), asks("c"), asks("d"), Prune(pruned=(2, 4), memo="tried b"), asks("e")],
        ["u:a", "u:[Pruned context summary: tried b]", "u:c", "u:e"],
    ),
    "without a memo it leaves no trace": ([asks("a"), asks("b"), Prune(pruned=(1,))], ["u:b"]),
    "a call takes its result with it": ([asks("a"), calls("x"), results("x", "r"), Prune(pruned=(2,))], ["u:a"]),
    "entries after it are not covered": ([asks("a"), Prune(pruned=(1, 3)), asks("c")], ["u:c"]),
    "a branch without the prune has everything": (
        [asks("a"), asks("b"), Prune(pruned=(1,)), LeafMove(to=2), Label(target=1, label="x")],
        ["u:a", "u:b"],
    ),
}


@pytest.mark.parametrize("case", OVERLAYS)
def test_what_a_model_reads_of_compacted_loops_and_pruned_entries(case: str) -> None:
    entries, shown = OVERLAYS[case]
    assert texts(context_of(*entries)) == shown


def test_a_block_of_a_loop_that_was_compacted_as_a_whole_has_no_effect() -> None:
    context = context_of(*loop_of(1), Compaction(summary="all"), told(between=section(0, 0, S)))
    assert texts(context)[1:] == []


def test_instructions_survive_the_compaction_of_their_loop() -> None:
    instruction = turn(0, SystemMessage(content=(TextBlock(text="be brief"),)))
    context = context_of(*instruction, *loop_of(1), told(between=section(0, 0, asks("S"))))
    assert [message.text_content() for message in context.system] == ["be brief"]
    assert texts(context) == ["u:S"]


def test_a_context_from_before_an_overlay_shows_everything() -> None:
    entries = log(*loop_of(3), told(between=section(0, 2, asks("S"))))
    assert texts(folded(entries[:-1])) == ["u:q0", "a:a0", "u:q1", "a:a1", "u:q2", "a:a2"]
    assert texts(folded(entries)) == ["u:S"]
    assert list(folded(entries).entries) == entries


# --- pruned entries -----------------------------------------------------------------------------------------------


def test_a_prune_with_an_unknown_entry_prunes_the_others_and_is_a_fault() -> None:
    context = context_of(asks("a"), asks("b"), Prune(pruned=(1, 9)))
    assert texts(context) == ["u:b"]
    (fault,) = context.faults
    assert isinstance(fault.error, UnknownTarget)
    assert (fault.position, fault.error.target) == (3, 9)


# --- the JSON of a block ------------------------------------------------------------------------------------------

BLOCK: dict[str, JsonValue] = {
    "keep_first": {"startTurn": 0, "endTurn": 1},
    "keep_recent": {
        "range": {"startTurn": 15, "endTurn": 19},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}], "timestamp": 1},
            {
                "role": "toolResult",
                "toolCallId": "t",
                "toolName": "bash",
                "content": [],
                "isError": False,
                "timestamp": 2,
                "turnId": {"loopId": "s.main.1", "turnIndex": 15},
            },
        ],
    },
    "keep_compacted": {
        "range": {"startTurn": 2, "endTurn": 14},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "[Summary] a"}], "timestamp": 3}],
    },
    "createdAt": CREATED,
}


def test_the_block_of_seed_001_is_read_written_and_stored_in_the_same_form() -> None:
    block, left_out = read_block(BLOCK)
    assert left_out == ()
    assert write_block(block) == BLOCK
    entry = LoopCompaction(loop_id="s.main.1", block=block)
    assert read_llm(entry.to_json()) == entry
    stored = parse_json(entry.to_json())
    assert isinstance(stored, dict)
    assert stored["block"] == BLOCK


def test_extensions_that_a_section_copied_are_left_out_and_named() -> None:
    copied: JsonValue = {"role": "extension", "kind": "note", "data": None}
    block, left_out = read_block(
        {"keep_recent": {"range": {"startTurn": 0, "endTurn": 0}, "messages": [copied]}, "createdAt": CREATED}
    )
    assert left_out == ("keep_recent.messages.0",)
    assert block.messages == ()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], ""),
        ({}, "createdAt"),
        ({"createdAt": "yesterday"}, "createdAt"),
        ({"createdAt": CREATED, "keep_first": {"startTurn": 2, "endTurn": 1}}, "keep_first"),
        ({"createdAt": CREATED, "keep_first": {"startTurn": -1, "endTurn": 1}}, "keep_first.startTurn"),
        ({"createdAt": CREATED, "keep_recent": {"messages": []}}, "keep_recent.range"),
        ({"createdAt": CREATED, "keep_recent": []}, "keep_recent"),
        ({"createdAt": CREATED, "keep_compacted": {"messages": [{"role": "user"}, 5]}}, "keep_compacted.messages.1"),
        (
            {"createdAt": CREATED, "keep_compacted": {"messages": [{"role": "user", "content": [{"type": "text"}]}]}},
            "keep_compacted.messages.0.content.0.text",
        ),
        ({"createdAt": CREATED, "keep_compacted": {"messages": [{"role": "narrator"}]}}, "keep_compacted.messages.0"),
        ({"createdAt": CREATED, "keep_last": None, "x": 1}, "x"),
    ],
)
def test_a_malformed_block_is_refused_with_the_path_to_its_fault(value: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_block(value)
    assert caught.value.path == path
