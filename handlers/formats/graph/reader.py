"""Read a message of the graph format and its blocks. Results of one graph message form a batch."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import (
    DEPTH_LIMIT,
    AnnotationBlock,
    AnnotationRef,
    AssistantMessage,
    AudioBlock,
    Block,
    DataBlock,
    Delta,
    DocumentBlock,
    ErrorBlock,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    Publishable,
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
    media_block,
    require_depth,
    require_json,
)
from lanebus.handlers.context import Object
from lanebus.handlers.formats.codec import ORIGIN, Codec
from lanebus.handlers.formats.graph.shapes import (
    ALIASES,
    MESSAGE_ALIASES,
    AnnotationShape,
    AudioShape,
    CallShape,
    DataShape,
    DocumentShape,
    ErrorShape,
    GraphDialect,
    ImageShape,
    MediaShape,
    MessageOrigin,
    MessageShape,
    ReasoningShape,
    RefShape,
    ResultShape,
    TextShape,
    UsageShape,
    VideoShape,
    calls_beside,
    checked,
    guarded_patches,
    looks_like_media,
    media_of,
    read_moment,
)
from lanebus.handlers.formats.graph.writer import plain

# Read the graph format's blocks as lanebus blocks.

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
    return _remembering(messages, _shortest(value, messages, origin, dialect), dialect)


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


def _shortest(
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


# Batches: tool results that were read from one graph message, and are written as one graph message again.

_BATCH_PREFIX = "batch"


def batch_name(results: Sequence[ToolResultMessage]) -> str:
    """Return the batch id for the tool results of a graph message that has no id of its own.

    The id includes the number of results, which shows where a batch ends if the next batch has the same id.
    """
    return f"{_BATCH_PREFIX}:{len(results)}:{results[0].tool_call_id}"


def grouped(messages: Sequence[Publishable]) -> Iterator[list[Publishable]]:
    """Yield each message alone, but consecutive results of one batch together."""
    group: list[Publishable] = []
    for message in messages:
        if group and not _continues_batch(group, message):
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _continues_batch(group: list[Publishable], message: Publishable) -> bool:
    """Return whether `message` belongs to the batch of `group`.

    If the graph message had an id, that id is the batch's name and the id of the batch's first result. So a result
    whose own id is the batch's name starts a new batch. A batch named by `batch_name` ends after the number of results
    in its name.
    """
    match group[0], message:
        case ToolResultMessage(batch_id=str(one)) as first, ToolResultMessage(batch_id=str(other)):
            is_full = not first.id and one == f"{_BATCH_PREFIX}:{len(group)}:{first.tool_call_id}"
            return one == other != message.id and not is_full
        case _:
            return False


# Read the graph framework's live stream: chunks as messages and previews, and deltas as lanebus deltas.


# The framework trims its own Redis stream to a length; lanebus never trims a log that way. So only chunks that are
# messages here may be published. Source: the code of the second graph format, `StreamChunk` and `EventModel`.

_EVENT_FIELDS = ("event", "event_type", "thread_id", "run_id", "node_name", "sequence_id", "is_error", "timestamp")
"""Fields of a chunk that become an event for UIs.

The chunk's state, content and data are left out. They repeat the model's input and output, which readers of only the
extension lane may not see.
"""


def read_chunk(value: JsonValue, codec: Codec) -> tuple[Publishable | Delta, ...]:
    """Read one chunk of the stream: a whole message, pieces of one, or an event of kind `graph.<event>`.

    Args:
        value: the chunk.
        codec: reads the whole messages.

    Raises:
        DecodeError: the chunk does not have the graph framework's form. The error names the path to the fault.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a chunk is a JSON object")
    require_json(value)
    event = value.get("event")
    if not isinstance(event, str) or not event:
        raise DecodeError("event", "a chunk needs its event")
    if event != "message":
        fields: JsonValue = {name: value[name] for name in _EVENT_FIELDS if value.get(name) is not None}
        return (ExtensionMessage.of(f"graph.{event}", fields),)
    message = value.get("message")
    try:
        if isinstance(message, dict) and message.get("delta") is True:
            return read_deltas(message)
        return tuple(codec.read(message))
    except DecodeError as error:
        raise DecodeError(".".join(filter(None, ("message", error.path))), error.reason) from None


_THINKING, _TEXT, _CALLS = 0, 1, 2
"""Block indexes. A graph chunk does not name the block it extends: thinking comes first, then text, then calls."""

# Reads the spellings of both graph formats. It is never used to write.
_ANY_DIALECT = GraphDialect(name="", spelling={}, has_document_text=True, has_remote_calls=True, writes_iso_time=False)


def read_deltas(value: JsonValue) -> tuple[Delta, ...]:
    """Return the live deltas in one graph message with `delta: true`. Each delta has the id of the whole message.

    Only text, thinking and the arguments of tool calls become deltas. Media arrive with the whole message.

    Raises:
        DecodeError: `value` is not a delta, has no id, or does not have the graph format's form.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    require_json(value)
    shape = checked(MessageShape, value, "", {})
    if not shape.delta:
        raise DecodeError("delta", "a whole message is not a delta. Read it with the codec")
    id = str(shape.message_id)
    if not id:
        raise DecodeError("message_id", "a delta needs the id of the message it is a piece of")
    reader = BlockReader(_ANY_DIALECT)
    blocks: list[Block] = []
    match shape.content:
        case list():
            blocks += [reader.block(block, f"content.{index}") for index, block in enumerate(shape.content)]
        case str():
            blocks.append(TextBlock(text=shape.content))
        case None:
            pass
        case _:
            raise DecodeError("content", "must be a list of blocks, or text")
    if shape.reasoning and not any(isinstance(block, ThinkingBlock) for block in blocks):
        blocks.insert(0, ThinkingBlock(text=shape.reasoning))
    return tuple(_pieces(id, blocks))


def _pieces(id: str, blocks: list[Block]) -> Iterator[Delta]:
    calls = 0
    for block in blocks:
        match block:
            case TextBlock(text=text) if text:
                yield Delta(kind="text", message_id=id, delta=text, block=_TEXT)
            case ThinkingBlock(text=text) if text:
                yield Delta(kind="thinking", message_id=id, delta=text, block=_THINKING)
            case ToolCallBlock(name=name, arguments=arguments):
                fragment = json.dumps(arguments, ensure_ascii=False) if arguments else ""
                yield Delta(kind="toolCall", message_id=id, delta=fragment, block=_CALLS + calls, tool_name=name)
                calls += 1
            case _:
                continue
