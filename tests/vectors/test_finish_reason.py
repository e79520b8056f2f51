"""The sample cases of why an answer ended."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage
from lanebus.codecs import UNIVERSAL_CLIENT
from lanebus.providers import from_anthropic, from_gemini, from_openai_chat, from_openai_responses
from tests.support.vectors.cases import Case, Object, cases

__all__ = ()

_GUARDED = "an answer that a filter cut short is told apart from a whole one; the provider's own word is kept beside it"
CONTRADICTED = {
    "phi.finish.anthropic.refusal": _GUARDED,
    "phi.finish.openai.content_filter": _GUARDED,
    "phi.finish.google.RECITATION": _GUARDED,
    "phi.finish.google.SAFETY": _GUARDED,
}

Json = dict[str, JsonValue]
_CALL: Json = {"functionCall": {"name": "f", "args": {}}}


@cases("finish_reason", contradicted=CONTRADICTED)
def test_an_answer_says_why_it_ended(case: Case) -> None:
    message = _answer(case.given)
    match case.expect:
        case {"stop_reason": reason} | {"recommended_stop_reason": reason}:
            assert message.stop_reason == reason
        case {"reason": _}:
            # The words are seed 004's, so what its codec writes is what is compared.
            (written,) = UNIVERSAL_CLIENT.write([message], True).values
            told = cast("Object", cast("Object", written).get("finish_reason", {"reason": "stop"}))
            assert {key: told[key] for key in case.expect} == case.expect
        case _:
            pytest.fail("no such case")


def _answer(given: Object) -> AssistantMessage:
    raw = cast("str | None", given.get("raw") or given.get("finishReason"))
    has_call = bool(given.get("function_calls")) or "parts" in given
    match given:
        case {"provider": "anthropic", "raw": _}:
            return from_anthropic({"type": "message", "content": [], "usage": {}, "stop_reason": raw})
        case {"provider": "gemini" | "google"}:
            parts: list[JsonValue] = [_CALL] if has_call else [{"text": "x"}]
            return from_gemini({"candidates": [{"content": {"parts": parts}, "finishReason": raw}]})
        case {"provider": "openai", "status": str(status)}:
            call: Json = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
            return from_openai_responses(
                {
                    "id": "r",
                    "object": "response",
                    "model": "m",
                    "status": status,
                    "output": [call] if has_call else [],
                    "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
                }
            )
        case {"provider": "openai", "raw": _}:
            choice: Json = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": raw}
            return from_openai_chat({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]})
        case _:
            pytest.fail("no such case")
