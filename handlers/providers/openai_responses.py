"""Write requests to OpenAI's Responses API and read its answers. Requests are plain dicts, without an SDK."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Unpack, assert_never

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    AssistantMessage,
    Block,
    DeveloperMessage,
    LlmMessage,
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
    parse_json,
    require_json,
)
from lanebus.handlers.context import Context, as_object
from lanebus.handlers.providers.answer import (
    NO_NAMES,
    AnswerState,
    ModelEvent,
    Piece,
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

CALL_ID = WirePattern.of("a-zA-Z0-9_-", 64)


def to_openai_responses(context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest:
    """Return the request that sends the context to a model. The request's warnings include the context's faults.

    System instructions before any input become `instructions`. Later system instructions, and all developer
    instructions, become items of the input, which keeps the order. Metadata, raw provider objects, usage and names are
    not sent.

    To send a model's thinking back later, set `body["include"] = ["reasoning.encrypted_content"]`. With this option,
    the model returns its thinking encrypted. The option is not set by default, because some models refuse it.

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
        self._instructions: list[str] = []
        self._input: list[JsonValue] = []
        self._reasoned: set[str] = set()
        """Ids of the reasoning items that the input has so far."""

    def instruct(self, message: LlmMessage, losses: list[str]) -> None:
        """See `Form`."""
        texts = texts_of(message.content, losses, "in instructions only text is taken")
        developer = isinstance(message, DeveloperMessage) and not self._target.merge_developer
        if developer or self._input:
            role = "developer" if developer else "system"
            self._input += [message_item(role, [Text(text) for text in texts])] if texts else []
        elif texts:
            self._instructions.append("".join(texts))

    def ask(self, message: UserMessage, losses: list[str]) -> None:
        """See `Form`."""
        parts = parts_of(message.content, "responses", self._target, losses)
        self._input += [message_item("user", parts)] if parts else []

    def answer(self, index: int, message: AssistantMessage, losses: list[str]) -> bool:
        """See `Form`."""
        ids = self._ids.take_all(message)
        items = AnswerItems(f"msg_{index}", self.names, self._target, losses, self._reasoned)
        self._input += items.of(message, ids)
        return items.left_out

    def give_result(self, message: ToolResultMessage, losses: list[str]) -> None:
        """See `Form`."""
        parts = result_parts(message, "responses", self._target, losses)
        self._input.append(result_item(self._ids.take_unanswered(), parts))

    def body(self) -> Json:
        """See `Form`."""
        return {"model": self._target.model, **self._settings()}

    def _settings(self) -> Json:
        """Return the body without the model. If the input is empty, it gets a placeholder as user message."""
        target = self._target
        settings: Json = {"instructions": "\n\n".join(self._instructions)} if self._instructions else {}
        settings["input"] = self._input or [message_item("user", [Text(PLACEHOLDER)])]
        if target.max_tokens is not None:
            settings["max_output_tokens"] = target.max_tokens
        if target.tools:
            settings["tools"] = [
                {
                    "type": "function",
                    "name": self.names.of(tool.name),
                    "description": tool.description,
                    "parameters": copied(tool.schema),
                    # The API's default is strict mode. It refuses most schemas that were not written for strict mode.
                    "strict": False,
                }
                for tool in target.tools
            ]
        settings |= tool_choice(target, self.names, nested=False)
        if target.store is not None:
            settings["store"] = target.store
        if target.stream:
            settings["stream"] = True
        return settings


# Render the input items of a Responses request.


def message_item(role: str, parts: Sequence[Part]) -> Json:
    """Render a system, developer or user message."""
    return {"type": "message", "role": role, "content": [_input_part(part) for part in parts]}


def result_item(wire_id: str, parts: Sequence[Part]) -> Json:
    """Render a tool's result: a bare string for at most one text, otherwise an array."""
    if not parts or (len(parts) == 1 and isinstance(parts[0], Text)):
        output: JsonValue = "".join(part.text for part in parts if isinstance(part, Text))
    else:
        output = [_input_part(part) for part in parts]
    return {"type": "function_call_output", "call_id": wire_id, "output": output}


class AnswerItems:
    """Renders one assistant message as items, in order. Adjacent texts of one phase become one message item.

    Thinking of the same model goes back as the original reasoning items. The API refuses a reasoning item without the
    item that followed it. So thinking is left out at the end of the message, and before a block that is left out. Calls
    have only a `call_id`, because the API refuses an `id` that OpenAI did not generate.
    """

    def __init__(
        self, message_id: str, names: WireNames, target: Target, losses: list[str], reasoned: set[str]
    ) -> None:
        """Make an empty list of items.

        Args:
            message_id: prefix of the ids that the API requires for message items; a number is appended.
            names: names of the tools on the wire.
            target: the options of the request.
            losses: list to which each loss is appended.
            reasoned: ids of the reasoning items of the request so far. New ids are added. The API refuses an id that
                appears twice.
        """
        self.left_out = False
        """Whether thinking was left out."""
        self._message_id, self._names, self._target, self._losses = message_id, names, target, losses
        self._reasoned = reasoned
        self._items: list[Json] = []

    def of(self, message: AssistantMessage, ids: Sequence[str]) -> list[Json]:
        """Return the items of a message.

        Args:
            message: the message to render.
            ids: ids of the message's tool calls on the wire, in order.
        """
        own, remaining = self._target.wrote(message), iter(ids)
        for block in message.content:
            match block:
                case TextBlock(text=text):
                    self._say(text, phase_of(block) if own else None)
                case ThinkingBlock() | RedactedThinkingBlock():
                    self._think(block, own=own)
                case ToolCallBlock():
                    self._items.append(self._call(block, next(remaining)))
                case _:
                    self._losses.append(f"{name_of(block)} left out: assistants cannot send it")
                    self._drop_reasoning("what followed it is left out")
        self._drop_reasoning("it ends the message")
        return self._items

    def _drop_reasoning(self, reason: str) -> None:
        """Remove the reasoning items at the end of the items so far. Each is a loss with this reason."""
        while self._items and self._items[-1]["type"] == "reasoning":
            del self._items[-1]
            self._losses.append(f"thinking left out: {reason}")

    def _say(self, text: str, phase: str | None = None) -> None:
        if not text:
            return
        part: Json = {"type": "output_text", "text": text, "annotations": []}
        last = self._items[-1] if self._items else {}
        said_before = last.get("content") if last.get("type") == "message" and last.get("phase") == phase else None
        if isinstance(said_before, list):
            said_before.append(part)
            return
        item_id = f"{self._message_id}_{len(self._items)}"
        item: Json = {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": [part]}
        self._items.append({**item, "phase": phase} if phase else item)

    def _think(self, block: ThinkingBlock | RedactedThinkingBlock, *, own: bool) -> None:
        item = reasoning_item(block) if own else None
        if item is not None and self._is_known(item) and (item_id := str(item["id"])) not in self._reasoned:
            self._reasoned.add(item_id)
            self._items.append(item)
        elif text := as_text(block, self._target):
            self._say(text)
        else:
            self.left_out = True

    def _is_known(self, item: Json) -> bool:
        """Return whether the API can resolve a reasoning item.

        An item without encrypted content is only an id. Such an item needs an answer that the provider stores.
        """
        return "encrypted_content" in item or self._target.store is not False

    def _call(self, call: ToolCallBlock, wire_id: str) -> Json:
        return {
            "type": "function_call",
            "call_id": wire_id,
            "name": called(call, self._names, self._losses),
            "arguments": arguments_text(call, self._losses),
        }


def _input_part(part: Part) -> Json:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Image(url=url, file_id=file_id, detail=detail):
            where: Json = {"image_url": url} if url else {"file_id": file_id}
            return {"type": "input_image", **where, "detail": detail or "auto"}
        case File(data=data, url=url, file_id=file_id, filename=filename):
            fields = {"file_data": data, "file_url": url, "file_id": file_id, "filename": filename}
            return {"type": "input_file", **{name: value for name, value in fields.items() if value}}
        case Audio():
            raise AssertionError("media.py returns no audio for this API")
        case _:
            assert_never(part)


# Read answers of OpenAI's Responses API, whole or as a stream of events.

_ENDS = ("completed", "incomplete", "failed", "cancelled")

_INCOMPLETE: Mapping[str, StopReason] = {"content_filter": "guardRail"}
"""Reason of an incomplete answer → stop reason. Any other reason means that the answer was too long: "length"."""

_UNFINISHED = ("in_progress", "incomplete")
"""Statuses of an item that did not arrive completely."""


def from_openai_responses(
    response: Json, *, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
) -> AssistantMessage:
    """Return the message of a whole response of the Responses API: the content of all its output items.

    Args:
        response: the response's JSON.
        model: the requested model's name; None uses the model name in the response.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.

    Raises:
        DecodeError: `response` is not a response of the Responses API, or is not finished.
    """
    require_response(response)
    if response.get("object") not in (None, "response") or not isinstance(response.get("output"), list):
        raise DecodeError("output", "a response of the Responses API has a list as output")
    require_json(response)
    answer = OpenAIResponsesAnswer(model, rates, names)
    answer.end(response, "")
    return answer.message()


class OpenAIResponsesAnswer(AnswerState):
    """Builds a message from the stream's events; see `Answer`.

    Args:
        model: the requested model's name; None uses the model name in the stream.
        rates: US dollars per million tokens; None leaves the cost unknown.
        names: `ProviderRequest.tool_names` of the request.
    """

    def __init__(
        self, model: str | None = None, rates: Rates | None = None, names: Mapping[str, str] = NO_NAMES
    ) -> None:
        super().__init__(model, rates, names)
        self._growing: dict[int, GrowingItem] = {}
        """Index of an item → the item, if it has not arrived completely."""
        self._whole: dict[int, list[Block]] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        """(index of an item, index of a part in the item) → index of the block in the message."""
        self._usage: Usage | None = None
        self._status: str | None = None
        self._reason: str | None = None
        self._is_refusal = False

    @property
    def is_counted(self) -> bool:
        """Whether the usage has arrived; see `Answer.is_counted`."""
        return self._usage is not None

    def take(self, event: Json) -> list[ModelEvent]:
        """Add one event of the stream, and return the model events that it adds; see `Answer.take`."""
        require_json(event)
        kind = event.get("type")
        match kind:
            case "response.created":
                self._identify(as_object(event.get("response"), "response"))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                return self.end(as_object(event.get("response"), "response"), "response")
            case "error":
                text_at(event, "message", "")  # refuse an error without readable text
                self._fail(event, "code")
            case "response.output_item.added":
                index, item = index_at(event, "output_index", ""), as_object(event.get("item"), "item")
                self._growing[index] = GrowingItem(index, item, self._names, self._numbers)
                return [*self._growing[index].begin()]
            case "response.output_item.done":
                index = index_at(event, "output_index", "")
                self._take_whole(index, as_object(event.get("item"), "item"), "item")
            case str() if kind in GROWTH:
                index = index_at(event, "output_index", "")
                if index not in self._growing:
                    raise DecodeError("output_index", f"no item {index} has begun")
                return [*self._growing[index].grow(kind, event)]
            case str():
                pass
            case _:
                raise DecodeError("type", "an event of the Responses API has a type")
        return []

    def end(self, response: Json, path: str) -> list[ModelEvent]:
        """Add the response that ends the stream.

        Args:
            response: the response's JSON.
            path: path of the response in the event, for errors.

        Raises:
            DecodeError: `response` is not finished, or not a response.
        """
        self._identify(response)
        self._status = text_at(response, "status", path) or "completed"
        if self._status not in _ENDS:
            raise DecodeError(f"{path}.status" if path else "status", f"it is not finished: {self._status}")
        details, error = response.get("incomplete_details"), response.get("error")
        self._reason = text_of(details, "reason") or None if isinstance(details, dict) else None
        if self._status == "failed":
            self._fail(error if isinstance(error, dict) else {}, "code")
        for index, item in enumerate(list_at(response, "output", path)):
            place = f"{path}.output.{index}" if path else f"output.{index}"
            self._take_whole(index, as_object(item, place), place)
        self._usage = usage_of(response.get("usage"), self._rates, f"{path}.usage" if path else "usage")
        self.is_complete = True
        return [self._usage] if self._usage else []

    def message(self, fault: str | None = None) -> AssistantMessage:
        """Return the message so far; see `Answer.message`."""
        fault = fault or self._error
        content = tuple(block for index in sorted({*self._whole, *self._growing}) for block in self._blocks(index))
        return self._message(PROVIDER, content, stop=self._stopped(), usage=self._usage, fault=fault)

    def _take_whole(self, index: int, item: Json, path: str) -> None:
        blocks = output_blocks(item, path, self._names)
        is_cut = self._error and item.get("type") == "function_call" and item.get("status") in _UNFINISHED
        self._whole[index] = [] if is_cut else blocks
        self._growing.pop(index, None)
        self._is_refusal = self._is_refusal or refuses(item)

    def _blocks(self, index: int) -> list[Block]:
        return self._whole[index] if index in self._whole else self._growing[index].blocks()

    def _stopped(self) -> tuple[StopReason, str | None]:
        match self._status:
            case "cancelled":
                return "aborted", self._status
            case "incomplete":
                return _INCOMPLETE.get(self._reason or "", "length"), self._reason or self._status
            case _ if self._is_refusal:
                return "guardRail", "refusal"
            case _:
                called = any(block.type == "toolCall" for blocks in self._whole.values() for block in blocks)
                return "toolUse" if called else "stop", self._status


# Read the output items of a response as blocks of a message.


def output_blocks(item: Json, path: str, names: Mapping[str, str]) -> list[Block]:
    """Return the blocks of one item: a message's texts, thinking, or a call. Other items are kept whole.

    Args:
        item: the item's JSON.
        path: path of the item, for errors.
        names: see `ProviderRequest.tool_names`.

    Raises:
        DecodeError: the item does not have the form of its type.
    """
    match item.get("type"):
        case "message":
            signature = phase_signature(item, path)
            places = ((f"{path}.content.{at}", part) for at, part in enumerate(list_at(item, "content", path)))
            return [_text_block(as_object(part, place), place, signature) for place, part in places]
        case "reasoning":
            return [thinking_block(item, path)]
        case "function_call":
            call, name = text_at(item, "call_id", path, required=True), text_at(item, "name", path, required=True)
            return [read_call(call, name, text_at(item, "arguments", path), names)]
        case _:
            text_at(item, "type", path, required=True)
            return [UnknownBlock(raw=item)]


def refuses(item: Json) -> bool:
    """Return whether the item is a message in which the model refuses to answer."""
    content = item.get("content")
    parts = content if item.get("type") == "message" and isinstance(content, list) else []
    return any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)


def _text_block(part: Json, path: str, signature: str | None) -> Block:
    match part.get("type"):
        case "output_text":
            refs = refs_of(list_at(part, "annotations", path))
            text = text_at(part, "text", path, required=True)
            return TextBlock(text=text, annotations=refs or None, signature=signature)
        case "refusal":
            return TextBlock(text=text_at(part, "refusal", path, required=True), signature=signature)
        case _:
            text_at(part, "type", path, required=True)
            return UnknownBlock(raw=part)


_PARTS = {
    "response.output_text.delta": "content_index",
    "response.refusal.delta": "content_index",
    "response.reasoning_summary_text.delta": "summary_index",
    "response.reasoning_text.delta": "content_index",
}
"""Kind of event → the event's key for the index of the part."""

_ARGUMENTS = "response.function_call_arguments.delta"

GROWTH = frozenset({*_PARTS, _ARGUMENTS})
"""Kinds of the events that extend an item."""


class GrowingItem:
    """One item that is still arriving. Returns its pieces, and its blocks so far if the whole item never arrives."""

    def __init__(self, index: int, item: Json, names: Mapping[str, str], numbers: dict[tuple[int, int], int]) -> None:
        """Start an item.

        Args:
            index: the item's index.
            item: the item's JSON at its start.
            names: see `ProviderRequest.tool_names`.
            numbers: (index of an item, index of a part in the item) → index of the block. New parts are added. All
                items of an answer share this dict.
        """
        self._index, self._item, self._names, self._numbers = index, item, names, numbers
        self._is_thinking = text_at(item, "type", "item", required=True) == "reasoning"
        self._texts: dict[int, str] = {}

    def begin(self) -> Iterator[Piece]:
        """Yield the first piece of a call. Yield nothing for other items: they start with their first text."""
        if self._item["type"] == "function_call":
            name = text_at(self._item, "name", "item", required=True)
            yield Piece("toolCall", text_of(self._item, "arguments"), self._number(0), self._names.get(name, name))

    def grow(self, kind: str, event: Json) -> Iterator[Piece]:
        """Yield the piece in an event whose kind is in `GROWTH`.

        Raises:
            DecodeError: the event does not have the form of its kind.
        """
        if kind == _ARGUMENTS:
            yield Piece("toolCall", text_at(event, "delta", "", required=True), self._number(0))
            return
        part, text = index_at(event, _PARTS[kind], ""), text_at(event, "delta", "", required=True)
        if not self._is_thinking:
            self._texts[part] = self._texts.get(part, "") + text
            yield Piece("text", text, self._number(part))
            return
        # All parts of a reasoning item become one thinking block; each part is a paragraph.
        gap = "\n\n" if self._texts and part not in self._texts else ""
        self._texts[part] = self._texts.get(part, "") + text
        yield Piece("thinking", gap + text, self._number(0))

    def blocks(self) -> list[Block]:
        """Return the blocks so far. An unfinished call becomes no block. Unfinished thinking has no signature."""
        texts = [text for _, text in sorted(self._texts.items())]
        if self._is_thinking:
            return [ThinkingBlock(text="\n\n".join(texts))] if texts else []
        return [TextBlock(text=text) for text in texts]

    def _number(self, part: int) -> int:
        return self._numbers.setdefault((self._index, part), len(self._numbers))


# Read reasoning items of the Responses API as thinking, and write them back without loss.
#
# A reasoning item has an id, readable summaries, and encrypted content that only OpenAI reads. The item becomes one of
# two blocks:
#
# - A `ThinkingBlock` if the item has readable text. `text` is the summaries with blank lines between them, or the
# reasoning itself, which open models return. `details` is the list of summaries, `signature` the rest of the item.
# - A `RedactedThinkingBlock` if the item has no readable text. `data` is the rest of the item.
#
# The rest of the item is JSON text of an object with all keys except the type and the summaries. It includes the id,
# because the API refuses encrypted content without the id. An id alone is valid only while the provider stores the
# answer. A signature in another form comes from another API and is not sent.

_APART = ("type", "summary")
_STATUS = (None, "in_progress", "completed", "incomplete")


def thinking_block(item: Json, path: str) -> ThinkingBlock | RedactedThinkingBlock:
    """Return the thinking of a reasoning item.

    Raises:
        DecodeError: `item` is not a reasoning item.
    """
    summaries = _texts(item, "summary", path)
    texts = summaries or _texts(item, "content", path)
    text_at(item, "id", path, required=True)
    text_at(item, "encrypted_content", path)
    rest = {name: value for name, value in item.items() if name not in _APART and value is not None}
    signature = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    if not texts:
        return RedactedThinkingBlock(data=signature)
    return ThinkingBlock(text="\n\n".join(texts), details=tuple(summaries) or None, signature=signature)


def reasoning_item(block: ThinkingBlock | RedactedThinkingBlock) -> Json | None:
    """Return the reasoning item that the thinking was read from; None if it was not read from a reasoning item."""
    signature = block.signature if isinstance(block, ThinkingBlock) else block.data
    try:
        rest = as_object(parse_json(signature or ""), "")
        # pi stores the whole item as the signature, including the summaries.
        kept = _texts(rest, "summary", "")
        thinking_block(rest, "")
    except DecodeError:
        return None
    if rest.get("status") not in _STATUS:
        return None
    details = block.details if isinstance(block, ThinkingBlock) else None
    summary: list[JsonValue] = [{"type": "summary_text", "text": text} for text in details or kept]
    return {
        "type": "reasoning",
        **{name: value for name, value in rest.items() if name not in _APART and value is not None},
        "summary": summary,
    }


def _texts(item: Json, name: str, path: str) -> list[str]:
    place = f"{path}.{name}"
    parts = enumerate(list_at(item, name, path))
    return [text_at(as_object(part, f"{place}.{at}"), "text", f"{place}.{at}", required=True) for at, part in parts]


# Store the phase of a message item: commentary or final answer. The model expects its phases back in later requests.
#
# The phase is stored as the signature of the message's texts: JSON text of an object with the key `phase`.

_PHASES = frozenset({"commentary", "final_answer"})
"""The phases that the API accepts. Source: `ResponseOutputMessageParam` of the API's Python SDK (3.52)."""


def phase_signature(item: Json, path: str) -> str | None:
    """Return the signature that stores a message item's phase, such as "commentary"; None if the item has no phase.

    Raises:
        DecodeError: the item's phase is not text.
    """
    phase = text_at(item, "phase", path)
    return json.dumps({"phase": phase}) if phase else None


def phase_of(block: TextBlock) -> str | None:
    """Return the phase that a text's signature stores, such as "commentary"; None if the API accepts no such phase."""
    try:
        kept = parse_json(block.signature or "")
    except DecodeError:
        return None
    phase = kept.get("phase") if isinstance(kept, dict) else None
    return phase if isinstance(phase, str) and phase in _PHASES else None
