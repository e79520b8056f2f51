"""What is read is written the same, by value."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, ImageBlock, LlmMessage, ToolCallBlock
from lanebus.bus.messages import Block, parse_json
from lanebus.codecs import TWO_LANE_AGENT
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json, dumped, native

__all__ = ()


@cases("json_roundtrip")
def test_what_is_read_is_written_the_same(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given, expect:
        case {"json": list() as many}, {"lanes": lanes, "reserialised": written}:
            messages = [message for value in many for message in TWO_LANE_AGENT.read(value)]
            assert [str(message.lane) for message in messages] == lanes
            assert [*TWO_LANE_AGENT.write(messages, False).values] == written
            assert [dumped(native(value)) for value in many] == written
        case {"json": value}, {"lane": lane, "reserialised": written}:
            (message,) = TWO_LANE_AGENT.read(value)
            assert (str(message.lane), TWO_LANE_AGENT.write([message], False).values[0]) == (lane, written)
            assert dumped(native(value)) == written
        case {"content_json": block}, {"reserialised": written}:
            assert through_codec(block) == written
        case {"json": dict() as call}, {"type": kind}:
            read = block_of("assistant", {"type": "tool_call", **call})
            assert isinstance(read, ToolCallBlock)
            assert read.effective_call_type == kind
        case {"image": dict() as image}, {"json": dict() as written}:
            read = block_of("user", {"type": "image", "media": {"kind": "url", **image}})
            assert isinstance(read, ImageBlock)
            assert parse_json(read.media.to_json()) == {"kind": "url", **written}
        case _:
            pytest.fail("no such case")


def through_codec(block: JsonValue) -> JsonValue:
    value: JsonValue = {"role": "user", "content": [block], "timestamp": 1}
    match TWO_LANE_AGENT.write(TWO_LANE_AGENT.read(value), False).values:
        case ({"content": [written]},):
            return written
        case other:
            pytest.fail(f"not one block: {other}")


def block_of(role: str, block: JsonValue) -> Block:
    message = native({"role": role, "content": [block]})
    assert isinstance(message, LlmMessage)
    assert role != "assistant" or isinstance(message, AssistantMessage)
    return message.content[0]
