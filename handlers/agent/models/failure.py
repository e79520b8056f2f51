"""The reason why a model call failed, recorded in the log so that any worker can decide whether to retry."""

import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import cast

from pydantic import ValidationError

from lanebus.bus.errors import MessageError, require_instance
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.provider_errors import classify_http, says_overflow

__all__ = ("FAILURE", "ModelFailure", "failure_of", "failure_of_code", "failure_of_error", "with_failure")

FAILURE = "lanebus.failure"
"""key in the metadata of a failed message. Its value is the `ModelFailure`"""

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
"""HTTP status for each error code of the Anthropic and OpenAI APIs. An error within a stream arrives with HTTP status
200, so only its code tells the status."""

_OVERFLOW = frozenset({"context_length_exceeded", "model_context_window_exceeded"})
_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""codes with the HTTP status of a rate limit for which waiting does not help"""
_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""Gemini's codes for a malformed answer of the model; the next answer may be well-formed"""
_AGAIN = frozenset({408, 409, 425, 429})
_NEVER = frozenset({501, 505})

_CONNECTION = frozenset({"APIConnectionError", "TransportError", "ConnectionError", "TimeoutError"})
_GARBAGE = frozenset({"JSONDecodeError", "UnicodeDecodeError", "UnknownApiResponseError", "ValidationError"})
"""Names of classes, as the clients may not be installed."""


class ModelFailure(Wire):
    """A failed model call."""

    status: int | None = None
    """HTTP status; for a failure in the middle of a stream, the status that the API documents for this failure"""
    code: str | None = None
    """the provider's code, such as "overloaded_error\""""
    retry_after: float | None = None
    """seconds to wait before a retry, as requested by the provider"""
    is_overflow: bool = False
    """whether the context was too long; a shorter context may succeed"""
    is_transient: bool = False
    """whether the same request may succeed later"""


def failure_of(message: AssistantMessage) -> ModelFailure | None:
    """Return the failure of a failed message; None if the message did not fail."""
    require_instance("message", message, AssistantMessage, "pass an AssistantMessage")
    if message.stop_reason != "error":
        return None
    try:
        return ModelFailure.model_validate((message.metadata or {})[FAILURE], strict=False)
    except (KeyError, ValidationError):  # the model does not set this metadata, or the message was imported
        return ModelFailure(is_overflow=message.is_context_overflow())


def with_failure(message: AssistantMessage, failure: ModelFailure) -> AssistantMessage:
    """Return the message with a failure in its metadata."""
    data = failure.model_dump(mode="json", by_alias=True, exclude_none=True)
    return message.model_copy(update={"metadata": {**(message.metadata or {}), FAILURE: data}})


def failure_of_code(code: str | None, text: str) -> ModelFailure:
    """Return the failure for a provider's code and text."""
    return _failure(_STATUS.get(code or ""), code, text)


def failure_of_error(error: Exception) -> ModelFailure:
    """Return the failure for an error of the Anthropic, OpenAI or Google client, or of parsing an answer."""
    body = _first(_field(error, "body"), _field(error, "details"))
    inner = _first(_item(body, "error"), body)
    code = _text(_item(inner, "code")) or _text(_item(inner, "type")) or _text(_item(inner, "status"))
    status = _status(error)
    if status in {None, 200}:
        status = _STATUS.get(code or "")
    names = {base.__name__ for base in type(error).__mro__}
    is_transient = bool(names & (_CONNECTION | _GARBAGE)) or isinstance(error, MessageError)
    headers = _field(_field(error, "response"), "headers")
    wait = _retry_after(headers)
    return _failure(
        status,
        code,
        _text(_item(inner, "message")) or str(error),
        retry_after=_retry_delay(inner) if wait is None else wait,
        is_transient=is_transient,
        should_retry=_header(headers, "x-should-retry"),
    )


def _failure(
    status: int | None,
    code: str | None,
    text: str,
    *,
    retry_after: float | None = None,
    is_transient: bool = False,
    should_retry: str | None = None,
) -> ModelFailure:
    """
    Args:
        is_transient: used if neither `should_retry` nor `status` is known.
        should_retry: the provider's header, "true" or "false".
    """
    is_long = says_overflow(text) if status is None else classify_http(status, text) == "contextOverflow"
    is_overflow = code in _OVERFLOW or is_long
    if should_retry in {"true", "false"}:
        is_transient = should_retry == "true"
    elif status is None:
        is_transient = is_transient or code in _MALFORMED
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
    """Return the HTTP status: `status_code` in errors of the Anthropic and OpenAI clients, `code` in Google's."""
    found = (_field(error, "status_code"), _field(error, "code"))
    return next((each for each in found if isinstance(each, int) and not isinstance(each, bool)), None)


def _retry_after(headers: object) -> float | None:
    """Return the seconds of the header `retry-after-ms` or `retry-after`."""
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


def _retry_delay(error: object) -> float | None:
    """Return the seconds of `"retryDelay": "3.5s"`, which Google's APIs send instead of the header."""
    details = _item(error, "details")
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
