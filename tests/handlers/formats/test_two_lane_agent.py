"""The codec of seed 001, which ignores what it does not know, and the answer that a model was asked to give as JSON."""

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import AssistantMessage, TextBlock, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.codecs import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL
from lanebus.messages import extract_json
from tests.support.formats.two_lane_agent import TURN, answer, result, user


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (user(zzz=1, content=[{"type": "text", "text": "x", "zzz": 1}]), user({"type": "text", "text": "x"})),
        (user(turnId=None, nodeId=None, tags=[]), user()),
        (user(turnId={**TURN, "zzz": 1}), user(turnId=TURN)),
        (user({"type": "thinking", "thinking": "x", "signature": None}), user({"type": "thinking", "thinking": "x"})),
        ({"role": "extension", "kind": "k", "data": 1, "turnId": TURN}, {"role": "extension", "kind": "k", "data": 1}),
    ],
)
def test_fields_that_001_does_not_know_are_ignored(value: JsonValue, kept: JsonValue) -> None:
    assert TWO_LANE_AGENT.write(TWO_LANE_AGENT.read(value), False).values == (kept,)


@pytest.mark.parametrize(
    ("key", "value", "kept_as"),
    [
        ("turnId", {"loopId": 7, "turnIndex": 0}, "invalidTurnId"),
        ("turnId", {"loopId": "s.main.1", "turnIndex": 2**32}, "invalidTurnId"),
        ("turnId", "s.main.1#0", "invalidTurnId"),
        ("nodeId", "n5", "invalidNodeId"),
        ("tags", [{"kind": "idea"}], "invalidTags"),
        ("provenanceHint", 7, "invalidProvenanceHint"),
    ],
)
def test_malformed_fields_that_001_drops_are_kept_where_no_provider_sees_them(
    key: str, value: JsonValue, kept_as: str
) -> None:
    (message,) = TWO_LANE_AGENT.read(user(**{key: value}))
    assert isinstance(message, UserMessage)
    assert (message.turn_id, message.node_id, message.tags, message.metadata) == (None, None, None, {kept_as: value})
    assert TWO_LANE_AGENT.write([message], False).values == (user(**{key: value}),)


def test_the_upstream_s_spelling_is_read_and_written() -> None:
    counts: JsonValue = {"input": 1, "output": 2, "reasoning": 0, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10}
    camel = answer(errorMessage="boom", usage=counts)
    (message,) = TWO_LANE_AGENT_CAMEL.read(camel)
    assert isinstance(message, AssistantMessage)
    assert (message.error_message, message.usage and message.usage.cache_read) == ("boom", 3)
    assert TWO_LANE_AGENT_CAMEL.write([message], False).values == (camel,)
    assert TWO_LANE_AGENT_CAMEL.read(TWO_LANE_AGENT.write([message], False).values[0]) == (message,)
    for twice in (answer(errorMessage="a", error_message="a"), answer(usage={"cacheRead": 1, "cache_read": 1})):
        with pytest.raises(DecodeError, match="set twice"):
            TWO_LANE_AGENT_CAMEL.read(twice)


def test_a_result_gets_its_tool_s_name_from_the_call() -> None:
    call = ToolCallBlock(id="c", name="grep")
    calling = AssistantMessage(content=(call,), timestamp=1, model="m", provider="p", usage=Usage())
    written = TWO_LANE_AGENT.write([calling, ToolResultMessage(tool_call_id="c", timestamp=2)], False)
    assert written.values[1] == result(toolName="grep", timestamp=2)


def test_the_answer_is_the_first_answering_call_or_else_the_whole_text_and_other_text_is_an_error() -> None:
    calls = [ToolCallBlock(id=name, name=name, arguments={"by": name}) for name in ("other", "respond_json")]
    assert extract_json(AssistantMessage.of('{"by":"text"}', *calls)) == {"by": "respond_json"}
    blocks = TextBlock(text='{"a":'), ToolCallBlock(id="c", name="other"), TextBlock(text="[1]}")
    assert extract_json(AssistantMessage.of(*blocks)) == {"a": [1]}
    for text, path in (("", "content"), ("so: {}", "content"), ('{"a":NaN}', "content.a")):
        with pytest.raises(DecodeError) as caught:
            extract_json(AssistantMessage.of(text))
        assert caught.value.path == path
