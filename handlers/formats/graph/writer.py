"""Write messages and their blocks in the graph format."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from lanebus.bus.messages import (
    AnnotationBlock,
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    Block,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    LlmMessage,
    MediaRef,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    VideoBlock,
)
from lanebus.handlers.context import Object
from lanebus.handlers.formats.graph.shapes import (
    ALIASES,
    MESSAGE_ALIASES,
    GraphDialect,
    MessageOrigin,
    calls_out,
    iso_time,
    media_out,
    seconds,
    without_origin,
)

# Write one lanebus message, or the tool results of one batch, as one message of the graph format.


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


Spelling = frozenset[str]

_USUAL: Spelling = frozenset()
"""The spelling without aliases."""

_STORED = "its bytes are in the media store: resolve them first"
_NO_FORM = "there is no form for it"


class _Stored(Exception):
    """The block's media are in the media store, which the graph framework cannot read."""


class BlockWriter:
    """Converts the blocks of one message into JSON of the graph format."""

    def __init__(self, dialect: GraphDialect, spellings: Mapping[str, Spelling], *, is_sparse: bool) -> None:
        self.inner: list[str] = []
        """One reason for each block inside a tool result that was left out."""
        self._dialect, self._spellings, self._is_sparse = dialect, spellings, is_sparse

    def block(self, block: Block, path: str) -> Object | str:
        """Return the block's JSON. If the graph format cannot represent the block, return the reason as text."""
        recorded = self._spellings.get(path)
        try:
            return self._written(block, path, recorded)
        except _Stored:
            return f"{block.type}: {_STORED}"

    def blocks(self, content: Iterable[Block], path: str) -> list[JsonValue]:
        """Return the JSON of the blocks that the graph format can represent. Indexes in paths count only these
        blocks."""
        result: list[JsonValue] = []
        for block in content:
            written = self.block(block, f"{path}.{len(result)}")
            if isinstance(written, str):
                self.inner.append(written)
            else:
                result.append(written)
        return result

    def result(self, result: ToolResultBlock | ToolResultMessage, content: tuple[Block, ...], path: str) -> Object:
        """Write a tool's result.

        Args:
            result: the result; its `content` is not used.
            content: the blocks inside the result. Other blocks of a message that holds the result must not be included.
            path: path of the block that is written.
        """
        recorded = self._spellings.get(path)
        spelling = self._spelling("tool_result", recorded)
        if recorded is None and result.status is not None:
            spelling = _USUAL
        name = "content" if "content" in spelling else "output"
        output = self._output(content, result.structured, spelling, f"{path}.{name}")
        own: Object = {"is_error": result.is_error}
        more: Object = {"status": result.status}
        if "tool_call_id" not in spelling:
            own |= more
        return self._object(
            "tool_result", {"call_id": result.tool_call_id}, {"output": output, **own}, recorded, spelling, more=more
        )

    def _written(self, block: Block, path: str, recorded: Spelling | None) -> Object | str:
        match block:
            case TextBlock():
                annotations: list[JsonValue] = [self._ref(ref) for ref in block.annotations or ()]
                return self._object("text", {"text": block.text}, {"annotations": annotations})
            case ImageBlock():
                box: JsonValue = None if block.bbox is None else [*block.bbox]
                return self._object(
                    "image", {"media": self._media(block.media)}, {"alt_text": block.alt_text, "bbox": box}
                )
            case AudioBlock():
                return self._object(
                    "audio",
                    {"media": self._media(block.media)},
                    {"transcript": block.transcript, "sample_rate": block.sample_rate, "channels": block.channels},
                )
            case VideoBlock():
                held = block.thumbnail is not None and block.thumbnail.kind != "sha256"
                thumbnail = self._media(block.thumbnail) if held and block.thumbnail else None
                return self._object("video", {"media": self._media(block.media)}, {"thumbnail": thumbnail})
            case DocumentBlock():
                return self._document(block, recorded or _USUAL)
            case DataBlock():
                return self._data(block)
            case ThinkingBlock():
                return self._reasoning(block, recorded)
            case ToolCallBlock():
                return self._call(block, recorded or _USUAL)
            case ToolResultBlock():
                return self.result(block, block.content, path)
            case AnnotationBlock():
                return self._annotation(block, recorded)
            case ErrorBlock():
                return self._error(block, recorded)
            case UnknownBlock(raw=raw) if recorded and "unknown" in recorded:
                return raw
            case UnknownBlock() | RedactedThinkingBlock():
                return f"{block.type}: {_NO_FORM}"

    def _output(self, content: tuple[Block, ...], structured: JsonValue, spelling: Spelling, path: str) -> JsonValue:
        if "said" in spelling and structured is not None:
            return structured
        match content:
            case ():
                return structured
            case (ImageBlock() | AudioBlock() | VideoBlock() | DocumentBlock() as block,) if (
                "media" in spelling and block.media.kind != "sha256"
            ):
                return self._media(block.media)
            case (TextBlock(text=text, annotations=None | ()),) if "blocks" not in spelling:
                return text
            case _:
                return self.blocks(content, path)

    def _document(self, block: DocumentBlock, recorded: Spelling) -> Object:
        pages: JsonValue = None if block.pages is None else [*block.pages]
        optional: Object = {"pages": pages, "excerpt": block.excerpt}
        if self._dialect.has_document_text or "text" in recorded:
            optional["text"] = block.text
        return self._object("document", {"media": self._media(block.media)}, optional)

    def _data(self, block: DataBlock) -> Object:
        media = block.media
        required: Object = {"mime_type": block.mime_type}
        if media and media == MediaRef(kind="data", data=media.data or "AA==", mime_type=block.mime_type):
            return self._object("data", required, {"data_base64": media.data, "media": None})
        return self._object("data", required, {"data_base64": None, "media": self._media(media) if media else None})

    def _call(self, block: ToolCallBlock, recorded: Spelling) -> Object:
        arguments: JsonValue = block.arguments if isinstance(block.arguments, dict) else {}
        remote = bool(block.remote) and (self._dialect.has_remote_calls or "remote" in recorded)
        required: Object = {"id": block.id, "name": block.name}
        if remote:
            required["tool_type"] = block.tool_type or "remote"
            return self._object("remote_tool_call", required, {"args": arguments}, recorded, recorded)
        return self._object(
            "tool_call", required, {"args": arguments, "tool_type": block.tool_type}, recorded, recorded
        )

    def _reasoning(self, block: ThinkingBlock, recorded: Spelling | None) -> Object:
        spelling = self._spelling("reasoning", recorded)
        if recorded is None and block.details is not None and block.signature is None:
            spelling = _USUAL
        own: Object = {"details": None if block.details is None else [*block.details]}
        more: Object = {"signature": block.signature}
        if "thinking" in spelling:
            own, more = more, own
        return self._object("reasoning", {"summary": block.text}, own, recorded, spelling, more=more)

    def _annotation(self, block: AnnotationBlock, recorded: Spelling | None) -> Object:
        spelling = self._spelling("annotation", recorded)
        refs: list[JsonValue] = [self._ref(ref) for ref in block.refs]
        spans: JsonValue = None if block.spans is None else [[start, end] for start, end in block.spans]
        is_plain = block.kind == "citation" and spans is None
        more: Object = {"kind": None if block.kind == "citation" else block.kind, "spans": spans}
        if "annotation" in spelling and len(refs) == 1 and (recorded is not None or is_plain):
            return self._object("annotation", {"annotation": refs[0]}, {}, recorded, spelling, more=more)
        return self._object("annotation", {"kind": block.kind}, {"refs": refs, "spans": spans})

    def _error(self, block: ErrorBlock, recorded: Spelling | None) -> Object:
        spelling = self._spelling("error", recorded)
        more: Object = {"data": block.data}
        if recorded is None and block.data is not None:
            spelling = _USUAL
        own: Object = {"code": block.code}
        if "error" not in spelling:
            own |= more
        return self._object("error", {"message": block.message}, own, recorded, spelling, more=more)

    def _spelling(self, kind: str, recorded: Spelling | None) -> Spelling:
        return self._dialect.spelling.get(kind, frozenset()) if recorded is None else recorded

    def _media(self, media: MediaRef) -> Object:
        out = media_out(media)
        if out is None:
            raise _Stored
        return self._object(None, *out)

    def _ref(self, ref: AnnotationRef) -> Object:
        return self._object(
            None,
            {},
            {"url": ref.url, "file_id": ref.file_id, "page": ref.page, "index": ref.index, "title": ref.title},
        )

    def _object(
        self,
        kind: str | None,
        required: Object,
        optional: Object,
        recorded: Spelling | None = None,
        spelling: Spelling = _USUAL,
        *,
        more: Object | None = None,
    ) -> Object:
        """Return one object of the graph format's JSON.

        Args:
            kind: the object's `type`; None omits that key.
            required: fields that are always written.
            optional: fields that are left out if they are empty and the message is sparse.
            recorded: the spelling that was recorded when the block was read; None if no spelling was recorded.
            spelling: the aliases to use.
            more: fields that `spelling` does not have. If `recorded` is not None, those that are not empty are written.
        """
        result: Object = {} if kind is None else {"type": kind}
        result |= required
        result |= {key: value for key, value in optional.items() if not self._is_sparse or _is_set(value)}
        if recorded is not None:
            result |= {key: value for key, value in (more or {}).items() if _is_set(value)}
        names = {own: name for name, own in ALIASES.get(kind or "", {}).items() if name in spelling}
        return {names.get(key, key): value for key, value in result.items()}


def _is_set(value: JsonValue) -> bool:
    """Return whether a value differs from the default of its key."""
    return value is not None and value is not False and value not in ([], {})
