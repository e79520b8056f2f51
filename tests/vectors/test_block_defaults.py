"""What is left out of a block of the graph framework has the value that it has there."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage
from lanebus.codecs import GRAPH_V2
from tests.support.vectors.cases import Case, cases

__all__ = ()

# What each constructor is given.
GIVEN: dict[str, dict[str, JsonValue]] = {
    "TextBlock()": {"type": "text"},
    "ToolCallBlock(id,name)": {"type": "tool_call", "id": "c", "name": "n"},
    "RemoteToolCallBlock(id,name)": {"type": "remote_tool_call", "id": "c", "name": "n"},
}


@cases("block_defaults")
def test_what_is_left_out_has_its_default(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given), cast("dict[str, JsonValue]", case.expect):
        case {"blocks": [*names]}, {"defaults": [*wanted]}:
            blocks = [GIVEN[str(name)] for name in names]
        case _:
            pytest.fail("no such case")
    (read,) = GRAPH_V2.read({"role": "assistant", "content": [*blocks]})
    assert isinstance(read, AssistantMessage)
    # Only what was read: its origin knows what was left out, and would leave it out again.
    (value,) = GRAPH_V2.write([AssistantMessage(content=read.content, stop_reason="toolUse")], False).values
    assert isinstance(value, dict)
    written = value["content"]
    assert isinstance(written, list)
    for one, default in zip(written, wanted, strict=True):
        assert isinstance(one, dict)
        assert isinstance(default, dict)
        assert {**one, **default} == one
