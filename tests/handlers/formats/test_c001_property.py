"""What seed 001 can represent is read back unchanged; every other field is a reported loss."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import (
    AssistantMessage,
    ExtensionMessage,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import ThinkingBlock
from lanebus.codecs import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL, Codec, Unsayable
from lanebus.messages import Publishable
from tests.support.messages.made import inline, made, messages, tags, turns, u64, values, words
from tests.support.suite.scale import examples

__all__ = ()

contents = st.lists(
    st.one_of(
        made(TextBlock, text=words),
        made(ImageBlock, media=inline),
        made(ThinkingBlock, text=words, signature=st.none() | words),
        made(ToolCallBlock, id=words, name=words, arguments=values),
    ),
    max_size=4,
).map(tuple)
common: dict[str, st.SearchStrategy[object]] = {
    "content": contents,
    "timestamp": u64,
    "turn_id": st.none() | turns,
    "metadata": st.sampled_from([None, {"invalidNodeId": "n1"}]),
    "parent_id": st.none() | u64,
    "tags": st.none() | st.lists(tags, min_size=1, max_size=2).map(tuple),
    "provenance_hint": st.sampled_from([None, {"kind": "memory-tier", "tier": "episodic", "record_id": "7"}]),
}
counts = ("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens")
theirs: st.SearchStrategy[Publishable] = st.one_of(
    made(UserMessage, **common),
    made(
        AssistantMessage,
        **common,
        stop_reason=st.sampled_from(["stop", "toolUse", "handoff", "contextCompacted"]),
        model=words,
        provider=words,
        usage=made(Usage, **dict.fromkeys(counts, u64)),
        error_message=st.none() | words,
    ),
    made(ToolResultMessage, **common, tool_call_id=words, tool_name=words, is_error=st.booleans()),
    made(ExtensionMessage, kind=words, data=values),
)


@examples(200)
@given(theirs, st.sampled_from([TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL]))
def test_what_001_can_represent_is_read_back_unchanged(message: Publishable, codec: Codec) -> None:
    (value,) = codec.write([message], False).values
    parsed = json.loads(json.dumps(value))
    assert codec.read(parsed) == (message,)
    assert codec.write(codec.read(parsed), False).values == (value,)


@pytest.mark.full
@examples(200)
@given(st.lists(messages, max_size=3))
def test_what_is_written_is_read_back_and_losses_are_reported(said: list[Publishable]) -> None:
    written = TWO_LANE_AGENT.write(said, True)
    again = [message for value in written.values for message in TWO_LANE_AGENT.read(json.loads(json.dumps(value)))]
    if written.losses:
        with pytest.raises(Unsayable) as caught:
            TWO_LANE_AGENT.write(said, False)
        assert caught.value.losses == written.losses
        assert {int(re.split(r"[.:]", loss)[0]) for loss in written.losses} <= set(range(len(said)))
    else:
        assert len(again) == len(said)
        assert TWO_LANE_AGENT.write(again, False).values == written.values
