"""Read one message of the graph format. A message with several tool results becomes several lanebus messages."""

import json
from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, TextBlock, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.json_parser import DEPTH_LIMIT, require_depth, require_json
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.codecs.codec import ORIGIN
from lanebus.handlers.codecs.graph.batch import batch_name
from lanebus.handlers.codecs.graph.blocks_in import BlockReader, renamed
from lanebus.handlers.codecs.graph.calls import calls_beside
from lanebus.handlers.codecs.graph.dialect import MESSAGE_ALIASES, GraphDialect
from lanebus.handlers.codecs.graph.guarded_patch import guarded_patches
from lanebus.handlers.codecs.graph.message_out import plain
from lanebus.handlers.codecs.graph.moment import read_moment
from lanebus.handlers.codecs.graph.origin import MessageOrigin
from lanebus.handlers.codecs.graph.shapes import MessageShape, UsageShape, checked
from lanebus.handlers.json_fields import Object

__all__ = ("read",)

_ROOM = 8


def read(value: JsonValue, dialect: GraphDialect) -> tuple[LlmMessage, ...]:
    """Read one message of the graph format.

    Args:
        value: the message.
        dialect: the graph format. The origin stores only how `value` differs from the usual spelling of this format.

    Raises:
        DecodeError: the message does not have the graph format's form, or it is a live delta, which no lane stores.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    require_json(value)
    _require_room(value)
    spelled, used = renamed(value, dict(MESSAGE_ALIASES), "")
    names = {own: name for name, own in MESSAGE_ALIASES.items() if name in used}
    shape = checked(MessageShape, spelled, "", names)
    if shape.delta:
        raise DecodeError("delta", "a live delta is not stored. Read it with read_deltas")
    reader = BlockReader(dialect)
    content = _content(shape.content, reader)
    messages, origin = _messages(shape, content, reader)
    if used:
        reader.spellings[""] = used
    has_int_id = isinstance(value.get("message_id"), int)
    origin = replace(origin, spellings=reader.spellings, has_int_id=has_int_id)
    return _remembering(messages, _least(value, messages, origin, dialect), dialect)


def _require_room(value: JsonValue) -> None:
    """Raise DecodeError if `value` is nested too deep to be stored in an origin, which adds several levels."""
    nested: list[JsonValue] = [value]
    for _ in range(_ROOM - 1):
        nested = [nested]
    try:
        require_depth(nested)
    except DecodeError:
        raise DecodeError("", f"nested deeper than {DEPTH_LIMIT - _ROOM}") from None


def _content(content: JsonValue, reader: BlockReader) -> tuple[Block, ...]:
    match content:
        case None:
            return ()
        case str():
            reader.spellings["content"] = frozenset({"string"})
            return (TextBlock(text=content),)
        case list():
            return tuple(reader.block(block, f"content.{index}") for index, block in enumerate(content))
        case _:
            raise DecodeError("content", "must be a list of blocks, or text")


def _messages(
    shape: MessageShape, content: tuple[Block, ...], reader: BlockReader
) -> tuple[tuple[LlmMessage, ...], MessageOrigin]:
    moment = read_moment(shape.timestamp, "timestamp")
    id = str(shape.message_id) if "message_id" in shape.model_fields_set else None
    metadata = {key: value for key, value in (shape.metadata or {}).items() if key != ORIGIN} or None
    match shape.role:
        case "user":
            user = UserMessage(content=content, timestamp=moment, id=id, metadata=metadata, raw=shape.raw)
            return (user,), MessageOrigin()
        case "system":
            system = SystemMessage(content=content, timestamp=moment, id=id, metadata=metadata, raw=shape.raw)
            return (system,), MessageOrigin()
        case "assistant":
            own = [block.id for block in content if isinstance(block, ToolCallBlock)]
            more = calls_beside(shape.tools_calls or (), own)
            assistant = AssistantMessage(
                content=(*content, *more),
                timestamp=moment,
                id=id,
                metadata=metadata,
                raw=shape.raw,
                usage=None if shape.usages is None else _usage(shape.usages),
                stop_reason="toolUse" if own or more else "stop",
            )
            return (assistant,), MessageOrigin(added_calls=len(more))
        case "tool":
            results, origin = _results(content, reader)
            first, *others = results
            batch = None if not others else id or batch_name(results)
            head = first.model_copy(
                update={"timestamp": moment, "id": id, "metadata": metadata, "raw": shape.raw, "batch_id": batch}
            )
            rest = (
                result.model_copy(
                    update={"timestamp": moment, "id": None if id is None else f"{id}#{number}", "batch_id": batch}
                )
                for number, result in enumerate(others, 2)
            )
            return (head, *rest), origin


def _results(content: tuple[Block, ...], reader: BlockReader) -> tuple[list[ToolResultMessage], MessageOrigin]:
    """Return one message per result. A block beside results goes to the result before it, or else to the first."""
    places = [index for index, block in enumerate(content) if isinstance(block, ToolResultBlock)]
    if not places:
        # A message without results answers no call. The log keeps the message, but no request contains it.
        return [ToolResultMessage(tool_call_id="", content=content)], MessageOrigin(is_bare=True)
    results: list[ToolResultMessage] = []
    beside: list[tuple[int, int]] = []
    for place, end in zip(places, (*places[1:], len(content)), strict=True):
        block = content[place]
        assert isinstance(block, ToolResultBlock)  # noqa: S101  # by what `places` is
        before = content[:place] if not results else ()
        after = content[place + 1 : end]
        result_content = block.content
        if block.structured is not None and (before or after):
            # A model that reads content does not read structured JSON, so it becomes text.
            result_content = (TextBlock(text=json.dumps(block.structured, ensure_ascii=False)),)
            reader.add(f"content.{place}", "tool_result", "said")
        results.append(
            ToolResultMessage(
                tool_call_id=block.tool_call_id,
                content=(*before, *result_content, *after),
                structured=block.structured,
                is_error=block.is_error,
                status=block.status,
            )
        )
        beside.append((len(before), len(after)))
    return results, MessageOrigin(beside=tuple(beside) if any(map(any, beside)) else ())


def _usage(shape: UsageShape) -> Usage:
    cached = shape.cache_read_input_tokens + shape.cache_creation_input_tokens
    # Prompt tokens include cached tokens, as with OpenAI and Gemini, unless the cached count is larger.
    without = shape.prompt_tokens - cached if shape.prompt_tokens >= cached else shape.prompt_tokens
    return Usage(
        input=without,
        output=shape.completion_tokens,
        reasoning=shape.reasoning_tokens,
        cache_read=shape.cache_read_input_tokens,
        cache_write=shape.cache_creation_input_tokens,
        total_tokens=shape.total_tokens,
        image_tokens=shape.image_tokens,
        audio_tokens=shape.audio_tokens,
    )


def _least(
    value: Object, messages: Sequence[LlmMessage], origin: MessageOrigin, dialect: GraphDialect
) -> MessageOrigin:
    """Return the origin with its patches. `is_sparse` gets the value that needs fewer patches."""
    found = [
        replace(way, residue=tuple(guarded_patches(plain(messages, way, dialect).value, value)))
        for way in (origin, replace(origin, is_sparse=True))
    ]
    return min(found, key=lambda way: len(way.residue))


def _remembering(
    messages: tuple[LlmMessage, ...], origin: MessageOrigin, dialect: GraphDialect
) -> tuple[LlmMessage, ...]:
    stored = origin.to_json(dialect.name)
    if stored is None:
        return messages
    first, *others = messages
    return (first.model_copy(update={"metadata": {**(first.metadata or {}), ORIGIN: stored}}), *others)
