"""A provider's answer on its way to a message: what all providers' readers share."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import Block, ToolCallBlock
from lanebus.bus.messages.json_reader import parse_json
from lanebus.bus.messages.message import AssistantMessage, StopReason, now_ms
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.providers.common.request import Json

__all__ = (
    "Answer",
    "Begun",
    "ModelEvent",
    "Piece",
    "answered",
    "count_of",
    "is_minted",
    "minted_id",
    "priced",
    "read_call",
    "text_of",
)

_MINTED = re.compile(r"call_[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the answer, as the model speaks it."""

    kind: Literal["text", "thinking", "toolCall"]
    text: str
    """to append; for a tool call a fragment of its JSON arguments"""
    block: int = 0
    """which block of the answer it belongs to, from 0"""
    tool_name: str | None = None
    """of a tool call, on its first piece"""


@dataclass(frozen=True, slots=True)
class Begun:
    """The provider has taken the request and begins to answer: from here on the call costs something."""

    response_id: str | None = None
    """its id for the answer, by which it may be asked later what it took"""


ModelEvent = Begun | Piece | Usage | AssistantMessage
"""That it begins, once, where a model tells it; a piece; the usage so far, each replacing the one before; at the very
end the whole message."""


class Answer(Protocol):
    """The message that a stream of one provider's events, as plain JSON, builds up."""

    @property
    def is_complete(self) -> bool:
        """The provider has said its last word."""
        ...

    @property
    def is_counted(self) -> bool:
        """The provider has told what all of the answer took, not only what it took so far."""
        ...

    @property
    def response_id(self) -> str | None:
        """The provider's id for the answer, as soon as it has told it."""
        ...

    @property
    def error_code(self) -> str | None:
        """The provider's word for a failure that it told of in the stream; None where it told of none."""
        ...

    def take(self, event: Json) -> list[ModelEvent]:
        """Fold in one event; gives what is to be told of it.

        Raises:
            DecodeError: it is none that the provider sends; an event of a kind we do not know says nothing.
        """
        ...

    def message(self, fault: str | None = None) -> AssistantMessage:
        """The message so far, whole if `is_complete`; with a `fault` the one that failed, without the calls that were
        not told to their end."""
        ...


def answered(
    provider: str,
    *,
    asked: str | None,
    told: str | None,
    content: tuple[Block, ...],
    stop_reason: StopReason,
    raw_stop_reason: str | None,
    error: str | None,
    usage: Usage | None,
    response_id: str | None,
) -> AssistantMessage:
    """The message that an answer is, stamped with the present time.

    Args:
        asked: the model as it was asked for. By this name its thinking goes back to it, so the message has it.
        told: the model as the provider calls it in full; kept in the metadata where it differs, and else the name.
    """
    model = asked or told
    return AssistantMessage(
        content=content,
        stop_reason=stop_reason,
        raw_stop_reason=raw_stop_reason,
        error_message=error,
        provider=provider,
        model=model,
        metadata={"responseModel": told} if told not in {None, model} else None,
        usage=usage,
        response_id=response_id,
        timestamp=now_ms(),
    )


def read_call(call_id: str, wire_name: str, arguments: str, names: Mapping[str, str]) -> ToolCallBlock:
    """A tool call from the JSON text of its arguments; text that does not parse is kept as it is.

    Args:
        names: see `ProviderRequest.tool_names`.
    """
    name = names.get(wire_name, wire_name)
    if not arguments:
        return ToolCallBlock(id=call_id, name=name)
    try:
        value = parse_json(arguments)
    except DecodeError:
        return ToolCallBlock(id=call_id, name=name, arguments_raw=arguments)
    return ToolCallBlock(id=call_id, name=name, arguments=value)


def minted_id() -> str:
    """A tool call's id, where the provider gives none: unlike all others, in this log and in any. Source: seed 004."""
    return f"call_{uuid.uuid4().hex}"


def is_minted(call_id: str) -> bool:
    """Whether an id is of the kind that `minted_id` gives: no provider knows it."""
    return _MINTED.fullmatch(call_id) is not None


def priced(usage: Usage, rates: Rates | None) -> Usage:
    """The usage with what it cost by the caller's rates; without rates the cost is unknown."""
    return usage if rates is None else usage.model_copy(update={"cost": usage.cost_at(rates, source="caller")})


def count_of(value: JsonValue) -> int:
    """A count of tokens; 0 where none was told."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text_of(block: Json, name: str) -> str:
    """A text in a JSON object; "" where there is none."""
    value = block.get(name)
    return value if isinstance(value, str) else ""
