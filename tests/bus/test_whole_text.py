"""Text that UTF-8 cannot hold is joined or replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import AssistantMessage, TextBlock, ToolCallBlock
from lanebus.bus.text import split_half, whole_json, whole_model, whole_text

__all__ = ()

HIGH, LOW, LONE = "\ud83d", "\ude00", "\ufffd"
texts = st.text(st.sampled_from(["a", "é", "😀", "\0", HIGH, LOW, LONE]))


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("aé😀\0", "aé😀\0"),
        (f"a{HIGH}{LOW}b", "a😀b"),
        (HIGH, LONE),
        (f"{HIGH}b{LOW}", f"{LONE}b{LONE}"),
        (f"{HIGH}{HIGH}{LOW}", f"{LONE}😀"),
        (f"{LOW}{HIGH}", LONE * 2),
        ("report-\udcff.txt", f"report-{LONE}.txt"),
    ],
)
def test_halves_of_a_pair_are_joined_and_lone_halves_are_replaced(text: str, whole: str) -> None:
    assert whole_text(text) == whole


@given(texts)
def test_a_whole_text_can_be_encoded_and_stays_as_it_is(text: str) -> None:
    whole = whole_text(text)
    assert whole.encode().decode() == whole == whole_text(whole)


@given(st.lists(texts))
def test_pieces_that_are_split_at_halves_join_to_the_same_text(pieces: list[str]) -> None:
    shown, half = "", ""
    for piece in pieces:
        text, half = split_half(half + piece)
        shown += whole_text(text)
    assert shown + whole_text(half) == whole_text("".join(pieces))


def test_keys_that_become_equal_stay_apart() -> None:
    found = whole_json({f"a{HIGH}": 1, f"a{LONE}": 2, f"a{LOW}": [{"b": HIGH}, (LOW,)]})
    assert found == {f"a{LONE * 2}": 1, f"a{LONE}": 2, f"a{LONE * 3}": [{"b": LONE}, [LONE]]}


def test_a_message_keeps_its_types() -> None:
    call = ToolCallBlock(id="c1", name="ls", arguments={HIGH: [LOW]}, metadata={"n": 1})
    message = AssistantMessage(content=(TextBlock(text=f"{HIGH}{LOW}"), call), stop_reason="toolUse")
    whole = AssistantMessage(
        content=(TextBlock(text="😀"), call.model_copy(update={"arguments": {LONE: [LONE]}})), stop_reason="toolUse"
    )
    assert whole_model(message) == whole
