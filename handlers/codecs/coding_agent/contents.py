"""Convert between the `coding-agent` system's contents, which name their kind as `type`, and lanebus blocks.

To the `coding-agent` system, absent, empty and false fields are the same.
"""

from collections.abc import Iterator
from itertools import groupby

from pydantic import JsonValue

from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from lanebus.handlers.codecs.codec import ORIGIN
from lanebus.handlers.codecs.coding_agent import media
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.json_fields import Object

__all__ = ("can_say", "read_contents", "read_result", "same_block", "same_blocks", "written_contents", "written_result")

_ITEMS = {"image": "images", "audio": "audio"}
_TYPES = frozenset({*_ITEMS, "text", "thinking", "tool_call", "tool_result"})


def read_contents(message: JsonObject) -> tuple[Block, ...]:
    """Return the blocks of a message's contents. Contents of an unknown type are kept whole.

    Each image or sound becomes a block of its own. If adjacent contents both hold images, or both hold sounds,
    `group_id` shows which blocks were one content.

    Raises:
        DecodeError: a content does not have the form of its type.
    """
    contents = [JsonObject.of(item, path) for item, path in message.items("contents")]
    kinds = [content.required_text("type") for content in contents]
    blocks = list[Block]()
    for index, (content, kind) in enumerate(zip(contents, kinds, strict=True)):
        beside = kind in _ITEMS and kind in kinds[max(index - 1, 0) : index] + kinds[index + 1 : index + 2]
        blocks += _read_content(content, kind, str(index) if beside else None)
    return tuple(blocks)


def read_result(result: JsonObject) -> ToolResultBlock:
    """Return a tool's result.

    Raises:
        DecodeError: a field does not have the form of the `coding-agent` system.
    """
    text = result.text("content") or ""
    return ToolResultBlock(
        tool_call_id=result.text("id") or "",
        content=(TextBlock(text=text),) if text else (),
        is_error=result.flag("is_error") or False,
        metadata=_metadata(result),
        terminate=result.flag("terminate") or None,
        terminate_message=result.text("terminate_message") or None,
    )


def can_say(block: Block) -> bool:
    """Return whether the `coding-agent` format has a content for the block."""
    match block:
        case TextBlock() | ThinkingBlock() | ToolCallBlock() | ToolResultBlock():
            return True
        case ImageBlock(media=found) | AudioBlock(media=found):
            return media.can_say(found, kind=block.type)
        case UnknownBlock(raw={"type": str(kind)} as raw):
            return kind not in _TYPES or _holds_nothing(raw, kind)
        case _:
            return False


def written_contents(blocks: tuple[Block, ...]) -> list[JsonValue]:
    """Return the contents for the blocks that the `coding-agent` format can represent."""
    sayable = [block for block in blocks if can_say(block)]
    return [_written_content(run) for run in _runs(sayable)]


def written_result(result: ToolResultBlock) -> Object:
    """Return a tool's result in the form of the `coding-agent` system. Only the text of the result's content is
    kept."""
    text = "".join(block.text for block in result.content if isinstance(block, TextBlock))
    closing: Object = {"terminate_message": result.terminate_message} if result.terminate_message else {}
    return {
        "type": "tool_result",
        "id": result.tool_call_id,
        "content": text,
        "is_error": result.is_error,
        "metadata": result.metadata or {},
        "terminate": result.terminate or False,
        **closing,
    }


def same_blocks(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Normalize the blocks, so that blocks that the `coding-agent` format cannot tell apart become equal.

    Empty fields become None, and the groups of images and sounds are numbered anew.
    """
    return tuple(
        _grouped(same_block(block), str(number)) for number, run in enumerate(_runs(list(blocks))) for block in run
    )


def same_block(block: Block) -> Block:
    """Return one block with its empty fields set to None."""
    match block:
        case ThinkingBlock(signature=""):
            return block.model_copy(update={"signature": None})
        case ToolCallBlock():
            return block.model_copy(update={"metadata": block.metadata or None})
        case ToolResultBlock():
            return block.model_copy(
                update={
                    "metadata": block.metadata or None,
                    "terminate": block.terminate or None,
                    "terminate_message": block.terminate_message or None,
                }
            )
        case _:
            return block


def _read_content(content: JsonObject, kind: str, group_id: str | None) -> Iterator[Block]:
    match kind:
        case "text":
            yield TextBlock(text=content.text("content", "text") or "")
        case "image" | "audio" if not _holds_nothing(content.fields, kind):
            block = ImageBlock if kind == "image" else AudioBlock
            for item, path in content.items(_ITEMS[kind]):
                yield block(media=media.media_of(item, path, kind=kind), group_id=group_id)
        case "thinking":
            text = content.text("content", "thinking") or ""
            yield ThinkingBlock.model_validate({"text": text, "signature": content.text("signature") or None})
        case "tool_call":
            yield _read_call(content)
        case "tool_result":
            yield read_result(content)
        case _:
            yield UnknownBlock(raw=content.fields)


def _holds_nothing(content: Object, kind: str) -> bool:
    """Return whether `content` is an image or audio content without any item. No lanebus block can represent that."""
    return kind in _ITEMS and content.get(_ITEMS[kind]) in (None, [])


def _read_call(call: JsonObject) -> ToolCallBlock:
    arguments = call.object("args")
    return ToolCallBlock(
        id=call.text("id") or "",
        name=call.text("name") or "",
        arguments={} if arguments is None else arguments.fields,
        tool_kind=call.text("kind"),
        metadata=_metadata(call),
    )


def _metadata(source: JsonObject) -> Object | None:
    metadata = source.object("metadata")
    if metadata is None:
        return None
    # The codec's origin uses this key. If the `coding-agent` system stored a value under the same key, it becomes an
    # edit.
    return {key: item for key, item in metadata.fields.items() if key != ORIGIN} or None


def _written_content(run: list[Block]) -> JsonValue:
    match run[0]:
        case TextBlock(text=text):
            return {"type": "text", "content": text}
        case ImageBlock() | AudioBlock() as first:
            items: list[JsonValue] = [
                media.written_media(block.media) for block in run if isinstance(block, ImageBlock | AudioBlock)
            ]
            return {"type": first.type, _ITEMS[first.type]: items}
        case ThinkingBlock(text=text, signature=signature):
            return {"type": "thinking", "content": text, "signature": signature or ""}
        case ToolCallBlock() as call:
            return _written_call(call)
        case ToolResultBlock() as result:
            return written_result(result)
        case UnknownBlock(raw=raw):
            return raw
        case block:
            raise AssertionError(f"can_say({block.type}) is not true")


def _written_call(call: ToolCallBlock) -> Object:
    return {
        "type": "tool_call",
        "id": call.id,
        "name": call.name,
        "kind": call.tool_kind,
        "args": call.arguments if isinstance(call.arguments, dict) else {},
        "metadata": call.metadata or {},
    }


def _runs(blocks: list[Block]) -> Iterator[list[Block]]:
    """Yield adjacent images of one group together, adjacent sounds of one group together, other blocks alone."""
    numbered = list(enumerate(blocks))
    for _, run in groupby(numbered, key=_group):
        yield [block for _, block in run]


def _group(numbered: tuple[int, Block]) -> tuple[str, str | int | None]:
    index, block = numbered
    return (block.type, block.group_id) if isinstance(block, ImageBlock | AudioBlock) else (block.type, index)


def _grouped(block: Block, group_id: str) -> Block:
    return block.model_copy(update={"group_id": group_id}) if isinstance(block, ImageBlock | AudioBlock) else block
