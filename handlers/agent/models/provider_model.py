"""What the adapters of all providers have in common: all but the way to the provider.

An adapter sends a body and yields the events of the stream as plain JSON. Nothing is tried again here once an answer
has begun: what was said is kept as a failed message, and the log decides.

The adapters inherit, as they differ in one step, and everything else of them is the same to the letter.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import ClassVar, cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError, SetupError
from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.usage import Usage
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
    """A model behind one API: forms its requests, reads and prices its answers, tells what its failures mean."""

    API: ClassVar[str]
    """a name in `PROVIDERS`"""
    provider: str
    """what the log calls who runs it"""

    def __init__(self, name: str, options: ModelOptions) -> None:
        """
        Args:
            name: of the model.
        """
        self.name = name
        self._api, self._options = PROVIDERS[self.API], options
        self._rates = options.get("rates")
        # Now, as it takes a tenth of a second the first time, which must not stand in the way of an answer.
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
        """Send the body and give the events of the answer. Closed or cancelled it lets go of the connection.

        Args:
            key: see `ModelRequest.key`.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        try:
            form = self._form(request)
        except (MessageError, SetupError) as error:  # strict mode refuses, or the tool that it must call is not offered
            failed = self._api.answer(self.name).message(_told(error))
            yield with_failure(failed, ModelFailure())
            return
        answer, estimate = self._api.answer(self.name, self._rates, form.tool_names), UsageEstimate(request)
        fault, failure = None, None
        try:
            async with aclosing(self._send(form.body, request.key)) as events:
                async for event in events:
                    heard = answer.take(_object(event))
                    if not estimate.has_begun:
                        heard.insert(0, Begun(answer.response_id))
                    for each in heard:
                        estimate.hear(each)
                        yield self.price(each) if isinstance(each, Usage) else each
            if not answer.is_complete:
                fault, failure = _CUT, ModelFailure(is_transient=True)
        except Exception as error:  # noqa: BLE001  # of the SDK, of its HTTP client, of a malformed stream
            _log.debug("%s failed", self.name, exc_info=True)
            fault, failure = _told(error), failure_of_error(error)
        yield self._whole(answer, estimate, fault, failure)

    def _whole(
        self, answer: Answer, estimate: UsageEstimate, fault: str | None, failure: ModelFailure | None
    ) -> AssistantMessage:
        """The message as it is to be recorded."""
        is_cut = fault is not None
        if answer.is_complete:  # it was the rest of the stream that failed, and nobody needs it
            fault = None
        message = answer.message(fault)
        # One that the provider gave up says by itself that it is over; whether it cost something only its words tell.
        is_given_up = message.stop_reason == "error" and estimate.spoken_tokens > 0
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
    """The header that carries a call's key. The SDKs have an option for it, and put it into no header by themselves."""
    if key is None:
        return {}
    if len(key) > _KEY_LENGTH or not (key.isascii() and key.isprintable()):
        key = sha256(key.encode(errors="surrogatepass")).hexdigest()
    return {"Idempotency-Key": key}


def _object(event: object) -> Json:
    """An event as the JSON object that it has to be: SDKs give what they got."""
    if not isinstance(event, dict):
        raise DecodeError("", "an event of a stream is a JSON object")
    return cast("Json", event)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
