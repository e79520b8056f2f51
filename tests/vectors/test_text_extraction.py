"""The text of a message, by each system's rule for it."""

import json
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import AssistantMessage, LlmMessage, read_message
from lanebus.codecs import GRAPH_V2, UNIVERSAL_CLIENT
from lanebus.messages import extract_json, split_reasoning
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

CONTRADICTED: dict[str, str] = {
    "af.text.non_list": "content that is neither blocks nor text is refused, not shown as the text of a Python object",
}


@cases("text_extraction", contradicted=CONTRADICTED)
def test_a_message_has_the_text_that_its_system_says(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"cases": [*given]}:
            wanted = cast("list[object]", case.expect["results"])
            found = [_structured(one) for one in given]
            assert found == wanted
        case {"text": str() as text}:
            said = split_reasoning(text)
            assert {"text": said.text, "reasoning": said.reasoning} == case.expect
        case {"content": [{"kind": str()}, *_] as content}:
            (part,) = UNIVERSAL_CLIENT.read({"role": "assistant", "content": content})
            assert isinstance(part, LlmMessage)
            assert part.text_content() == case.expect["text"]
        case {"content": content}:
            (message,) = GRAPH_V2.read({"role": "assistant", "content": content})
            assert isinstance(message, LlmMessage)
            assert message.text_with_results() == case.expect["text"]
        case _:
            pytest.fail("no such case")


def _structured(given: JsonValue) -> object:
    """The JSON that the message answers with, or the name that the cases have for there being none."""
    message = read_message(json.dumps({"role": "assistant", "content": [], **cast("Object", given)}))
    if not isinstance(message, AssistantMessage):
        return "SchemaMismatch"
    try:
        return extract_json(message)
    except DecodeError:
        return "SchemaMismatch"
