"""The definition of a request in the log: everything besides the context, that is the tools and options, and a hash of
these."""

import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from pydantic_core import PydanticSerializationError

from lanebus.bus.errors import InvalidContent
from lanebus.bus.messages.events import RequestDefined, ToolDefinition
from lanebus.handlers.agent.models.model import Model, Optioned
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("Definitions", "Offer", "define_request")

_HASH_LENGTH = 32

_log = logging.getLogger(__name__)


class Offer(NamedTuple):
    """The tools of one request, and the definition to record."""

    tools: tuple[ToolSpec, ...]
    definition: RequestDefined | None
    """the event that records the tools and options; None if the log cannot contain these"""


def define_request(model: Model, tools: Sequence[ToolSpec], max_tokens: int) -> RequestDefined | None:
    """Return the event that records the tools and options of a request; None if these are not valid JSON. Pure."""
    optioned = model if isinstance(model, Optioned) else None
    try:
        definition = RequestDefined(
            hash="",
            provider=model.provider,
            model=model.name,
            api=None if optioned is None else optioned.api,
            tools=tuple(
                ToolDefinition(name=tool.name, description=tool.description, input_schema=tool.schema) for tool in tools
            ),
            max_tokens=max_tokens,
            options=None if optioned is None else {**optioned.request_options} or None,
        )
        # Not sorted: the order of tools and fields is part of the request.
        content = definition.to_json_bytes()
    except (InvalidContent, PydanticSerializationError, RecursionError) as error:
        _log.warning("the tools and options of %s cannot be recorded: %s", model.name, type(error).__name__)
        return None
    return definition.model_copy(update={"hash": sha256(content).hexdigest()[:_HASH_LENGTH]})


class Definitions:
    """Keeps the last definition until the tools change."""

    def __init__(self) -> None:
        self._last: Offer | None = None

    def offer(self, model: Model, tools: Sequence[ToolSpec], max_tokens: int) -> Offer:
        """Return the tools of the next request, with the definition to record.

        `model` and `max_tokens` must be the same in each call.
        """
        specs = tuple(tools)
        # Most tools return the same spec object each time, so this mostly compares identities.
        if self._last is None or self._last.tools != specs:
            self._last = Offer(specs, define_request(model, specs, max_tokens))
        return self._last

    def leave_out(self, offer: Offer) -> None:
        """Remove a definition that is too large for the log. Later offers of the same tools have no definition."""
        self._last = offer._replace(definition=None)
