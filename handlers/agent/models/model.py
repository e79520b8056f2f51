"""The protocol of a model: one method that streams an answer. Also its partial answer, failure and usage."""

import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Protocol, cast, runtime_checkable

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import MessageError, require_instance
from lanebus.bus.messages import (
    AssistantMessage,
    Block,
    MediaRef,
    StopReason,
    TextBlock,
    ThinkingBlock,
    Usage,
    Wire,
    classify_http,
    now_ms,
    says_overflow,
)
from lanebus.bus.text import whole_text
from lanebus.handlers.context import BY_BYTES, Context, context_tokens
from lanebus.handlers.providers import Begun, ModelEvent, Piece, ToolSpec

DEFAULT_MAX_TOKENS = 4096

SILENCE_SECONDS = 300.0
"""longest time to wait for a model's first event, or for its next event"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. The model's adapter converts it to the provider's form."""

    context: Context
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = DEFAULT_MAX_TOKENS
    """maximum number of tokens of the answer"""
    media: Mapping[str, MediaRef] = field(default_factory=dict[str, MediaRef])
    """references to media in the context, resolved by `resolve_media`"""
    key: str | None = None
    """Idempotency key for the provider. If a call is repeated because its outcome is unknown, the key stays the same.
    After a failed call, the next call has a new key: a provider may store the response for a key, even a failure."""


class Model(Protocol):
    """A model of a provider."""

    @property
    def provider(self) -> str:
        """The provider's name, such as "anthropic"."""
        ...

    @property
    def name(self) -> str:
        """The model's name at the provider, such as "gpt-5"."""
        ...

    @property
    def context_window(self) -> int | None:
        """Maximum number of tokens of a request and its answer together; None if unknown."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the answer: pieces and usage as they arrive, then the whole message as the last event.

        The whole message has the blocks, the stop reason with the provider's own value, and the usage with the
        provider's own object. The caller sets the message's ids and turn.

        A failed call also ends with a message: the text so far, stop reason "error", the error text and a
        `ModelFailure`. Raise only for unexpected errors.

        Closing or cancelling the generator releases the provider's connection at once.
        """
        ...


@runtime_checkable
class Optioned(Protocol):
    """A model that reports how it forms its requests, so that the log can record it."""

    @property
    def api(self) -> str:
        """Name of the model's API, a key of `PROVIDERS`."""
        ...

    @property
    def request_options(self) -> Mapping[str, JsonValue]:
        """The model's options that are part of its requests, as JSON and without secrets."""
        ...


@runtime_checkable
class Pricing(Protocol):
    """A model that knows the price of its tokens."""

    def price(self, usage: Usage) -> Usage:
        """Return the usage with its cost. A cost that `usage` already has is kept. If the prices are unknown, no cost
        is added."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A model whose provider can report the usage of an earlier call."""

    async def settle(self, message: AssistantMessage) -> Usage | None:
        """Return the actual usage of the call that led to a message; None if the provider has not reported it.

        Errors of the provider are not raised. It is safe to call this method again.
        """
        ...


# The reason why a model call failed, recorded in the log so that any worker can decide whether to retry.

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


# A response while it is streamed, and the message to record if the stream is cut.

_WRONG_EVENT = 'the model yielded a value of type {}: yield Piece("text", …), and an AssistantMessage at the end'


class PartialResponse:
    """Collects a model's events. `whole` is the complete response; None until the model has sent it."""

    def __init__(self, model: Model, request: ModelRequest | None = None) -> None:
        """
        Args:
            model: the model, for its name and prices.
            request: the request, for an estimate of a cut answer's input; None estimates the output alone.
        """
        self._model = model
        self._estimate = UsageEstimate(request)
        self._texts: dict[int, tuple[Piece, list[str]]] = {}
        self._last: AssistantMessage | None = None
        """the complete answer, even if it arrived after the stream was cut"""
        self._response_id: str | None = None
        self.whole: AssistantMessage | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was received, so the call probably cost nothing."""
        return self._last is None and not self._estimate.has_begun

    @property
    def is_ended(self) -> bool:
        """Whether the model has ended its answer, so the usage is final."""
        return self._last is not None

    @property
    def output_tokens(self) -> int:
        """An estimate of the output tokens so far, including tokens that arrived after the stream was cut."""
        return self._estimate.output_tokens

    @property
    def content(self) -> tuple[Block, ...]:
        """The text and the thinking so far; tool calls are left out, as a tool call may be incomplete."""
        return cut_content(
            (first.kind, whole_text("".join(parts))) for _, (first, parts) in sorted(self._texts.items())
        )

    def add(self, event: ModelEvent) -> None:
        """Collect the next event of the stream.

        Raises:
            TypeError: the event is not a `ModelEvent`.
        """
        self.add_usage(event)
        match event:
            case Piece():
                self._texts.setdefault(event.block, (event, []))[1].append(event.text)
            case AssistantMessage():
                self.whole = event
            case _:
                pass

    def add_usage(self, event: ModelEvent) -> None:
        """Collect only the usage of the next event, not its content.

        Raises:
            TypeError: the event is not a `ModelEvent`.
        """
        self._estimate.add(event)
        match event:
            case Piece() | Usage():
                pass
            case Begun(response_id=response_id):
                self._response_id = response_id
            case AssistantMessage():
                self._last = event
            case _:  # possible with an adapter that is not type-checked
                raise TypeError(_WRONG_EVENT.format(type(event).__name__))

    def cut(self, stop_reason: StopReason, reason: str) -> AssistantMessage:
        """Return the text so far as a failed message. The usage is an estimate unless the provider has reported it."""
        return self._failed(stop_reason, reason, self.content)

    def without_content(self, reason: str) -> AssistantMessage:
        """Return a failed message without content, with the usage of the call."""
        return self._failed("error", reason, ())

    def _failed(self, stop_reason: StopReason, reason: str, content: tuple[Block, ...]) -> AssistantMessage:
        return AssistantMessage(
            content=content,
            stop_reason=stop_reason,
            error_message=reason,
            provider=self._model.provider,
            model=self._model.name,
            usage=self._usage(),
            response_id=self._last.response_id if self._last else self._response_id,
            timestamp=now_ms(),
        )

    def _usage(self) -> Usage | None:
        if self._last is not None:
            return self._last.usage
        usage = self._estimate.usage()
        return self._model.price(usage) if usage is not None and isinstance(self._model, Pricing) else usage


def cut_content(blocks: Iterable[tuple[str, str]]) -> tuple[Block, ...]:
    """Return the blocks of a cut message. Tool calls are left out, as they are incomplete.

    Args:
        blocks: kind and text of each block so far.
    """
    return tuple(
        ThinkingBlock(text=text) if kind == "thinking" else TextBlock(text=text)
        for kind, text in blocks
        if kind in {"text", "thinking"}
    )


_BYTES_A_TOKEN = 4


class UsageEstimate:
    """The usage of one call, updated with each event."""

    def __init__(self, request: ModelRequest | None) -> None:
        """
        Args:
            request: the request, for an estimate of the input; None estimates the output alone.
        """
        self._request = request
        self._reported: Usage | None = None
        self._bytes, self._thinking_bytes = 0, 0
        self.has_begun = False
        """the provider has accepted the request, so the call costs something"""

    @property
    def output_tokens(self) -> int:
        """An estimate of the output tokens so far, including thinking and tool arguments."""
        return -(-self._bytes // _BYTES_A_TOKEN)

    def add(self, event: ModelEvent) -> None:
        """Add the next event."""
        self.has_begun = self.has_begun or not isinstance(event, AssistantMessage)
        match event:
            case Piece(kind=kind, text=text):
                size_bytes = len(text.encode(errors="replace"))
                self._bytes += size_bytes
                self._thinking_bytes += size_bytes if kind == "thinking" else 0
            case Usage():
                self._reported = event
            case _:
                pass

    def usage(self) -> Usage | None:
        """Return the usage so far; None if the call has not begun.

        Input is estimated only if the provider has not reported it. Reported output may lag behind the stream, so the
        larger of the reported and the estimated number is used. Thinking that the provider does not send cannot be
        estimated.
        """
        if not self.has_begun:
            return None
        reported = self._reported or Usage()
        has_input = bool(reported.input or reported.cache_read or reported.cache_write)
        input_tokens = reported.input if has_input else _input_tokens(self._request)
        output = max(reported.output, self.output_tokens)
        return Usage(
            input=input_tokens,
            output=output,
            reasoning=max(reported.reasoning, -(-self._thinking_bytes // _BYTES_A_TOKEN)),
            cache_read=reported.cache_read,
            cache_write=reported.cache_write,
            total_tokens=input_tokens + output + reported.cache_read + reported.cache_write,
            image_tokens=reported.image_tokens,
            audio_tokens=reported.audio_tokens,
            # A reported cost is valid only for the reported tokens.
            cost=reported.cost if has_input and output == reported.output else None,
            estimated=True,
            raw=reported.raw,
        )


def _input_tokens(request: ModelRequest | None) -> int:
    if request is None:
        return 0
    context = request.context
    tokens = context_tokens(context)
    if any(isinstance(message, AssistantMessage) and message.usage for message in context.messages):
        return tokens  # the count is based on a provider's, which includes the tools
    return tokens + sum(
        BY_BYTES.text(spec.name + spec.description + json.dumps(spec.schema, ensure_ascii=False))
        for spec in request.tools
    )
