"""What a model is offered beside the context, as the log tells it: its tools and options, under a hash of both."""

import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from lanebus.bus.messages.events import RequestDefined, ToolDefinition
from lanebus.handlers.agent.models.model import Model, Optioned
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("Definitions", "Offer", "define_request")

_HASH_LENGTH = 32

_log = logging.getLogger(__name__)


class Offer(NamedTuple):
    """What one request offers its model."""

    tools: tuple[ToolSpec, ...]
    definition: RequestDefined | None
    """None if the log cannot tell it"""


def define_request(model: Model, tools: Sequence[ToolSpec], max_tokens: int) -> RequestDefined | None:
    """The event that tells what these requests have beside the context; None if something of it is no JSON. Pure."""
    told = model if isinstance(model, Optioned) else None
    try:
        definition = RequestDefined(
            hash="",
            provider=model.provider,
            model=model.name,
            api=None if told is None else told.api,
            tools=tuple(
                ToolDefinition(name=tool.name, description=tool.description, input_schema=tool.schema) for tool in tools
            ),
            max_tokens=max_tokens,
            options=None if told is None else {**told.request_options} or None,
        )
        # Not sorted: the order of tools and of their fields shows in the request.
        content = definition.to_json_bytes()
    except (ValidationError, PydanticSerializationError, RecursionError) as error:
        _log.warning("what %s is offered is not told in the log: %s", model.name, error)
        return None
    return definition.model_copy(update={"hash": sha256(content).hexdigest()[:_HASH_LENGTH]})


class Definitions:
    """Remembers the last definition: it is made anew only when the tools have changed."""

    def __init__(self) -> None:
        self._last: Offer | None = None

    def offer(self, model: Model, tools: Sequence[ToolSpec], max_tokens: int) -> Offer:
        """What a request offers now. The other two arguments are the same each time."""
        specs = tuple(tools)
        # Most tools give the same object each time, which makes this a comparison of addresses.
        if self._last is None or self._last.tools != specs:
            self._last = Offer(specs, define_request(model, specs, max_tokens))
        return self._last

    def leave_out(self, offer: Offer) -> None:
        """Its definition does not fit into the log: it is not tried again."""
        self._last = offer._replace(definition=None)
