"""Lists of messages are added to and cleared of tool calls as in the graph framework."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage, LlmMessage, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.codecs import GRAPH_V2
from lanebus.handlers.formats.graph.messages import add_messages, without_tools
from tests.support.vectors.cases import Case, cases

__all__ = ()

SAID: dict[str, LlmMessage] = {
    "user": UserMessage.text("do it"),
    "assistant(tool_calls)": AssistantMessage(content=(ToolCallBlock(id="c", name="n"),)),
    "tool": ToolResultMessage(tool_call_id="c"),
    "assistant": AssistantMessage.text("done"),
}


@cases("delta")
def test_a_list_of_messages_becomes_what_theirs_does(case: Case) -> None:
    match cast("dict[str, JsonValue]", case.given):
        case {"left": [*left], "right": [*right]}:
            added = add_messages(_messages(left), _messages(right))
            wanted = case.expect.get("recommended_ids", case.expect.get("docstring_says"))
            assert [message.id for message in added] == wanted
        case {"roles": [*roles]}:
            said = [SAID[str(role)] for role in roles]
            kept = [SAID[role] for role in cast("list[str]", case.expect["kept"])]
            assert [*without_tools(said)] == kept
        case _:
            pytest.fail("no such case")


def _messages(said: list[JsonValue]) -> list[LlmMessage]:
    """Messages by their ids, or by what is said of them."""
    result: list[LlmMessage] = []
    for one in said:
        more: dict[str, JsonValue] = one if isinstance(one, dict) else {"message_id": str(one)}
        result += [
            message
            for message in GRAPH_V2.read({"role": "user", "content": [], **more})
            if isinstance(message, LlmMessage)
        ]
    return result
