"""The size of a context, when it is too large, and where it can be cut."""

import json
from pathlib import Path

import pytest

from lanebus import LlmMessage, MediaRef, SystemMessage, TextBlock, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.bus.messages import AssistantMessage, ImageBlock, RedactedThinkingBlock, ThinkingBlock, ToolResultBlock
from lanebus.context import BY_BYTES, BY_CHARACTERS, HeadroomTrigger, ReserveTrigger, build_context, usage_tokens
from lanebus.handlers.context import branch_message, context_tokens, first_to_keep
from lanebus.handlers.formats import PI
from lanebus.handlers.formats.importer import ListedTranscript
from lanebus.messages import AudioBlock, Block, BranchSummary, Compaction, DocumentBlock, ErrorBlock, ModelChange, Prune
from tests.support.log.entries import asks, calls, context_of, results, says

__all__ = ()


def counted(tokens: int, text: str = "a") -> AssistantMessage:
    return AssistantMessage(content=(TextBlock(text=text),), usage=Usage(input=tokens))


def image(size_bytes: int) -> Block:
    return ImageBlock(media=MediaRef(kind="url", url="https://example.com/a", size_bytes=size_bytes))


# --- one message --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (asks(""), 4),
        (asks("12345"), 4 + 2),
        (asks("ééé"), 4 + 2),  # six bytes
        (UserMessage(content=(image(0),)), 4 + 85),
        (UserMessage(content=(image(750 * 100),)), 4 + 100),
        (UserMessage(content=(image(10**9),)), 4 + 16_000),
        (UserMessage(content=(ImageBlock(media=MediaRef.from_bytes(b"\xff" * 75_000)),)), 4 + 100),
        (UserMessage(content=(AudioBlock(media=MediaRef.from_url("https://example.com/a")),)), 4 + 85),
        (UserMessage(content=(DocumentBlock(media=MediaRef.from_url("https://example.com/a"), text="1234"),)), 4 + 1),
        (AssistantMessage(content=(ThinkingBlock(text="1234"), RedactedThinkingBlock(data="1234"))), 4 + 2),
        (AssistantMessage(content=(ToolCallBlock(id="x", name="read", arguments={"a": 1}),)), 4 + 8 + 1 + 2),
        (ToolResultMessage(tool_call_id="x", tool_name="read", content=(TextBlock(text="1234"),)), 8 + 1 + 1),
        (
            UserMessage(content=(ToolResultBlock(tool_call_id="x", content=(image(0), TextBlock(text="1"))),)),
            4 + 8 + 86,
        ),
        (UserMessage(content=(ErrorBlock(message="1234"),)), 4 + 1),
        (ToolResultMessage(tool_call_id="x", structured={"a": 1}), 8 + 2),
        (ToolResultMessage(tool_call_id="x", structured={"a": 1}, content=(TextBlock(text="1"),)), 8 + 1),
        (UserMessage(content=(ToolResultBlock(tool_call_id="x", structured=[1, 2]),)), 4 + 8 + 2),
    ],
)
def test_seed_001_counts_bytes_and_what_goes_around_them(message: LlmMessage, tokens: int) -> None:
    assert BY_BYTES.message(message) == tokens


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (asks(""), 1),
        (asks("1234567"), 1),
        (asks("12345678"), 2),
        (UserMessage(content=(image(10**9), TextBlock(text="1234"))), 1201),
        (AssistantMessage(content=(ToolCallBlock(id="x", name="read", arguments={"a": 1}),)), 2),
        (ToolResultMessage(tool_call_id="x", structured="123456"), 2),
    ],
)
def test_seed_000_counts_characters_and_at_least_one_token(message: LlmMessage, tokens: int) -> None:
    assert BY_CHARACTERS.message(message) == tokens
    assert BY_CHARACTERS.text("12345678") == 2
    assert BY_CHARACTERS.text("") == 1


# --- a context ----------------------------------------------------------------------------------------------------


def test_the_usage_is_the_size_of_the_context_with_or_without_cached_tokens() -> None:
    usage = Usage(input=100, output=50, cache_read=20, cache_write=10, reasoning=40, total_tokens=7)
    assert usage_tokens(usage) == 180
    assert usage_tokens(usage, cached=False) == 150


def test_messages_after_the_last_count_are_estimated() -> None:
    context = context_of(asks("a"), counted(100), asks("12345"), BranchSummary(summary="S"), asks("b"))
    told = branch_message(BranchSummary(summary="S"))
    assert told is not None
    assert context_tokens(context) == 100 + 6 + BY_BYTES.message(told) + 5


def test_failed_answers_and_answers_without_usage_are_no_count() -> None:
    failed = AssistantMessage(usage=Usage(input=999), stop_reason="error")
    assert context_tokens(context_of(counted(100), failed, counted(0, "1234"), asks("a"))) == 100 + 5 + 5


def test_without_a_count_everything_is_estimated_instructions_too() -> None:
    context = context_of(
        SystemMessage(content=(TextBlock(text="1234"),)), asks("1234"), ModelChange(provider="p", model="m")
    )
    assert context_tokens(context) == 10
    assert context_tokens(context, BY_CHARACTERS) == 2


@pytest.mark.parametrize("overlay", [Compaction(summary="S", first_kept=2), Prune(pruned=(1,))])
def test_a_count_from_before_a_compaction_is_ignored(overlay: Compaction | Prune) -> None:
    context = context_of(asks("1"), counted(90_000), overlay, asks("2"))
    assert context_tokens(context) == sum(map(BY_BYTES.message, context.messages)) < 100
    assert context_tokens(context_of(asks("1"), counted(90_000), overlay, counted(50), asks("2"))) == 55


# --- too large ----------------------------------------------------------------------------------------------------


def test_a_reserve_is_kept_for_the_answer() -> None:
    trigger = ReserveTrigger(window=100_000)
    assert (trigger.fires(91_808), trigger.fires(91_809)) == (False, True)
    assert not ReserveTrigger(window=1, is_enabled=False).fires(10**9)


def test_headroom_is_a_part_of_the_window() -> None:
    trigger = HeadroomTrigger()
    assert (trigger.fires(80_000), trigger.fires(82_000)) == (False, True)


def test_about_so_many_tokens_stay_at_the_end() -> None:
    context = context_of(asks("1"), says("2"), asks("3"), says("4"))  # five tokens each
    assert [first_to_keep(context, tokens) for tokens in (1, 5, 6, 10, 11, 20, 99)] == [4, 4, 3, 3, 2, 1, 1]


def test_a_cut_never_comes_between_a_call_and_its_result() -> None:
    turns = (asks("1"), calls("x", "y"), results("x", "r"), results("y", "r"))
    assert first_to_keep(context_of(*turns, says("done")), 10) == 5  # forward, over the results
    assert first_to_keep(context_of(*turns), 10) == 2  # nothing follows: back to their calls
    assert first_to_keep(context_of(results("x", "r")), 10) is None
    assert first_to_keep(context_of()) is None


def test_entries_that_were_compacted_are_not_kept_again() -> None:
    context = context_of(asks("1"), asks("2"), Compaction(summary="S", first_kept=2), asks("3"))
    assert first_to_keep(context, 10**6) == 2


async def test_a_real_session_is_as_large_as_its_last_answer_says(seed_data: Path) -> None:
    with (seed_data / "data" / "pi-session.jsonl").open() as file:
        transcript = ListedTranscript(map(json.loads, file), PI)
    assert transcript.bad == ()
    context = await build_context(transcript)
    size = context_tokens(context)
    assert 10_000 < size < 200_000
    kept = first_to_keep(context)
    assert kept is not None
    (at,) = (index for index, stood in enumerate(context.path) if stood.position == kept)
    rest = sum(BY_BYTES.message(stood.message) for stood in context.path[at:] if isinstance(stood.message, LlmMessage))
    assert rest < 40_000
