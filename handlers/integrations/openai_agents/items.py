"""Convert items of the Agents SDK to messages of the LLM lane, and read the usage of model calls."""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import NamedTuple
from weakref import ref

from agents import RunContextWrapper
from agents.usage import RequestUsage
from agents.usage import Usage as RunUsage
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    ImageBlock,
    MediaRef,
    MessageError,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.integration import Object, cut_text, now_ms, output_blocks, parse_json, read_call
from lanebus.messages import Block, DeveloperMessage, DocumentBlock, UnknownBlock

# Items of the SDK as messages of the LLM lane, for the page, usage and turns. They need not be exact.
#
# Consecutive items of one answer become one message: its thinking, texts and calls. Each tool's output is a message of
# its own.

_SPEAKERS: dict[str, type[SystemMessage | DeveloperMessage | UserMessage]] = {
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}
_PARTS_OF_CALL = frozenset({"type", "id", "call_id", "name", "status"})


ShownMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolResultMessage


class ShownItem(NamedTuple):
    """A message of the LLM lane, and the number of items that it shows."""

    message: ShownMessage
    items: int


def messages_of(texts: Sequence[str | None], *, limit_bytes: int) -> list[ShownItem]:
    """Return the messages that show items, in order. Together they show all items.

    Args:
        texts: each item as JSON text; None for a part of an answer that is not at hand.
        limit_bytes: maximum size of a message's JSON. A larger message shows the start of its text.
    """
    items = [_parsed_item(text) for text in texts]
    shown: list[ShownItem] = []
    for is_answer, group in groupby(items, _is_answer):
        members = [*group]
        parts = [members] if is_answer else [[item] for item in members]
        shown += [ShownItem(_limited(_message(part), limit_bytes), len(part)) for part in parts]
    return shown


def _parsed_item(text: str | None) -> Object:
    """Return an item. One that the bus could not store as JSON becomes a message of the user with its text."""
    if text is None:
        return {"role": "assistant", "content": "[stored apart]"}
    try:
        value = parse_json(_without_surrogates(text))
    except MessageError:
        return {"role": "user", "content": _without_surrogates(text)}
    return value if isinstance(value, dict) else {"role": "user", "content": json.dumps(value)}


def _without_surrogates(text: str) -> str:
    r"""Return JSON text with `?` in place of lone surrogates, such as `\ud800`, which the bus refuses."""
    if "\\ud" not in text:
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace").decode()
    except (ValueError, RecursionError):
        return text.encode("utf-8", "replace").decode()


def _is_answer(item: Object) -> bool:
    kind = item.get("type")
    if kind is None or kind == "message":
        return item.get("role") == "assistant"
    return not (isinstance(kind, str) and kind.endswith(("_output", "_response")))


def _message(items: Sequence[Object]) -> ShownMessage:
    first = items[0]
    if _is_answer(first):
        content = tuple(block for item in items for block in _answer_blocks(item))
        called = any(block.type == "toolCall" for block in content)
        return AssistantMessage(content=content, stop_reason="toolUse" if called else "stop", timestamp=now_ms())
    call_id = first.get("call_id")
    if isinstance(call_id, str) and str(first.get("type")).endswith("_output"):
        return ToolResultMessage(tool_call_id=call_id, content=_blocks(first.get("output")), timestamp=now_ms())
    speaker = _SPEAKERS.get(str(first.get("role")), UserMessage)
    content = _blocks(first["content"]) if "content" in first else (UnknownBlock(raw=first),)
    return speaker(content=content, timestamp=now_ms())


def _answer_blocks(item: Object) -> Sequence[Block]:
    try:
        match item:
            case {"role": "assistant", "content": str(text)}:
                return (TextBlock(text=text),)
            case {"role": "assistant", "content": list()}:
                return output_blocks({**item, "type": "message"}, "", {})
            case {"type": str(kind), "call_id": str(call_id)} if kind.endswith("_call") and kind != "function_call":
                name = item.get("name")
                rest = {key: value for key, value in item.items() if key not in _PARTS_OF_CALL}
                call = read_call(call_id, name if isinstance(name, str) else kind.removesuffix("_call"), "", {})
                return (call.model_copy(update={"arguments": rest, "call_type": kind}),)
            case _:
                return output_blocks(item, "", {})
    except MessageError:
        return (UnknownBlock(raw=item),)


def _blocks(content: JsonValue) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (TextBlock(text=content),)
    parts = content if isinstance(content, list) else [content]
    return tuple(_block(part) for part in parts)


def _block(part: JsonValue) -> Block:
    try:
        match part:
            case str(text) | {"text": str(text)}:
                return TextBlock(text=text)
            case {"type": "input_image", "image_url": str(url)}:
                return ImageBlock(media=MediaRef.from_url(url))
            case {"type": "input_image", "file_id": str(file_id)}:
                return ImageBlock(media=MediaRef(kind="file_id", file_id=file_id))
            case {"type": "input_file", "file_data": str(url)} | {"type": "input_file", "file_url": str(url)}:
                return DocumentBlock(media=MediaRef.from_url(url))
            case {"type": "input_file", "file_id": str(file_id)}:
                return DocumentBlock(media=MediaRef(kind="file_id", file_id=file_id))
            case _:
                pass
    except MessageError:
        pass
    return UnknownBlock(raw=part) if isinstance(part, dict) else TextBlock(text=json.dumps(part))


def _limited(message: ShownMessage, limit_bytes: int) -> ShownMessage:
    """Return the message. If it is too large, return one with the start of its text and the names of its calls."""
    if len(message.to_json_bytes()) <= limit_bytes:
        return message
    # A character of a text takes at most six bytes as JSON.
    text = cut_text(message.text_with_results(), limit_bytes // 12) + " […]"
    calls = message.tool_calls() if isinstance(message, AssistantMessage) else ()
    short = [call.model_copy(update={"arguments": {}, "arguments_raw": None, "signature": None}) for call in calls]
    content: tuple[Block, ...] = (TextBlock(text=text), *short)
    limited = message.model_copy(update={"content": content})
    if len(limited.to_json_bytes()) <= limit_bytes:
        return limited
    return message.model_copy(update={"content": content[:1]})


# The usage of model calls, as the SDK's run context reports it.


def usage_of(request: RequestUsage | RunUsage) -> Usage:
    """Return the usage of one model call. In the SDK the cached tokens are part of the input, here they are not."""
    read, write = request.input_tokens_details.cached_tokens, request.input_tokens_details.cache_write_tokens
    return Usage(
        input=max(request.input_tokens - read - write, 0),
        output=request.output_tokens,
        reasoning=request.output_tokens_details.reasoning_tokens,
        cache_read=read,
        cache_write=write,
        total_tokens=request.total_tokens,
    )


class UsageReader:
    """Finds the calls of a run that were made since its last append. Remembers only the newest run."""

    def __init__(self) -> None:
        self._usage: ref[RunUsage] | None = None
        self._seen = 0

    def with_usage(self, shown: Sequence[ShownItem], wrapper: RunContextWrapper[object] | None) -> list[ShownItem]:
        """Return the messages with the usage of the newest calls: the last call belongs to the last answer.

        Args:
            shown: the messages of an append.
            wrapper: the context of the run; None if there is no run, so no usage is known.
        """
        return [*shown] if wrapper is None else _with_usage(shown, self._new(wrapper.usage))

    def _new(self, usage: RunUsage) -> list[RequestUsage]:
        if self._usage is None or self._usage() is not usage:
            self._usage, self._seen = ref(usage), 0
        new = usage.request_usage_entries[self._seen :]
        self._seen = len(usage.request_usage_entries)
        return new


def _with_usage(shown: Sequence[ShownItem], requests: Iterable[RequestUsage]) -> list[ShownItem]:
    answers = [index for index, each in enumerate(shown) if isinstance(each.message, AssistantMessage)]
    result = [*shown]
    for index, request in zip(reversed(answers), islice(reversed([*requests]), len(answers)), strict=False):
        message, items = result[index]
        if isinstance(message, AssistantMessage):
            result[index] = ShownItem(message.model_copy(update={"usage": usage_of(request)}), items)
    return result
