"""The text of messages and tool results, and its separation from reasoning."""

import time

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import (
    Block,
    ImageBlock,
    MediaRef,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.messages import split_reasoning

IMAGE = ImageBlock(media=MediaRef(kind="url", url="https://example.com/a"))


def said(*content: Block) -> UserMessage:
    return UserMessage(content=content)


def test_the_text_with_results_contains_texts_and_results_in_order() -> None:
    result = ToolResultBlock(tool_call_id="c", content=(TextBlock(text="[r"), IMAGE, TextBlock(text="]")))
    message = said(TextBlock(text="a"), IMAGE, result, ThinkingBlock(text="no"), TextBlock(text="b"))
    assert message.text_with_results() == "a[r]b"
    assert message.text_content() == "ab"


@pytest.mark.parametrize(
    ("structured", "text"),
    [({"value": 42}, '{"value": 42}'), ([1], "[1]"), (0, "0"), (False, "false"), ("", '""'), (None, "")],
)
def test_a_result_without_text_is_given_as_json(structured: JsonValue, text: str) -> None:
    assert said(ToolResultBlock(tool_call_id="c", structured=structured)).text_with_results() == text
    assert ToolResultMessage(tool_call_id="c", structured=structured).text_with_results() == text


def test_the_text_of_a_result_takes_precedence_over_its_json() -> None:
    message = ToolResultMessage(tool_call_id="c", structured={"a": 1}, content=(TextBlock(text="one"),))
    assert message.text_with_results() == "one"


@pytest.mark.parametrize(
    ("text", "rest", "reasoning"),
    [
        ("plain", "plain", None),
        (" kept as it is ", " kept as it is ", None),
        ("<think>why</think>what", "what", "why"),
        ("<thinking>why\nso</thinking>\nwhat", "what", "why\nso"),
        ("<think>one</think>a<think>two</think>b", "ab", "one\ntwo"),
        ("<think></think>a", "a", None),
        ("<think>never closed", "<think>never closed", None),
        ("<think>a</thinking>", "<think>a</thinking>", None),
    ],
)
def test_reasoning_between_tags_is_separated_from_the_text(text: str, rest: str, reasoning: str | None) -> None:
    assert split_reasoning(text) == (rest, reasoning)


def test_many_open_tags_are_read_quickly() -> None:
    text = "<think>" * 50_000 + "why</think>what"
    begin = time.process_time()
    assert split_reasoning("<think>" * 50_000) == ("<think>" * 50_000, None)
    assert split_reasoning(text).text == "what"
    assert time.process_time() - begin < 10  # takes 0.1 s; a search for the end of each tag takes a minute
