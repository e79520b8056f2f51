"""Write one lanebus message, or the tool results of one batch, as one message of the graph format."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, TextBlock, ToolCallBlock
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.codecs.graph.blocks_out import BlockWriter
from lanebus.handlers.codecs.graph.calls import calls_out
from lanebus.handlers.codecs.graph.dialect import MESSAGE_ALIASES, GraphDialect
from lanebus.handlers.codecs.graph.moment import iso_time, seconds
from lanebus.handlers.codecs.graph.origin import MessageOrigin, without_origin
from lanebus.handlers.json_fields import Object

__all__ = ("Plain", "plain")


@dataclass(frozen=True, slots=True)
class Plain:
    """One graph message, before the patches of its origin are applied."""

    value: Object
    dropped: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """(index of the lanebus message, index of the block in that message) → why the block was left out."""
    inner: tuple[str, ...] = ()
    """One reason for each block that was left out inside a tool result. The reasons have no paths. The codec finds the
    paths when it reads `value` back and compares."""


def plain(messages: Sequence[LlmMessage], origin: MessageOrigin, dialect: GraphDialect) -> Plain:
    """Write one message, or the tool results of one batch, in the spelling of `origin`."""
    writer = _Writer(messages, origin, dialect)
    first = messages[0]
    required: Object = {} if first.id is None else {"message_id": _id(first.id, origin)}
    required |= {"role": _role(first), "content": writer.content()}
    calls = [block for message in messages for block in message.content if isinstance(block, ToolCallBlock)]
    usage = first.usage if isinstance(first, AssistantMessage) else None
    optional: Object = {
        "delta": False,
        "tools_calls": calls_out(calls) if isinstance(first, AssistantMessage) else None,
        "reasoning": None,
        "timestamp": (iso_time if dialect.writes_iso_time else seconds)(first.timestamp),
        "metadata": without_origin(first.metadata),
        "usages": None if usage is None else _usage(usage, is_sparse=origin.is_sparse),
        "raw": first.raw if isinstance(first.raw, dict) else None,
    }
    if origin.is_sparse:
        optional = {key: value for key, value in optional.items() if value is not None and value is not False}
        if not optional["metadata"]:
            del optional["metadata"]
    used = origin.spellings.get("", frozenset())
    names = {own: name for name, own in MESSAGE_ALIASES.items() if name in used}
    value: Object = {names.get(key, key): item for key, item in (required | optional).items()}
    return Plain(value, writer.dropped, tuple(writer.inner))


class _Writer:
    """Writes the content of one graph message."""

    def __init__(self, messages: Sequence[LlmMessage], origin: MessageOrigin, dialect: GraphDialect) -> None:
        self.dropped: dict[tuple[int, int], str] = {}
        self._messages, self._origin = messages, origin
        self._blocks = BlockWriter(dialect, origin.spellings, is_sparse=origin.is_sparse)
        self._written: list[JsonValue] = []

    @property
    def inner(self) -> Sequence[str]:
        """One reason for each block inside a tool result that was left out."""
        return self._blocks.inner

    def content(self) -> JsonValue:
        """Return the blocks. If the origin says that the content was a string, return the text instead."""
        for index, message in enumerate(self._messages):
            if isinstance(message, ToolResultMessage) and not (self._origin.is_bare and message.tool_call_id == ""):
                self._result(index, message)
            else:
                self._add_blocks(index, 0, self._own(message))
        match self._written, self._messages[0].content:
            case [_], (TextBlock(text=text, annotations=None | ()),) if "string" in self._origin.spellings.get(
                "content", frozenset()
            ):
                return text
            case _:
                return self._written

    def _own(self, message: LlmMessage) -> tuple[Block, ...]:
        """Return the content without the calls that only `tools_calls` named, if the content still ends with them."""
        count = self._origin.added_calls
        if count and all(isinstance(block, ToolCallBlock) for block in message.content[-count:]):
            return message.content[:-count]
        return message.content

    def _result(self, index: int, message: ToolResultMessage) -> None:
        before, after = self._origin.beside[index] if index < len(self._origin.beside) else (0, 0)
        end = len(message.content) - after
        if before > end:
            before, end = 0, len(message.content)
        self._add_blocks(index, 0, message.content[:before])
        path = f"content.{len(self._written)}"
        self._written.append(self._blocks.result(message, message.content[before:end], path))
        self._add_blocks(index, end, message.content[end:])

    def _add_blocks(self, index: int, start: int, content: tuple[Block, ...]) -> None:
        for place, block in enumerate(content, start):
            written = self._blocks.block(block, f"content.{len(self._written)}")
            if isinstance(written, str):
                self.dropped[index, place] = written
            else:
                self._written.append(written)


def _id(id: str, origin: MessageOrigin) -> JsonValue:
    if origin.has_int_id:
        try:
            return int(id)
        except ValueError:  # the message's id was changed after it was read
            return id
    return id


def _role(message: LlmMessage) -> str:
    match message:
        case UserMessage():
            return "user"
        case AssistantMessage():
            return "assistant"
        case ToolResultMessage():
            return "tool"
        case SystemMessage() | DeveloperMessage():
            return "system"
        case _:
            raise TypeError(f"{type(message).__name__} has no role")


def _usage(usage: Usage, *, is_sparse: bool) -> Object:
    optional: Object = {
        "reasoning_tokens": usage.reasoning,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "image_tokens": usage.image_tokens,
        "audio_tokens": usage.audio_tokens,
    }
    return {
        "completion_tokens": usage.output,
        "prompt_tokens": usage.input + usage.cache_read + usage.cache_write,
        "total_tokens": usage.total_tokens,
        **{key: value for key, value in optional.items() if not is_sparse or value != 0},
    }
