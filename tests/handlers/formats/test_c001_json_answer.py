"""`extract_json` reads the JSON that a model was asked to answer with."""

import pytest

from lanebus import AssistantMessage, TextBlock, ToolCallBlock
from lanebus.errors import DecodeError
from lanebus.handlers.formats.two_lane_agent.codec import ANSWER_TOOL
from lanebus.messages import extract_json

__all__ = ()


def test_the_first_answering_call_is_the_answer() -> None:
    calls = [ToolCallBlock(id=name, name=name, arguments={"by": name}) for name in ("other", ANSWER_TOOL)]
    assert extract_json(AssistantMessage.of('{"by":"text"}', *calls)) == {"by": ANSWER_TOOL}


def test_without_such_a_call_the_whole_text_is_the_answer() -> None:
    blocks = TextBlock(text='{"a":'), ToolCallBlock(id="c", name="other"), TextBlock(text="[1]}")
    assert extract_json(AssistantMessage.of(*blocks)) == {"a": [1]}


@pytest.mark.parametrize(("text", "path"), [("", "content"), ("so: {}", "content"), ('{"a":NaN}', "content.a")])
def test_text_that_is_not_json_is_an_error(text: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        extract_json(AssistantMessage.of(text))
    assert caught.value.path == path
