"""Seed 001's JSON: what is accepted, into which lane, and what is refused."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import AssistantMessage, ExtensionMessage, LlmMessage, Usage
from lanebus.codecs import TWO_LANE_AGENT, TWO_LANE_AGENT_CAMEL
from lanebus.handlers.formats.two_lane_agent.codec import write_usage
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json

__all__ = ()

KNOWN = {"role", "content", "timestamp", "turnId", "kind", "data"}

CONTRADICTED = {
    "phi.dec.role_user_but_ext_shape": "the role alone decides: what says it is a user's is never an extension",
}


@cases("lane_decode", contradicted=CONTRADICTED)
def test_a_message_is_accepted_as_001_accepts_it(case: Case) -> None:
    given, expect = cast("Json", case.given), cast("Json", case.expect)
    match given, expect:
        case {"json": value}, {"error": True}:
            with pytest.raises(MessageError):
                TWO_LANE_AGENT.read(value)
        case {"json": value}, {"lane": _}:
            assert {key: item for key, item in seen(value).items() if key in expect} == expect
        case {"json_keys": list() as keys}, {"decodes_both": both, "encodes": written}:
            read = [TWO_LANE_AGENT_CAMEL.read(failed(str(key))) for key in keys]
            assert (read[0] == read[1]) is both
            (value,) = TWO_LANE_AGENT_CAMEL.write(read[1], False).values
            assert value == failed(str(written))
        case _:
            pytest.fail("no such case")


def seen(value: JsonValue) -> Json:
    (message,) = TWO_LANE_AGENT.read(value)
    assert isinstance(message, LlmMessage | ExtensionMessage)
    (again,) = TWO_LANE_AGENT.write([message], False).values
    assert isinstance(value, dict)
    assert isinstance(again, dict)
    answer = message if isinstance(message, AssistantMessage) else AssistantMessage()
    usage = answer.usage or Usage()
    return {
        "lane": str(message.lane),
        "role": cast("str", again["role"]),
        "turn_id": None if message.turn_id is None else message.turn_id.model_dump(),
        "extra_keys_kept": bool(again.keys() & (value.keys() - KNOWN)),
        "reserialised": again,
        "error_message": answer.error_message,
        "usage": write_usage(usage),
        "usage.cache_read": usage.cache_read,
    }


def failed(key: str) -> Json:
    usage: Json = {"input": 1, "output": 2, "reasoning": 0, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10}
    return {
        "role": "assistant",
        "content": [],
        "stopReason": "error",
        "model": "m",
        "provider": "p",
        "usage": usage,
        "timestamp": 5,
        key: "boom",
    }
