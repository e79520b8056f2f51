"""Read the graph format's blocks as lanebus blocks."""

from collections.abc import Callable

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import (
    AnnotationBlock,
    AnnotationRef,
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    VideoBlock,
    media_block,
)
from lanebus.handlers.codecs.graph.dialect import ALIASES, GraphDialect
from lanebus.handlers.codecs.graph.media import looks_like_media, media_of
from lanebus.handlers.codecs.graph.shapes import (
    AnnotationShape,
    AudioShape,
    CallShape,
    DataShape,
    DocumentShape,
    ErrorShape,
    ImageShape,
    MediaShape,
    ReasoningShape,
    RefShape,
    ResultShape,
    TextShape,
    VideoShape,
    checked,
)
from lanebus.handlers.json_fields import Object

__all__ = ("BlockReader", "Output", "renamed")

Output = tuple[tuple[Block, ...], JsonValue]
"""A tool's result: the blocks that the model reads, and structured JSON. At least one of the two is empty or None."""


def renamed(value: Object, aliases: dict[str, str], path: str) -> tuple[Object, frozenset[str]]:
    """Return the object with each alias replaced by the key it stands for, and the set of replaced aliases.

    Args:
        value: the object.
        aliases: alias → the key it stands for.
        path: path of the object, for errors.

    Raises:
        DecodeError: an alias and its key have different values.
    """
    used = frozenset(name for name in aliases if name in value)
    result = {key: item for key, item in value.items() if key not in used}
    for name in used:
        if (own := aliases[name]) in result and result[own] != value[name]:
            raise DecodeError(
                f"{path}.{name}" if path else name, f"has another value than {own!r}, which is the same field"
            )
        result[own] = value[name]
    return result, used


class BlockReader:
    """Reads the blocks of one message. Records in `spellings` each block that does not have the dialect's spelling.

    `spellings` maps the block's path to the set of aliases and optional keys that the block had. A block that is not
    recorded is written in the dialect's spelling.
    """

    def __init__(self, dialect: GraphDialect) -> None:
        self.spellings: dict[str, frozenset[str]] = {}
        self._dialect = dialect
        self._kinds: dict[str, Callable[[Object, str, dict[str, str]], tuple[Block, set[str]]]] = {
            "text": _text,
            "image": _image,
            "audio": _audio,
            "video": _video,
            "document": self._document,
            "data": _data,
            "tool_call": _call,
            "remote_tool_call": self._remote_call,
            "tool_result": self._result,
            "reasoning": _reasoning,
            "annotation": _annotation,
            "error": _error,
        }

    def block(self, value: JsonValue, path: str) -> Block:
        """Read one block. A block of an unknown type is kept whole.

        Raises:
            DecodeError: the block does not have the form of its type.
        """
        if not isinstance(value, dict):
            raise DecodeError(path, "a block is a JSON object")
        kind = value.get("type")
        if not isinstance(kind, str):
            raise DecodeError(f"{path}.type", "a block needs a type")
        if kind not in self._kinds:
            self.spellings[path] = frozenset({"unknown"})
            return UnknownBlock(raw=value)
        spelled, used = renamed(value, dict(ALIASES.get(kind, {})), path)
        names = {own: name for name, own in ALIASES.get(kind, {}).items() if name in used}
        block, spelling = self._kinds[kind](spelled, path, names)
        if (combined := used | spelling) != self._dialect.spelling.get(kind, frozenset()):
            self.spellings[path] = combined
        return block

    def add(self, path: str, kind: str, word: str) -> None:
        """Add a word to the recorded spelling of the block at this path. `kind` is the block's type."""
        self.spellings[path] = self.spellings.get(path, self._dialect.spelling.get(kind, frozenset())) | {word}

    def output(self, output: JsonValue, path: str) -> tuple[Output, set[str]]:
        """Read a tool's result: text, blocks, one reference to media, or any other JSON. Also return its spelling."""
        match output:
            case str():
                return ((TextBlock(text=output),), None), set()
            case [_, *_] if all(self._is_block(item) for item in output):
                blocks = tuple(self.block(item, f"{path}.{index}") for index, item in enumerate(output))
                return (blocks, None), {"blocks"} if _is_plain_text(blocks) else set()
            case dict() if looks_like_media(output):
                media = media_of(checked(MediaShape, output, path, {}), path)
                return ((media_block(media),), None), {"media"}
            case [] | None:
                return ((), None), set()
            case _:
                return ((), output), set()

    def _is_block(self, value: JsonValue) -> bool:
        # Rows of a table may have a `type` too: only known types make a list a list of blocks.
        return isinstance(value, dict) and isinstance(kind := value.get("type"), str) and kind in self._kinds

    def _result(self, value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
        shape = checked(ResultShape, value, path, names)
        (content, structured), spelling = self.output(shape.output, f"{path}.{names.get('output', 'output')}")
        if names and shape.status is not None:
            spelling.add("status")
        return ToolResultBlock(
            tool_call_id=shape.call_id,
            content=content,
            structured=structured,
            is_error=shape.is_error,
            status=shape.status,
        ), spelling

    def _document(self, value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
        shape = checked(DocumentShape, value, path, names)
        block = DocumentBlock(
            media=media_of(shape.media, f"{path}.media"),
            text=shape.text,
            pages=None if shape.pages is None else tuple(shape.pages),
            excerpt=shape.excerpt,
        )
        return block, set() if shape.text is None or self._dialect.has_document_text else {"text"}

    def _remote_call(self, value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
        shape = checked(CallShape, value, path, names)
        kind = None if shape.tool_type == "remote" else shape.tool_type
        block = ToolCallBlock(id=shape.id, name=shape.name, arguments=shape.args, tool_type=kind, remote=True)
        return block, set() if self._dialect.has_remote_calls else {"remote"}


def _text(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(TextShape, value, path, names)
    return TextBlock(text=shape.text, annotations=_refs(shape.annotations) or None), set()


def _image(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(ImageShape, value, path, names)
    box = None
    if shape.bbox is not None:
        left, top, right, bottom = shape.bbox
        box = (left, top, right, bottom)
    return ImageBlock(media=media_of(shape.media, f"{path}.media"), alt_text=shape.alt_text, bbox=box), set()


def _audio(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(AudioShape, value, path, names)
    return AudioBlock(
        media=media_of(shape.media, f"{path}.media"),
        transcript=shape.transcript,
        sample_rate=shape.sample_rate,
        channels=shape.channels,
    ), set()


def _video(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(VideoShape, value, path, names)
    thumbnail = None if shape.thumbnail is None else media_of(shape.thumbnail, f"{path}.thumbnail")
    return VideoBlock(media=media_of(shape.media, f"{path}.media"), thumbnail=thumbnail), set()


def _data(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(DataShape, value, path, names)
    media = None
    if shape.data_base64:
        inline = MediaShape(kind="data", data_base64=shape.data_base64, mime_type=shape.mime_type)
        media = media_of(inline, path)
    if shape.media is not None:
        media = media_of(shape.media, f"{path}.media")
    return DataBlock(mime_type=shape.mime_type, media=media), set()


def _call(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(CallShape, value, path, names)
    return ToolCallBlock(id=shape.id, name=shape.name, arguments=shape.args, tool_type=shape.tool_type), set()


def _reasoning(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(ReasoningShape, value, path, names)
    details = None if shape.details is None else tuple(shape.details)
    block = ThinkingBlock(text=shape.summary, signature=shape.signature, details=details)
    return block, {"details"} if names and details is not None else set()


def _annotation(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(AnnotationShape, value, path, names)
    refs = shape.refs
    if shape.annotation is not None:
        if refs and refs != [shape.annotation]:
            raise DecodeError(f"{path}.annotation", "has another value than 'refs'")
        refs = [shape.annotation]
    spans = None if shape.spans is None else tuple((start, end) for start, end in shape.spans)
    block = AnnotationBlock(kind=shape.kind, refs=_refs(refs), spans=spans)
    if shape.annotation is None:
        return block, set()
    return block, {"annotation"} if shape.kind == "citation" and spans is None else {"annotation", "more"}


def _error(value: Object, path: str, names: dict[str, str]) -> tuple[Block, set[str]]:
    shape = checked(ErrorShape, value, path, names)
    block = ErrorBlock(message=shape.message, code=shape.code, data=shape.data)
    return block, {"data"} if names and shape.data is not None else set()


def _refs(shapes: list[RefShape] | None) -> tuple[AnnotationRef, ...]:
    return tuple(
        AnnotationRef(url=ref.url, file_id=ref.file_id, page=ref.page, index=ref.index, title=ref.title)
        for ref in shapes or ()
    )


def _is_plain_text(blocks: tuple[Block, ...]) -> bool:
    return len(blocks) == 1 and isinstance(blocks[0], TextBlock) and not blocks[0].annotations
