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
    "NO_NAMES",
    "Answer",
    "AnswerState",
    "Begun",
    "ModelEvent",
    "Piece",
    "count_of",
    "is_minted",
    "minted_id",
    "priced",
    "read_call",
    "text_of",
)

NO_NAMES: Mapping[str, str] = {}

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


class AnswerState:
    """What the readers of all providers keep of an answer. Each derives its own `Answer` from it.

    Args:
        model: the model as it was requested; None takes the response's own name for it.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        self._requested, self._rates, self._names = model, rates, names
        self._model: str | None = None
        """The model as the provider names it."""
        self._stop: str | None = None
        """The provider's word for why the answer ended."""
        self._error: str | None = None
        self.response_id: str | None = None
        self.error_code: str | None = None
        self.is_complete = False

    def _identify(self, response: Json) -> None:
        self.response_id = text_of(response, "id") or self.response_id
        self._model = text_of(response, "model") or self._model

    def _fail(self, error: Json, *codes: str) -> None:
        """Note a failure that the provider reported; its code is the first of these fields that it has."""
        self._error, self.is_complete = text_of(error, "message") or "the provider failed and did not say why", True
        self.error_code = next((code for name in codes if (code := text_of(error, name))), None)

    def _message(
        self,
        provider: str,
        content: tuple[Block, ...],
        *,
        stop: tuple[StopReason, str | None],
        usage: Usage | None,
        fault: str | None,
        explanation: str | None = None,
    ) -> AssistantMessage:
        """Make the message, stamped with the present time.

        Its model is the requested one, as thinking goes back to it by this name. The provider's name for it is kept in
        the metadata if it is another.
        """
        model = self._requested or self._model
        return AssistantMessage(
            content=content,
            stop_reason="error" if fault else stop[0],
            raw_stop_reason=stop[1],
            error_message=fault or explanation,
            provider=provider,
            model=model,
            metadata={"responseModel": self._model} if self._model not in {None, model} else None,
            usage=usage,
            response_id=self.response_id,
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
