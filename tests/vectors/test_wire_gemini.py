"""The sample cases of requests to Gemini."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage
from lanebus.handlers.providers.gemini.form import PLACEHOLDER
from lanebus.providers import from_gemini, to_gemini
from tests.support.providers.gemini_rules import require_legal
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import MODEL, SYSTEM, at, history

__all__ = ()


@cases("wire_gemini")
def test_the_request_says_what_the_case_says(case: Case) -> None:
    match case.expect:
        case {"wire": _} if "model_parts_bkrabach" in cast("Object", case.expect["wire"]):
            # What is recommended of three rival answers: verbatim to the model that wrote it, else left out.
            signed = cast("list[Object]", at(case.expect, "wire.model_parts_bkrabach"))
            assert _parts(_body(case, "google"), 1) == signed
            assert _parts(_body(case), 1) == signed[1:]
        case {"wire": _}:
            for path, value in cast("Object", case.expect["wire"]).items():
                _require(case, path, value)
        case {"recommended": int(contents), "samueljklee_user_contents_after_model": _}:
            assert len(_contents(_body(case))[2:]) == contents
        case {"contents": int(contents), "model_function_calls": int(calls), "user_parts": int(answers)}:
            said = _said(_body(case))
            assert len(said) == contents
            assert [len(cast("list[object]", each["parts"])) for each in said] == [calls, answers]
        case {"phi_ids": _, "recommended": _}:
            ids = [call.id for _ in range(2) for call in _answered().tool_calls()]
            assert len(set(ids)) == 2
            assert all(each.startswith("call_") for each in ids)
        case _:
            pytest.fail("no such case")


def _require(case: Case, path: str, value: object) -> None:
    body = _body(case)
    match path:
        case "systemInstruction_text":
            assert body["systemInstruction"] == {"parts": [{"text": value}]}
        case "contents":
            assert body["contents"] == value
        case "functionResponse":
            assert _parts(body, -1) == [{"functionResponse": value}]
        case "parts":
            assert _parts(body, 0) == value
        case "systemInstruction":
            assert isinstance(body["systemInstruction"], {"object": dict}[str(value)])
        case "generationConfig.maxOutputTokens" | "contents[0].role":
            assert at(body, path) == value
        case _:
            pytest.fail("no such case")


def _body(case: Case, author: str | None = None) -> Object:
    """The request, with what the case asked beside its messages."""
    wire = cast("Object", case.expect.get("wire", {}))
    context = history(case, author=author, first=[SYSTEM] if wire.get("systemInstruction") else [])
    most = cast("int | None", wire.get("generationConfig.maxOutputTokens"))
    body: Object = {**to_gemini(context, model=MODEL, max_tokens=most).body}
    require_legal(body)
    return body


def _contents(body: Object) -> list[Object]:
    return cast("list[Object]", body["contents"])


def _said(body: Object) -> list[Object]:
    """The contents without ours, which the API wants before a model's and the originals leave out."""
    contents = _contents(body)
    return contents[1:] if contents[0]["parts"] == [{"text": PLACEHOLDER}] else contents


def _parts(body: Object, content: int) -> object:
    return _contents(body)[content]["parts"]


def _answered() -> AssistantMessage:
    call: dict[str, JsonValue] = {"functionCall": {"name": "f", "args": {}}}
    return from_gemini({"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"}]})
