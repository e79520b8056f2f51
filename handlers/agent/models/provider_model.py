"""The common part of all adapters: everything except sending the request.

An adapter sends a body and yields the events of the stream as plain JSON. Once an answer has begun, nothing is retried
here: the text so far becomes a failed message, and the loop decides from the log.

The adapters inherit from one class because they differ only in how they send the body.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import ClassVar, cast

from pydantic import JsonValue

from lanebus.bus.error_text import describe_error, logged
from lanebus.bus.errors import DecodeError, MessageError, SetupError, require_text
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.errors import OptionUnknown
from lanebus.handlers.agent.models.failure import ModelFailure, failure_of_code, failure_of_error, with_failure
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.agent.models.request_form import ModelOptions, form_request, written_options
from lanebus.handlers.agent.models.usage_estimate import UsageEstimate
from lanebus.handlers.providers.common.answer import Answer, Begun, ModelEvent, priced
from lanebus.handlers.providers.common.prices import are_prices_there, list_price, listed_window
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.registry import PROVIDERS

__all__ = ("ModelOptions", "ProviderModel", "key_headers")

_CUT = "the stream ended before the message did"
_KEY_LENGTH = 255

_log = logging.getLogger(__name__)


class ProviderModel(ABC):
    """A model of one API: forms requests, reads and prices answers, and classifies failures."""

    API: ClassVar[str]
    """name of the model's API, a key of `PROVIDERS`"""
    provider: str
    """the provider's name in the log"""

    def __init__(self, name: str, options: ModelOptions) -> None:
        """
        Args:
            name: the model's name at the provider.
            options: see `ModelOptions`.

        Raises:
            OptionUnknown: an option is not one of `ModelOptions`.
        """
        require_text("name", name, is_filled=True)
        for option in options:
            if option not in ModelOptions.__annotations__:  # Python does not check `Unpack`
                raise OptionUnknown(name, option, tuple(ModelOptions.__annotations__), of="model")
        self.name = name
        self._api, self._options = PROVIDERS[self.API], options
        self._rates = options.get("rates")
        # Load the price lists now and not during an answer: the first load takes a tenth of a second.
        self._has_lists = are_prices_there()

    @property
    def api(self) -> str:
        """See `Optioned.api`."""
        return self.API

    @property
    def request_options(self) -> Mapping[str, JsonValue]:
        """See `Optioned.request_options`."""
        return written_options(self._options)

    @property
    def context_window(self) -> int | None:
        """See `Model.context_window`."""
        window = self._options.get("context_window")
        if window is not None or not self._has_lists:
            return window
        return listed_window(provider=self.provider, model=self.name)

    def price(self, usage: Usage) -> Usage:
        """See `Pricing.price`."""
        if usage.cost is not None or self._rates is not None or not self._has_lists:
            return usage if usage.cost is not None else priced(usage, self._rates)
        cost = list_price(usage, provider=self.provider, model=self.name)
        return usage if cost is None else usage.model_copy(update={"cost": cost})

    @abstractmethod
    def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        """Send the body and yield the events of the answer. Closing or cancelling the generator releases the
        connection.

        Args:
            body: the request.
            key: see `ModelRequest.key`.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        try:
            form = self._form(request)
        except (MessageError, SetupError) as error:  # refused in strict mode, or a required tool is unknown
            failed = self._api.answer(self.name).message(describe_error(error))
            yield with_failure(failed, ModelFailure())
            return
        answer, estimate = self._api.answer(self.name, self._rates, form.tool_names), UsageEstimate(request)
        fault, failure = None, None
        try:
            async with aclosing(self._send(form.body, request.key)) as events:
                async for event in events:
                    parsed = answer.take(_object(event))
                    if not estimate.has_begun:
                        parsed.insert(0, Begun(answer.response_id))
                    for each in parsed:
                        estimate.add(each)
                        yield self.price(each) if isinstance(each, Usage) else each
            if not answer.is_complete:
                fault, failure = _CUT, ModelFailure(is_transient=True)
        except Exception as error:  # noqa: BLE001  # of the SDK, of its HTTP client, of a malformed stream
            _log.debug("%s failed", self.name, exc_info=logged(error))
            fault, failure = describe_error(error), failure_of_error(error)
        yield self._whole(answer, estimate, fault, failure)

    def _whole(
        self, answer: Answer, estimate: UsageEstimate, fault: str | None, failure: ModelFailure | None
    ) -> AssistantMessage:
        """Return the message to record."""
        is_cut = fault is not None
        if answer.is_complete:  # the answer is whole; only the rest of the stream failed
            fault = None
        message = answer.message(fault)
        # A provider may end an answer with an error and without usage. If the answer had any text, it cost something.
        is_given_up = message.stop_reason == "error" and estimate.output_tokens > 0
        usage = estimate.usage() if not answer.is_counted and (is_cut or is_given_up) else message.usage
        if usage is not None:
            message = message.model_copy(update={"usage": self.price(usage)})
        if message.stop_reason != "error":
            return message
        if fault is None or failure is None:
            failure = failure_of_code(answer.error_code, message.error_message or "")
        return with_failure(message, failure)

    def _form(self, request: ModelRequest) -> ProviderRequest:
        form = form_request(self._api, self.name, request, self._options)
        for warning in form.warnings:
            _log.warning("session %s: %s", request.context.session, warning)
        return form


def key_headers(key: str | None) -> dict[str, str]:
    """Return the header with a call's idempotency key. The SDKs accept a key as an option but do not send the key."""
    if key is None:
        return {}
    if len(key) > _KEY_LENGTH or not (key.isascii() and key.isprintable()):
        key = sha256(key.encode(errors="surrogatepass")).hexdigest()
    return {"Idempotency-Key": key}


def _object(event: object) -> Json:
    """Return an event as a JSON object. Raise DecodeError if it is none: SDKs do not check the events they receive."""
    if not isinstance(event, dict):
        raise DecodeError("", "an event of a stream is a JSON object")
    return cast("Json", event)
