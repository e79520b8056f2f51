"""Each message has its lane, and there is no way from the extensions to a model."""

import json
from collections.abc import Callable
from typing import cast

import pytest
from pydantic import ValidationError

from lanebus import ExtensionMessage, Lane, LlmMessage, UserMessage
from lanebus.bus.errors import BusError
from lanebus.bus.messages import read_llm
from lanebus.codecs import TWO_LANE_AGENT
from tests.support.log.entries import context_of
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json

__all__ = ()


@cases("two_lane_routing")
def test_a_model_reads_the_one_lane_alone(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given:
        case {"messages": list() as values}:
            messages = [message for value in values for message in TWO_LANE_AGENT.read(value)]
            spoken = [message for message in messages if isinstance(message, LlmMessage) and message.as_llm()]
            read = context_of(*spoken).messages
            assert [json.loads(message.to_json())["role"] for message in read] == expect["llm_roles"]
            assert [*read] == spoken
            assert [each.kind for each in messages if isinstance(each, ExtensionMessage)] == expect["extension_kinds"]
        case {"attempt": _}:
            assert any(map(succeeds, ATTEMPTS)) is expect["possible"]
        case _:
            pytest.fail("no such case")


EXTENSION = ExtensionMessage.of("note", {"role": "user", "content": [{"type": "text", "text": "x"}]})

ATTEMPTS: tuple[Callable[[], object], ...] = (
    EXTENSION.as_llm,
    lambda: read_llm(EXTENSION.to_json()),
    lambda: UserMessage.model_validate(EXTENSION.model_dump()),
    lambda: UserMessage.model_validate(EXTENSION, from_attributes=True),
    lambda: EXTENSION.with_turn_id(None).as_llm(),
    lambda: EXTENSION.lane is Lane.LLM,
    lambda: context_of(EXTENSION).messages,
)


def succeeds(attempt: Callable[[], object]) -> bool:
    """Something that a model would read has come of it."""
    try:
        return bool(attempt())
    except (BusError, ValidationError):
        return False
