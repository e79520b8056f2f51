"""The interface of an answer that arrives in pieces, and the code that the readers of all providers share."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, require_instance, require_text
from lanebus.bus.messages import AssistantMessage, Block, Rates, StopReason, ToolCallBlock, Usage, now_ms, parse_json
from lanebus.handlers.providers.request import Json

NO_NAMES: Mapping[str, str] = {}

_MINTED = re.compile(r"call_[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a streamed answer."""

    kind: Literal["text", "thinking", "toolCall"]
    text: str
    """Text to append; for a tool call, a fragment of its JSON arguments."""
    block: int = 0
    """Index of the block that the piece belongs to."""
    tool_name: str | None = None
    """Name of the called tool; only the first piece of a call has it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The provider has accepted the request and starts to answer. After this event the call costs money."""

    response_id: str | None = None
    """The provider's id for the answer. With this id, the usage can be requested later."""


ModelEvent = Begun | Piece | Usage | AssistantMessage
"""One event of a model call: `Begun` at most once, pieces, the usage so far, and finally the whole message.

Each `Usage` replaces the previous `Usage`.
"""


class Answer(Protocol):
    """Builds a message from the events of one provider's stream, which are plain JSON."""

    @property
    def is_complete(self) -> bool:
        """Whether the provider has ended the answer."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether the usage covers the whole answer, and not only its beginning."""
        ...

    @property
    def response_id(self) -> str | None:
        """The provider's id for the answer; None until the stream names it."""
        ...

    @property
    def error_code(self) -> str | None:
        """The provider's code for a failure that the stream reported; None if the stream reported no failure."""
        ...

    def take(self, event: Json) -> list[ModelEvent]:
        """Add one event of the stream.

        Args:
            event: the event's JSON. Unknown kinds are ignored.

        Returns:
            The model events that the event adds, in order. Many events add none.

        Raises:
            DecodeError: the event does not have the provider's form.
        """
        ...

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far. The message is whole if `is_complete` is True.

        Args:
            fault: text that says why the call failed; None if it did not fail. With a fault, the message has the stop
                reason "error" and lacks calls that did not arrive completely.
        """
        ...


class AnswerState:
    """Base class of each provider's `Answer`. Holds what reading an answer needs for any provider.

    Args:
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        require_text("model", model, is_optional=True)
        require_instance("names", names, Mapping, "pass the `tool_names` of the ProviderRequest")
        self._requested, self._rates, self._names = model, rates, names
        self._model: str | None = None
        """The model's name in the response."""
        self._stop: str | None = None
        """The stop reason as the provider reports it."""
        self._error: str | None = None
        self.response_id: str | None = None
        self.error_code: str | None = None
        self.is_complete = False

    def _identify(self, response: Json) -> None:
        self.response_id = text_of(response, "id") or self.response_id
        self._model = text_of(response, "model") or self._model

    def _fail(self, error: Json, *codes: str) -> None:
        """Record a failure that the provider reported, and end the answer.

        Args:
            error: the error's JSON.
            codes: names of the fields that may hold the error's code. The first field with a text is used.
        """
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
        """Return the message, with the current time as its timestamp.

        The message's `model` is the name of the requested model, because thinking goes back only to the model with this
        name. If the response has another name for the model, the metadata keeps that name.
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


def require_response(response: object) -> None:
    """Raise InvalidArgument unless the value is the JSON of a provider's response, as a dict."""
    require_instance("response", response, dict, 'pass its JSON as a dict, such as `response.model_dump(mode="json")`')


def read_call(call_id: str, wire_name: str, arguments: str, names: Mapping[str, str]) -> ToolCallBlock:
    """Return a tool call. If `arguments` is not valid JSON, the call keeps the text as `arguments_raw`.

    Args:
        call_id: the call's id.
        wire_name: the tool's name in the response.
        arguments: JSON text; may be empty.
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
    """Return a new, globally unique id for a tool call without an id. Source: the `universal-client` system."""
    return f"call_{uuid.uuid4().hex}"


def is_minted(call_id: str) -> bool:
    """Return whether `minted_id` generated this id. No provider knows such an id."""
    return _MINTED.fullmatch(call_id) is not None


def priced(usage: Usage, rates: Rates | None) -> Usage:
    """Return the usage with its cost at the caller's rates. Without rates the cost is unknown."""
    return usage if rates is None else usage.model_copy(update={"cost": usage.cost_at(rates, source="caller")})


def count_of(value: JsonValue) -> int:
    """Return a count of tokens; 0 if `value` is not a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text_of(block: Json, name: str) -> str:
    """Return a text field of a JSON object; "" if it is missing or not text."""
    value = block.get(name)
    return value if isinstance(value, str) else ""
