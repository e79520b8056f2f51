"""The sample cases of a provider's answer read as a message."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage, Usage
from lanebus.codecs import UNIVERSAL_CLIENT
from lanebus.providers import from_anthropic, from_gemini, from_openai_responses
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

CONTRADICTED = {
    "att.resp.usage_anthropic": "where the provider tells no total, it is the sum of all tokens, the cached ones too",
    "att.resp.usage_gemini": (
        "thoughts are a part of the output and cached tokens none of the input, for all providers; Gemini's own counts"
        " stay beside them"
    ),
}

Json = dict[str, JsonValue]


@cases("response_parse", contradicted=CONTRADICTED)
def test_an_answer_is_read_as_a_message(case: Case) -> None:
    message = _answer(case.given)
    match case.expect:
        case {"input_tokens": _}:
            assert message.usage is not None
            found = _usage(message.usage, includes_cached=message.provider != "anthropic")
            assert {key: found[key] for key in case.expect} == case.expect
        case {"kinds": kinds}:
            parts = _parts(message)
            assert [part["kind"] for part in parts] == kinds
            if "data" in case.expect:
                told = {"text": case.expect["data"], "redacted": case.expect["redacted"]}
                assert parts[0]["thinking"] == told
        case {"kind": _, "id": _} | {"id_prefix": _}:
            _require_call(message, case.expect)
        case _:
            pytest.fail("no such case")


def _require_call(message: AssistantMessage, expect: Object) -> None:
    (call,) = message.tool_calls()
    (part,) = _parts(message)
    found: Object = {"kind": part["kind"], "id": call.id, "name": call.name, "arguments": call.arguments}
    assert call.id.startswith(str(expect.get("id_prefix", "")))
    assert {key: found[key] for key in expect if key != "id_prefix"} == {
        key: value for key, value in expect.items() if key != "id_prefix"
    }


def _answer(given: Object) -> AssistantMessage:
    """The message of a response that says what the case says, whatever else a response must have."""
    told = cast("Json", given)
    match told:
        case {"content": _}:
            return from_anthropic({"type": "message", "usage": {}, "stop_reason": "end_turn", **told})
        case {"cache_read_input_tokens": _}:
            return from_anthropic({"type": "message", "content": [], "stop_reason": "end_turn", "usage": told})
        case {"promptTokenCount": _}:
            return from_gemini({"candidates": [], "usageMetadata": told})
        case {"functionCall": _}:
            return from_gemini({"candidates": [{"content": {"parts": [told]}, "finishReason": "STOP"}]})
        case {"type": "function_call"}:
            return from_openai_responses({**_RESPONSE, "output": [told]})
        case {"input_tokens_details.cached_tokens": _}:
            return from_openai_responses({**_RESPONSE, "output": [], "usage": _nested(told)})
        case _:
            pytest.fail("no such case")


_RESPONSE: Json = {"id": "r", "object": "response", "model": "m", "status": "completed"}


def _nested(flat: Json) -> Json:
    """Keys with a dot as objects in objects."""
    nested: Json = {}
    for key, value in flat.items():
        outer, _, inner = key.partition(".")
        nested[outer] = {inner: value} if inner else value
    return nested


def _usage(usage: Usage, *, includes_cached: bool) -> Object:
    """Our counts in seed 004's words, whose input has the cached tokens in it where the provider's has."""
    return {
        "input_tokens": usage.input + (usage.cache_read if includes_cached else 0),
        "output_tokens": usage.output,
        "total_tokens": usage.total_tokens,
        "reasoning_tokens": usage.reasoning,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
    }


def _parts(message: AssistantMessage) -> list[Object]:
    """Our blocks in seed 004's words, as its codec writes them."""
    (written,) = UNIVERSAL_CLIENT.write([message], True).values
    return cast("list[Object]", cast("Object", written)["content"])
