"""Errors that say the request was too long, and those that do not."""

from typing import cast

import pytest

from lanebus.bus.messages import AssistantMessage, Usage, UserMessage, classify_http, says_overflow
from tests.support.vectors.cases import Case, Object, cases

_CLASSES = {
    "ContextOverflow": "contextOverflow",
    "RateLimited": "rateLimited",
    "Auth": "auth",
    "Api": "api",
    "ContextLengthError": "contextOverflow",
    "InvalidRequestError": "api",
}


@cases("overflow")
def test_an_overflow_is_told_from_other_errors(case: Case) -> None:
    match case.given, case.expect:
        case {"http_status": int(status), **rest}, {"class": str(kind)} | {"error": str(kind)}:
            assert classify_http(status, str(rest.get("body", rest.get("message")))) == _CLASSES[kind]
        case {"message": str(text)}, {"overflow": bool(expect)}:
            assert says_overflow(text) is says_overflow(text, exact_001=True) is expect
        case {"message": str(text)}, {"phi": bool(exact), "pi": bool(strict)}:
            assert says_overflow(text, exact_001=True) is exact
            assert says_overflow(text) or not strict
        case {"cases": given}, {"is_context_overflow": expect}:
            assert [of_answer(one) for one in cast("list[Object]", given)] == expect
        case {"cases": given}, {"overflow": expect}:
            assert [silently(one) for one in cast("list[Object]", given)] == expect
        case _:
            pytest.fail("no such case")


def of_answer(fields: Object) -> bool:
    if fields["role"] == "user":
        return UserMessage.text("prompt is too long").is_context_overflow()
    message = AssistantMessage.model_validate(
        {"stop_reason": fields["stopReason"], "error_message": fields["error_message"]}
    )
    return message.is_context_overflow()


def silently(fields: Object) -> bool:
    usage = Usage.model_validate({"input": fields["input"], "cache_read": fields["cacheRead"]})
    message = AssistantMessage.model_validate({"stop_reason": fields["stop"], "usage": usage})
    return message.is_context_overflow(window=cast("int | None", fields["window"]))
