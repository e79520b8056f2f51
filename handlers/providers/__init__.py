"""Provider forms: write a context as a provider's request, and read a response or its event stream as a message.

Requests and responses are plain JSON: no SDK is imported. Start with `registry.py`, which lists the providers.
`request.py` and `answer.py` are the interfaces of a provider. docs/contributing.md says how to add a provider.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.providers.answer import Answer, Begun, ModelEvent, Piece, priced, read_call
    from lanebus.handlers.providers.anthropic import from_anthropic
    from lanebus.handlers.providers.openai_responses import OpenAIResponsesAnswer, output_blocks, to_openai_responses
    from lanebus.handlers.providers.openai_wire import usage_of
    from lanebus.handlers.providers.registry import PROVIDERS, Provider, are_prices_there, list_price, listed_window
    from lanebus.handlers.providers.request import (
        ContentRefused,
        FormOptions,
        Json,
        NoModel,
        ProviderRequest,
        ToolChoice,
        ToolSpec,
        copied,
    )

__all__ = (
    "PROVIDERS",
    "Answer",
    "Begun",
    "ContentRefused",
    "FormOptions",
    "Json",
    "ModelEvent",
    "NoModel",
    "OpenAIResponsesAnswer",
    "Piece",
    "Provider",
    "ProviderRequest",
    "ToolChoice",
    "ToolSpec",
    "are_prices_there",
    "copied",
    "from_anthropic",
    "list_price",
    "listed_window",
    "output_blocks",
    "priced",
    "read_call",
    "to_openai_responses",
    "usage_of",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.providers.answer": (
                "Answer",
                "Begun",
                "ModelEvent",
                "Piece",
                "priced",
                "read_call",
            ),
            "lanebus.handlers.providers.anthropic": ("from_anthropic",),
            "lanebus.handlers.providers.openai_responses": (
                "OpenAIResponsesAnswer",
                "output_blocks",
                "to_openai_responses",
            ),
            "lanebus.handlers.providers.openai_wire": ("usage_of",),
            "lanebus.handlers.providers.registry": (
                "PROVIDERS",
                "Provider",
                "are_prices_there",
                "list_price",
                "listed_window",
            ),
            "lanebus.handlers.providers.request": (
                "ContentRefused",
                "FormOptions",
                "Json",
                "NoModel",
                "ProviderRequest",
                "ToolChoice",
                "ToolSpec",
                "copied",
            ),
        },
    )
