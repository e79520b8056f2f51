"""Write requests to OpenAI's Chat Completions API and read its answers. Requests are plain dicts, without an SDK."""

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Unpack, assert_never

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    Block,
    DeveloperMessage,
    LlmMessage,
    MediaRef,
    Rates,
    RedactedThinkingBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    require_json,
)
from lanebus.handlers.context import Context, as_object
from lanebus.handlers.providers.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
    minted_id,
    read_call,
    require_response,
    text_of,
)
from lanebus.handlers.providers.openai_wire import (
    PLACEHOLDER,
    PROVIDER,
    TOOL_NAME,
    Audio,
    File,
    Image,
    Part,
    Text,
    arguments_text,
    index_at,
    list_at,
    parts_of,
    refs_of,
    result_parts,
    text_at,
    texts_of,
    tool_choice,
    usage_of,
)
from lanebus.handlers.providers.request import (
    Json,
    ProviderRequest,
    RequestOptions,
    Target,
    WireIds,
    WireNames,
    WirePattern,
    as_text,
    build_request,
    called,
    copied,
    name_of,
)

# Source: the API's reference and the parameter types of its Python SDK (3.52).

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 40)


def to_openai_chat(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    Instructions come first, in order, each in its own role. The results of a message's calls follow the message. Images
    and other media of results follow in a user message, because a result can only be text. Metadata, raw provider
    objects, usage and names are not sent.

    Args:
        context: the context to send.
        options: see `RequestOptions`; without `max_tokens`, the API's own limit applies.

    Raises:
        NoModel: no model is passed, and the session names no model.
        ToolNotOffered: the tool choice names a tool that is not offered.
        ContentRefused: `strict` is True, and a part of the context would be left out or changed.
    """
    return build_request(PROVIDER, context, options, _Form)


class _Form:
    """Builds the request, message by message."""

    def __init__(self, target: Target) -> None:
        self._ids = WireIds(CALL_ID)
        self.call_ids = self._ids.originals
        self.names = WireNames(TOOL_NAME, (tool.name for tool in target.tools))
        self._target = target
        self._messages: list[JsonValue] = []
        self._moved: list[tuple[str, Sequence[Part]]] = []
        """Wire id of a call, and the media of its result. Only results that no user message has followed yet."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        texts = [Text(text) for text in texts_of(message.content, losses, "in instructions only text is taken")]
        developer = isinstance(message, DeveloperMessage) and not self._target.merge_developer
        if texts:
            self._messages.append({"role": "developer" if developer else "system", "content": content_of(texts)})

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        self._add_moved()
        parts = parts_of(message.content, "chat", self._target, losses)
        is_plain = all(isinstance(block, TextBlock) for block in message.content)
        # A message without content is sent as empty text. A message whose whole content is left out is not sent.
        if parts or not losses:
            self._messages.append({"role": "user", "content": content_of(parts, is_plain=is_plain)})

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        del index
        self._add_moved()
        ids = self._ids.take_all(message)
        wire, left_out = assistant_message(message, ids, self.names, self._target, losses)
        if wire:
            self._messages.append(wire)
        return left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        wire_id = self._ids.take_unanswered()
        result, media = result_message(wire_id, result_parts(message, "chat", self._target, losses))
        self._messages.append(result)
        self._moved += [(wire_id, media)] if media else []

    def body(self) -> Json:
        """See `Form`. It contains at least one message."""
        self._add_moved()
        messages = self._messages or [{"role": "user", "content": PLACEHOLDER}]
        return {"model": self._target.model, "messages": messages, **self._settings()}

    def _settings(self) -> Json:
        """Return the body without the model and the messages."""
        target = self._target
        settings: Json = {}
        if target.max_tokens is not None:
            # Newer models refuse the old name, `max_tokens`.
            settings["max_completion_tokens"] = target.max_tokens
        if target.tools:
            settings["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": self.names.of(tool.name),
                        "description": tool.description,
                        "parameters": copied(tool.schema),
                    },
                }
                for tool in target.tools
            ]
        settings |= tool_choice(target, self.names, nested=True)
        if target.store is not None:
            settings["store"] = target.store
        if target.stream:
            settings |= {"stream": True, "stream_options": {"include_usage": True}}
        return settings

    def _add_moved(self) -> None:
        if self._moved:
            self._messages.append(media_message(self._moved))
            self._moved = []


# Render the messages of a Chat Completions request.


def content_of(parts: Sequence[Part], *, is_plain: bool = True) -> JsonValue:
    """Return the parts as the API's `content`: a bare string for at most one text, otherwise an array.

    Args:
        parts: the parts of the content.
        is_plain: False returns an array also for one text. Used if a text replaces other content, such as a document.
    """
    if not parts:
        return ""
    first = parts[0]
    if is_plain and len(parts) == 1 and isinstance(first, Text):
        return first.text
    return [_part(part) for part in parts]


def assistant_message(
    message: AssistantMessage, ids: Sequence[str], names: WireNames, target: Target, losses: list[str]
) -> tuple[Json | None, bool]:
    """Render an assistant message.

    The API has one field for texts and one for calls, so the order between texts and calls is lost. It has no field for
    thinking. So all thinking, also of the same model, is sent as text or left out.

    Args:
        message: the message to render.
        ids: ids of the message's tool calls on the wire, in order.
        names: names of the tools on the wire.
        target: the options of the request.
        losses: list to which each loss is appended.

    Returns:
        The message, or None if nothing of it can be sent; and whether thinking was left out.
    """
    texts: list[Part] = []
    calls: list[JsonValue] = []
    left_out = False
    for block in message.content:
        match block:
            case TextBlock(text=text):
                texts += [Text(text)] if text else []
            case ThinkingBlock() | RedactedThinkingBlock():
                thinking = as_text(block, target)
                texts += [Text(thinking)] if thinking else []
                left_out = left_out or thinking is None
            case AudioBlock(transcript=str(transcript_text)) if transcript_text:
                texts.append(Text(transcript_text))
                losses.append("audio sent as its transcript: assistants cannot send it")
            case ToolCallBlock():
                calls.append(_call(block, ids[len(calls)], names, losses))
            case _:
                losses.append(f"{name_of(block)} left out: assistants cannot send it")
    wire: Json = {"role": "assistant"}
    if texts:
        wire["content"] = content_of(texts)
    if calls:
        wire["tool_calls"] = calls
    return wire if len(wire) > 1 else None, left_out


def result_message(wire_id: str, parts: Sequence[Part]) -> tuple[Json, list[Part]]:
    """Render a tool's result, which can only be text. Also return the media for the user message that follows."""
    texts = [part for part in parts if isinstance(part, Text)]
    media: list[Part] = [part for part in parts if not isinstance(part, Text)]
    return {"role": "tool", "tool_call_id": wire_id, "content": content_of(texts)}, media


def media_message(moved: Sequence[tuple[str, Sequence[Part]]]) -> Json:
    """Render the media of results as a user message. The id of the call precedes its media. Source: pi."""
    parts = [part for wire_id, media in moved for part in (Text(f"Media in the result of call {wire_id}:"), *media)]
    return {"role": "user", "content": content_of(parts)}


def _call(call: ToolCallBlock, wire_id: str, names: WireNames, losses: list[str]) -> Json:
    function: Json = {"name": called(call, names, losses), "arguments": arguments_text(call, losses)}
    return {"id": wire_id, "type": "function", "function": function}


def _part(part: Part) -> Json:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(url=url, detail=detail):
            return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}
        case Audio(data=data, format=audio_format):
            return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format}}
        case File(data=None, file_id=file_id):
            return {"type": "file", "file": {"file_id": file_id}}
        case File(data=data, filename=filename):
            return {"type": "file", "file": {"file_data": data, "filename": filename}}
        case _:
            assert_never(part)


class Speech:
    """The audio that has arrived so far."""

    def __init__(self) -> None:
        self._data: list[bytes] = []

    def add(self, data: str, path: str) -> None:
        """Append a piece.

        Raises:
            DecodeError: the piece is not base64.
        """
        try:
            self._data.append(binascii.a2b_base64(data, strict_mode=True))
        except binascii.Error as error:
            raise DecodeError(path, f"not base64: {error}") from None

    def block(self, transcript: str) -> Block | None:
        """Return the audio with its transcript. Without audio, return the transcript as text, or None if it is empty.

        The API does not name the format of the audio. The format is detected from the first bytes, or stays unknown.
        """
        data = b"".join(self._data)
        if not data:
            return TextBlock(text=transcript) if transcript else None
        return AudioBlock(media=MediaRef.from_bytes(data), transcript=transcript or None)


# Read answers of OpenAI's Chat Completions API, whole or as a stream of chunks.

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
