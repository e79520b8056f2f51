"""The sample cases of a history that another model has to go on with."""

import json
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import AssistantMessage, StopReason, TextBlock, read_llm
from lanebus.providers import ProviderRequest, to_anthropic, to_gemini, to_openai_chat
from tests.support.log.entries import asks, context_of, results, says
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.histories import MODEL

__all__ = ()

CONTRADICTED = {
    "phi.translate.anthropic": (
        "the API refuses thinking without a signature: it is left out, or told as text, whoever wrote it"
    ),
}


@cases("context_translation", contradicted=CONTRADICTED)
def test_another_model_is_told_what_it_may_read(case: Case) -> None:
    match case.given:
        case {"content": _, "target": str(target)}:
            request = _request(target, _answer(case, provider="anthropic" if target == "anthropic" else "other"))
            if "content" in case.expect:
                assert _told(request, target) == case.expect["content"]
            else:
                assert str(case.expect["must_not_contain"]) not in json.dumps(request.body)
        case {"content": _, "source_model": str(source), "target_model": str(target)}:
            answer = _answer(case, provider="openai", model=source)
            blocks = _told(
                to_anthropic(context_of(asks("hi"), answer), model=target, foreign_thinking="text"), "anthropic"
            )
            kinds = [block["type"] for block in blocks]
            assert kinds.count("thinking") == case.expect["thinking_blocks"]
            assert kinds.count("text") >= cast("int", case.expect["text_blocks_min"])
        case {"toolCall": _, "source_model": str(source), "target_model": str(target)}:
            call = cast("Object", case.given["toolCall"])
            answer = _read([{"type": "toolCall", "name": "f", **call}], provider="openai", model=source)
            signature = str(call["thoughtSignature"])
            (kept,) = answer.tool_calls()
            assert kept.signature == signature
            for to in (to_anthropic, to_gemini, to_openai_chat):
                body = to(context_of(asks("hi"), answer, results(kept.id, "1")), model=target).body
                assert signature not in json.dumps(body)
        case {"assistant_stop_reasons": _}:
            reasons = cast("list[StopReason]", case.given["assistant_stop_reasons"])
            context = context_of(*(says(reason, stop_reason=reason) for reason in reasons))
            assert [message.text_content() for message in context.messages] == case.expect["kept"]
        case {"provider": str(provider), "content": _}:
            # The API takes no thinking that ends a message, so something is said behind it.
            answer = _answer(case, provider=provider, kind="thinking")
            content = (*answer.content, TextBlock(text="so"))
            request = _request(provider, answer.model_copy(update={"content": content}))
            assert _told(request, provider)[0] == cast("Object", case.expect["wire"])
        case _:
            pytest.fail("no such case")


def _answer(case: Case, *, provider: str, model: str = MODEL, kind: str | None = None) -> AssistantMessage:
    blocks = cast("list[Object]", case.given["content"])
    return _read([{"type": kind, **block} if kind else block for block in blocks], provider=provider, model=model)


def _read(blocks: list[Object], *, provider: str, model: str) -> AssistantMessage:
    read = read_llm(json.dumps({"role": "assistant", "content": blocks, "provider": provider, "model": model}))
    assert isinstance(read, AssistantMessage)
    return read


def _request(target: str, answer: AssistantMessage) -> ProviderRequest:
    """The request for a system's name of a provider; what it does with thinking is seed 001's."""
    context = context_of(asks("hi"), answer, asks("go on"))
    match target:
        case "anthropic":
            return to_anthropic(context, model=MODEL)
        case "bedrock":  # the same body there, for a model that has another name
            return to_anthropic(context, model=f"anthropic.{MODEL}")
        case "google":
            return to_gemini(context, model=MODEL)
        case "openai_completions":
            return to_openai_chat(context, model=MODEL, foreign_thinking="text")
        case _:
            pytest.fail("no such case")


def _told(request: ProviderRequest, target: str) -> list[Object]:
    """What the request says of the answer, as blocks."""
    if target == "google":
        parts = cast("list[dict[str, list[Object]]]", request.body["contents"])[1]["parts"]
        return [{"type": "text", **part} for part in parts]
    content: JsonValue = cast("list[dict[str, JsonValue]]", request.body["messages"])[1]["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return cast("list[Object]", content)
