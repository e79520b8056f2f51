"""What both lanes' messages answer alike."""

import pytest

from lanebus import AgentMessage, ExtensionMessage, LlmMessage, UserMessage
from lanebus.messages import TurnId
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.native import native

__all__ = ()


@cases("agent_message_methods")
def test_both_lanes_answer_alike(case: Case) -> None:
    match case.given:
        case {"message": value, "with_turn_id": turn}:
            message = native(value).with_turn_id(TurnId.model_validate(turn))
            assert isinstance(message, ExtensionMessage)
            found = answers(message)
        case {"message_turn_id": turn, "with_turn_id": None}:
            stamped = UserMessage.text("x").with_turn_id(TurnId.model_validate(turn))
            assert stamped.turn_id is not None
            found = answers(stamped.with_turn_id(None))
        case {"with_node_identity": [int() as node, int() as parent]}:
            found = answers(UserMessage.text("x").with_node(node, parent))
        case _:
            pytest.fail("no such case")
    assert {key: found[key] for key in case.expect} == case.expect


def answers(message: AgentMessage) -> Object:
    """An extension's moment is None with us, as it stands in the envelope; 001 has 0."""
    found: Object = {"role": role_of(message), "turn_id": message.turn_id, "as_llm": message.as_llm()}
    if isinstance(message, LlmMessage):
        found |= {"node_id": message.node_id, "parent_id": message.parent_id, "tags": [*(message.tags or ())]}
    return {**found, "timestamp": message.timestamp or 0}


def role_of(message: AgentMessage) -> str:
    return message.role if isinstance(message, UserMessage | ExtensionMessage) else ""
