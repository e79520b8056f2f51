"""Why a model's call failed, as data that the log keeps: whoever decides whether to try again reads it there."""

import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import cast

from pydantic import ValidationError

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.overflow import classify_http, says_overflow

__all__ = ("FAILURE", "ModelFailure", "failure_of", "failure_of_code", "failure_of_error", "with_failure")

FAILURE = "lanebus.failure"
"""where a failed message's metadata has it"""

_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The error tables of Anthropic's and OpenAI's APIs: an error in the middle of a stream comes with status 200."""

_OVERFLOW = frozenset({"context_length_exceeded", "model_context_window_exceeded"})
_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""told with the status of a rate limit, and no waiting helps"""
_ODD = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""Gemini's words for an answer that the model got wrong: the next one may be right"""
_AGAIN = frozenset({408, 409, 425, 429})
_NEVER = frozenset({501, 505})

_CONNECTION = frozenset({"APIConnectionError", "TransportError", "ConnectionError", "TimeoutError"})
_GARBAGE = frozenset({"JSONDecodeError", "UnicodeDecodeError", "UnknownApiResponseError", "ValidationError"})
"""Classes by their names, as none of the clients has to be installed."""


class ModelFailure(Wire):
    """What is known of a failure."""

    status: int | None = None
    """of HTTP; where the failure came in the middle of a stream, the one that the API has for it"""
    code: str | None = None
    """the provider's own word, such as "overloaded_error\""""
    retry_after: float | None = None
    """seconds after which the provider wants to be asked again"""
    is_overflow: bool = False
    """the context was too long: a shorter one may do"""
    is_transient: bool = False
    """the same request may do, later"""


def failure_of(message: AssistantMessage) -> ModelFailure | None:
    """What is known of the failure that a message tells of; None if it is not a failed one."""
    if message.stop_reason != "error":
        return None
    try:
        return ModelFailure.model_validate((message.metadata or {})[FAILURE], strict=False)
    except (KeyError, ValidationError):  # another model's, or imported
        return ModelFailure(is_overflow=message.is_context_overflow())


def with_failure(message: AssistantMessage, failure: ModelFailure) -> AssistantMessage:
    """The message with what is known of its failure."""
    told = failure.model_dump(mode="json", by_alias=True, exclude_none=True)
    return message.model_copy(update={"metadata": {**(message.metadata or {}), FAILURE: told}})


def failure_of_code(code: str | None, text: str) -> ModelFailure:
    """A failure that a provider tells of by a word and a text."""
    return _failure(_STATUS.get(code or ""), code, text)


def failure_of_error(error: Exception) -> ModelFailure:
    """A failure from what the clients of Anthropic, OpenAI or Google raise, or what the reader of an answer does."""
    body = _first(_field(error, "body"), _field(error, "details"))
    inner = _first(_item(body, "error"), body)
    code = _text(_item(inner, "code")) or _text(_item(inner, "type")) or _text(_item(inner, "status"))
    status = _status(error)
    if status in {None, 200}:
        status = _STATUS.get(code or "")
    names = {base.__name__ for base in type(error).__mro__}
    is_unlucky = bool(names & (_CONNECTION | _GARBAGE)) or isinstance(error, MessageError)
    headers = _field(_field(error, "response"), "headers")
    wait = _retry_after(headers)
    return _failure(
        status,
        code,
        _text(_item(inner, "message")) or str(error),
        retry_after=_retry_delay(inner) if wait is None else wait,
        is_unlucky=is_unlucky,
        wish=_header(headers, "x-should-retry"),
    )


def _failure(
    status: int | None,
    code: str | None,
    text: str,
    *,
    retry_after: float | None = None,
    is_unlucky: bool = False,
    wish: str | None = None,
) -> ModelFailure:
    """
    Args:
        is_unlucky: it is of a kind that is transient where nothing else tells.
        wish: what the provider itself says of trying again, "true" or "false".
    """
    is_long = says_overflow(text) if status is None else classify_http(status, text) == "contextOverflow"
    is_overflow = code in _OVERFLOW or is_long
    if wish in {"true", "false"}:
        is_transient = wish == "true"
    elif status is None:
        is_transient = is_unlucky or code in _ODD
    else:
        is_transient = status in _AGAIN or (status >= 500 and status not in _NEVER)
    return ModelFailure(
        status=status,
        code=code,
        retry_after=retry_after,
        is_overflow=is_overflow,
        is_transient=is_transient and not is_overflow and code not in _SPENT,
    )


def _status(error: Exception) -> int | None:
    """The clients of Anthropic and OpenAI call it `status_code`, Google's `code`."""
    found = (_field(error, "status_code"), _field(error, "code"))
    return next((each for each in found if isinstance(each, int) and not isinstance(each, bool)), None)


def _retry_after(headers: object) -> float | None:
    """Seconds, from the header in any of its spellings."""
    exact = _seconds(_header(headers, "retry-after-ms"))
    if exact is not None:
        return exact / 1000
    value = _header(headers, "retry-after")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - time.time())


def _retry_delay(told: object) -> float | None:
    """Seconds, from the details that Google's APIs have instead of the header: `"retryDelay": "3.5s"`."""
    details = _item(told, "details")
    for detail in cast("Iterable[object]", details) if isinstance(details, list) else ():
        delay = _text(_item(detail, "retryDelay"))
        if delay is not None and delay.endswith("s"):
            return _seconds(delay[:-1])
    return None


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if isfinite(seconds) and seconds >= 0 else None


def _header(headers: object, name: str) -> str | None:
    if not isinstance(headers, Mapping):
        return None
    return _text(cast("Mapping[str, object]", headers).get(name))


def _field(value: object, name: str) -> object:
    return cast("object", getattr(value, name, None))


def _item(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
