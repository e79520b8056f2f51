"""All providers by name. Each provider's module is imported on first use."""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import NamedTuple, Protocol, Unpack, cast

from lanebus.bus.messages import AssistantMessage, Rates
from lanebus.handlers.context import Context
from lanebus.handlers.projections import Lazy
from lanebus.handlers.providers.answer import Answer
from lanebus.handlers.providers.options import RequestOptions
from lanebus.handlers.providers.request import Json, ProviderRequest


class _ToRequest(Protocol):
    def __call__(self, context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest: ...


class _FromResponse(Protocol):
    def __call__(
        self, response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = ...
    ) -> AssistantMessage: ...


class _MakeAnswer(Protocol):
    def __call__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = ...
    ) -> Answer: ...


class Provider(NamedTuple):
    """The functions that write requests to one provider's API and read its answers."""

    to_request: _ToRequest
    """Turns a context into a request: its body, its warnings, and the ids and names that differ from the log's."""
    from_response: _FromResponse
    """Turns a whole response into a message."""
    answer: _MakeAnswer
    """Creates an empty answer. The events of a stream are added to this answer."""


_PLACES = {
    "anthropic": ("anthropic", "to_anthropic", "from_anthropic", "AnthropicAnswer"),
    "openai-chat": ("openai.chat", "to_openai_chat", "from_openai_chat", "OpenAIChatAnswer"),
    "openai-responses": (
        "openai.responses",
        "to_openai_responses",
        "from_openai_responses",
        "OpenAIResponsesAnswer",
    ),
    "gemini": ("gemini", "to_gemini", "from_gemini", "GeminiAnswer"),
}


def _load(name: str) -> Provider:
    package, *names = _PLACES[name]
    module = import_module(f"lanebus.handlers.providers.{package}")
    to_request, from_response, answer = (getattr(module, each) for each in names)
    # A test type-checks each function by calling it.
    return Provider(cast("_ToRequest", to_request), cast("_FromResponse", from_response), cast("_MakeAnswer", answer))


PROVIDERS = Lazy({name: partial(_load, name) for name in _PLACES})
"""Name of an API, such as "openai-chat" → its functions."""
