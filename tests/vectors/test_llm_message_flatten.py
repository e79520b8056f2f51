"""A message and its turn are one flat object, and the turn may be absent."""

from typing import cast

import pytest

from lanebus import LlmMessage
from lanebus.bus.messages import NodeTag, parse_json
from lanebus.bus.wire import encode
from lanebus.codecs import TWO_LANE_AGENT
from lanebus.messages import TurnId
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json, dumped, native

__all__ = ()


@cases("llm_message_flatten")
def test_a_message_is_flat_with_its_turn(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"json": value}:
            for message in (native(value), *TWO_LANE_AGENT.read(value)):
                assert isinstance(message, LlmMessage)
                found = seen(message)
                assert {key: found[key] for key in expect} == expect
        case {"message": value, "with_turn_id": turn}:
            message = bare(value).with_turn_id(turn_of(turn))
            assert dumped(message) == expect["json"]
            assert [*TWO_LANE_AGENT.write([message], False).values] == [expect["json"]]
            text = encode(message).decode()
            assert all(
                isinstance(key, str) and f'"{key}"' in text for key in cast("list[str]", expect["json_contains_keys"])
            )
            read = native(expect["json"]).turn_id
            assert read is not None
            assert read.turn_index == expect["decoded_turn_index"]
        case {"message": value, "turn_id": turn}:
            message = bare(value).with_turn_id(turn_of(turn))
            assert dumped(message) == parse_json(cast("str", expect["exact_text"]))
        case {"message": value, "node_id": int() as node, "parent_id": int() as parent, "tags": list() as tags}:
            tagged = tuple(NodeTag.model_validate(tag) for tag in tags)
            message = bare(value).with_node(node, parent).model_copy(update={"tags": tagged})
            assert dumped(message) == expect["json"]
            assert native(expect["json"]) == message
            assert [*TWO_LANE_AGENT.write(TWO_LANE_AGENT.read(expect["json"]), False).values] == [expect["json"]]
        case _:
            pytest.fail("no such case")


def bare(value: object) -> LlmMessage:
    message = native(value)
    assert isinstance(message, LlmMessage)
    return message


def turn_of(value: object) -> TurnId:
    return TurnId.model_validate(value)


def seen(message: LlmMessage) -> Json:
    turn = message.turn_id
    return {
        "turn_id": None if turn is None else {"loop_id": turn.loop_id, "turn_index": turn.turn_index},
        "node_id": message.node_id,
        "parent_id": message.parent_id,
        "tags": [parse_json(tag.to_json()) for tag in message.tags or ()],
        "timestamp": message.timestamp,
        "content_len": len(message.content),
    }
