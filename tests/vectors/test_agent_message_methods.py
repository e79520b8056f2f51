"""What both lanes' messages answer alike."""

from typing import cast

import pytest

from bus import ExtensionMessage, TurnId, UserMessage
from tests.vectors.cases import Case, cases
from tests.vectors.native import Json, native

__all__ = ()


@cases("agent_message_methods")
def test_both_lanes_answer_alike(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"message": value, "with_turn_id": turn}:
            message = native(value).with_turn_id(TurnId.model_validate(turn))
            assert isinstance(message, ExtensionMessage)
            assert expect == {
                "turn_id": message.turn_id,
                "as_llm": message.as_llm(),
                "role": message.role,
                "timestamp": message.timestamp or 0,  # ours is None, as the moment stands in the envelope
            }
        case {"message_turn_id": turn, "with_turn_id": None}:
            message = UserMessage.text("x").with_turn_id(TurnId.model_validate(turn))
            assert message.turn_id is not None
            assert expect == {"turn_id": message.with_turn_id(None).turn_id}
        case {"with_node_identity": [int() as node, int() as parent]}:
            message = UserMessage.text("x").with_node(node, parent)
            found = {"node_id": message.node_id, "parent_id": message.parent_id, "tags": [*(message.tags or ())]}
            assert found == expect
        case _:
            pytest.fail("no such case")
