"""Read answers of OpenAI's Chat Completions API, whole or as a stream of chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.content import AnnotationRef, Block, TextBlock, ThinkingBlock, UnknownBlock
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.usage import Rates, Usage
from lanebus.handlers.json_fields import as_object
from lanebus.handlers.providers.common.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
    minted_id,
    read_call,
    require_response,
    text_of,
)
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.chat.speech import Speech
from lanebus.handlers.providers.openai.shared.fields import index_at, list_at, refs_of, text_at
from lanebus.handlers.providers.openai.shared.usage import usage_of
from lanebus.handlers.providers.openai.shared.wire import PROVIDER

__all__ = ("OpenAIChatAnswer", "from_openai_chat")

_STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
    "content_filter": "guardRail",
}
_REFUSAL = "refusal"

_TEXTS: Mapping[str, Literal["text", "thinking"]] = {"thinking": "thinking", "content": "text", _REFUSAL: "text"}
_FUNCTION_CALL, _AUDIO = "function_call", "audio"

_THINKING = ("reasoning_content", "reasoning")
"""Keys of the model's thinking in answers of other servers with this API. Some servers send both keys."""


def from_openai_chat(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """Return the message of a whole response of Chat Completions. Only the first choice is read.

    Args:
        response: the response's JSON.
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: `response` is not a response of Chat Completions.
    """
    require_response(response)
    choices = list_at(response, "choices", "")
    if not choices:
        raise DecodeError("choices", "a response of Chat Completions has a choice")
    choice = as_object(choices[0], "choices.0")
    message = as_object(choice.get("message"), "choices.0.message")
    text_at(choice, "finish_reason", "choices.0", required=True)
    calls = list_at(message, "tool_calls", "choices.0.message")
    numbered: list[JsonValue] = [
        {**as_object(call, f"choices.0.message.tool_calls.{index}"), "index": index} for index, call in enumerate(calls)
    ]
    answer = OpenAIChatAnswer(model, rates, names)
    whole: Json = {**choice, "index": 0, "delta": {**message, "tool_calls": numbered}}
    answer.take({**response, "object": _CHUNK, "choices": [whole]}, content_key="message")
    return answer.message()


_CHUNK = "chat.completion.chunk"


@dataclass(slots=True)
class _Part:
    """A block that is still growing: a text under one of the keys of `_TEXTS`, audio, or a tool call."""

    name: str
    texts: list[str] = field(default_factory=list[str])
    refs: tuple[AnnotationRef, ...] = ()
    call_id: str = ""
    tool_name: str = ""
    raw: Json | None = None
    """JSON of a call of a tool that is not a function; otherwise None."""
    speech: Speech | None = None
    """Audio; otherwise None. For audio, `texts` is the transcript."""


class OpenAIChatAnswer(AnswerState):
    """Builds a message from the stream's chunks; see `Answer`. Only the first choice is read.

    Args:
        model: the requested model's name; None uses the model name in the stream.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        super().__init__(model, rates, names)
        self._parts: dict[str | tuple[int, str], _Part] = {}
        """Key of a text, or (index, id) of a call → the part. In the order in which the parts appeared."""
        self._last_calls: dict[int, tuple[int, str]] = {}
        """Index of a call → key in `_parts` of the last call with this index. Some servers repeat an index."""
        self._usage: Usage | None = None

    @property
    def is_counted(self) -> bool:
        """Whether a usage and the stop reason have arrived; see `Answer.is_counted`.

        A usage alone may cover only the beginning: some servers with this API send a usage with each chunk.
        """
        return self._usage is not None and self._stop is not None

    def take(self, event: Json, *, content_key: Literal["delta", "message"] = "delta") -> list[ModelEvent]:
        """Add one chunk of the stream, and return the model events that it adds; see `Answer.take`.

        Args:
            event: the chunk's JSON.
            content_key: key to name in errors. "message" is for a whole response, whose choice has no `delta`.
        """
        require_json(event)
        if isinstance(error := event.get("error"), dict):
            self._fail(error, "code", "type")
            return []
        if "choices" not in event and event.get("object") not in (None, _CHUNK):
            return []
        if not isinstance(choices := event.get("choices"), list):
            raise DecodeError("choices", "a chunk of Chat Completions has a list of choices")
        self.response_id, self._model = (
            self.response_id or text_of(event, "id") or None,
            self._model or text_of(event, "model") or None,
        )
        events: list[ModelEvent] = []
        for at, value in enumerate(choices):
            choice = as_object(value, f"choices.{at}")
            if choice.get("index") in (None, 0):
                events += self._choose(choice, f"choices.{at}", content_key)
        usage = usage_of(event.get("usage"), self._rates)
        self._usage = usage or self._usage
        return [*events, usage] if usage else events

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far; see `Answer.message`."""
        fault = fault or self._error
        parts = (part for part in self._parts.values() if not fault or self._is_whole(part))
        content = tuple(block for part in parts if (block := self._block(part)) is not None)
        return self._message(PROVIDER, content, stop=self._stopped(), usage=self._usage, fault=fault)

    def _choose(self, choice: Json, place: str, content_key: str) -> list[ModelEvent]:
        path = f"{place}.{content_key}"
        delta = as_object({} if (value := choice.get("delta")) is None else value, path)
        events: list[ModelEvent] = []
        for name, kind in _TEXTS.items():
            if text := _thinking_of(delta) if kind == "thinking" else text_at(delta, name, path):
                self._parts.setdefault(name, _Part(name)).texts.append(text)
                events.append(Piece(kind, text, self._number(name)))
        if (audio := delta.get(_AUDIO)) is not None:
            events += self._speak(as_object(audio, f"{path}.audio"), f"{path}.audio")
        for at, call in enumerate(list_at(delta, "tool_calls", path)):
            events += self._call(as_object(call, f"{path}.tool_calls.{at}"), f"{path}.tool_calls.{at}")
        # `function_call` is the deprecated form: one call without an id. If a server sends both forms, it is one call.
        if (function := delta.get(_FUNCTION_CALL)) is not None and not self._last_calls:
            within = f"{path}.{_FUNCTION_CALL}"
            events += self._grow(_FUNCTION_CALL, "", as_object(function, within), within)
        if refs := refs_of(list_at(delta, "annotations", path)):
            self._parts.setdefault("content", _Part("content")).refs += refs
        if stop := text_at(choice, "finish_reason", place):
            self._stop, self.is_complete = stop, True
        return events

    def _call(self, call: Json, path: str) -> list[ModelEvent]:
        index, call_id = index_at(call, "index", path), text_of(call, "id")
        if text_of(call, "type") not in {"", "function"}:
            # The call is not of a function, so the request did not offer this tool.
            self._last_calls[index] = (index, call_id)
            self._parts[index, call_id] = _Part(
                "call", raw={name: value for name, value in call.items() if name != "index"}
            )
            return []
        function = as_object({} if (value := call.get("function")) is None else value, f"{path}.function")
        key = self._last_calls.get(index)
        # An id alone does not start a call: some servers generate a new id for every piece.
        if key is None or (call_id and (text_of(function, "name") or (index, call_id) in self._parts)):
            if (index, call_id) not in self._parts:
                text_at(function, "name", f"{path}.function", required=True)
            key = self._last_calls[index] = (index, text_at(call, "id", path, required=True))
        return self._grow(key, call_id, function, f"{path}.function")

    def _grow(self, key: str | tuple[int, str], call_id: str, function: Json, path: str) -> list[ModelEvent]:
        fragment = text_at(function, "arguments", path)
        if key in self._parts:
            self._parts[key].texts.append(fragment)
            return [Piece("toolCall", fragment, self._number(key))]
        name = text_at(function, "name", path, required=True)
        self._parts[key] = _Part("call", [fragment], call_id=call_id or minted_id(), tool_name=name)
        return [Piece("toolCall", fragment, self._number(key), self._names.get(name, name))]

    def _speak(self, audio: Json, path: str) -> list[ModelEvent]:
        part = self._parts.setdefault(_AUDIO, _Part(_AUDIO, speech=Speech()))
        transcript = text_at(audio, "transcript", path)
        if part.speech is not None:
            part.speech.add(text_at(audio, "data", path), f"{path}.data")
        part.texts.append(transcript)
        return [Piece("text", transcript, self._number(_AUDIO))] if transcript else []

    def _number(self, key: str | tuple[int, str]) -> int:
        return list(self._parts).index(key)

    def _is_whole(self, part: _Part) -> bool:
        """Return whether a part arrived completely.

        A call is complete if its JSON object is closed, or if the provider named the stop reason. The start of another
        call does not complete a call, because calls may grow in parallel.
        """
        if part.name != "call" or self._stop is not None:
            return True
        call = read_call(part.call_id, part.tool_name, "".join(part.texts), self._names)
        return bool("".join(part.texts)) and call.arguments_raw is None and isinstance(call.arguments, dict)

    def _stopped(self) -> tuple[StopReason, str | None]:
        stop = _STOP_REASONS.get(self._stop or "", "stop")
        if stop == "stop" and _REFUSAL in self._parts:
            return "guardRail", _REFUSAL
        # If the request required the model to call a certain tool, the provider reports "stop".
        called = any(part.name == "call" and part.raw is None for part in self._parts.values())
        return "toolUse" if stop == "stop" and called else stop, self._stop

    def _block(self, part: _Part) -> Block | None:
        text = "".join(part.texts)
        if part.speech is not None:
            return part.speech.block(text)
        if part.raw is not None:
            return UnknownBlock(raw=part.raw)
        if part.name == "call":
            return read_call(part.call_id, part.tool_name, text, self._names)
        if _TEXTS[part.name] == "thinking":
            return ThinkingBlock(text=text)
        return TextBlock(text=text, annotations=part.refs or None)


def _thinking_of(delta: Json) -> str:
    return next((text for name in _THINKING if (text := text_of(delta, name))), "")
