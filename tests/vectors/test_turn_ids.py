"""Which turn a message belongs to, and what a loop's id tells."""

from typing import cast

import pytest

from lanebus import AssistantMessage, UserMessage
from lanebus.bus.messages import MessageEnded, TurnEnded, Usage
from lanebus.codecs import EventReader, EventWriter
from lanebus.messages import TurnId
from tests.support.agent.folding import log_of
from tests.support.messages.events_001 import answer, message_end, prompt, turn_start
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json

__all__ = ()


@cases("turn_ids")
def test_a_turn_is_named(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"loop_id": str() as loop_id}:
            turn = TurnId(loop_id=loop_id, turn_index=0)
            assert {"session_id": turn.session, "config_segment": turn.config_segment} == expect
        case {"prompt": str() as text}:
            reader = EventReader()
            reader.read(turn_start())
            user, *_ = reader.read(message_end(prompt(text)))
            assistant, *_ = reader.read(message_end(answer("Hello")))
            assert isinstance(user, UserMessage)
            assert isinstance(assistant, AssistantMessage)
            assert user.turn_id == assistant.turn_id == TurnId(loop_id="s.m.1", turn_index=0)
            assert str(expect["recommended"]).startswith("stamp the prompt with turn_index 0")
        case {"event": "MessageEnd(assistant)"}:
            turn_id = TurnId(loop_id="s.m.1", turn_index=0)
            said = AssistantMessage.text("x").with_turn_id(turn_id)
            ended = TurnEnded(turn_id=turn_id, stop_reason="stop", usage=Usage(), message=1)
            entries = log_of(said, MessageEnded(turn_id=turn_id, position=1).as_extension(), ended.as_extension())
            writer = EventWriter()
            events = [cast("Json", value) for entry in entries for value in writer.write(entry).values]
            has_turn = {str(event["type"]): "turnId" in cast("Json", event["message"]) for event in events}
            assert has_turn["MessageEnd"] is expect["phi_event_message_has_turnId"]
            assert has_turn["TurnEnd"] is expect["TurnEnd.message_has_turnId"]
        case _:
            pytest.fail("no such case")
