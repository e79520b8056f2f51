"""The codec of the `coding-agent` format: its messages, their contents and media, and the usage of answers."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from typing import get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from lanebus.bus.errors import DecodeError, InvalidArgument, UnknownRole, require_text
from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    Blocks,
    BranchSummary,
    Compaction,
    Cost,
    DeveloperMessage,
    ExtensionMessage,
    ImageBlock,
    LlmMessage,
    MediaRef,
    Publishable,
    StopReason,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
    sniff,
)
from lanebus.handlers.context import Object
from lanebus.handlers.formats.codec import ORIGIN, Codec
from lanebus.handlers.formats.round_trip import Dialect, JsonObject, round_trip_codec

Files = Callable[[str], MediaRef]
"""A function that reads the file at a path, such as `MediaRef.from_file`.

Pass such a function only for messages from a trusted source.
"""

_UNKNOWN = {"image": "image/png", "audio": "audio/mpeg"}
"""Kind of block → the media type that the `coding-agent` system assumes for bytes of an unrecognized type."""

_ITEMS = {"image": "images", "audio": "audio"}


def to_base64(content: Iterable[Block]) -> list[tuple[str, str]]:
    """Return all images and sounds in order, as pairs of base64 and media type.

    An image at a URL is returned as the URL and "". Media that are neither inline nor at a URL are left out.

    Source: the `coding-agent` system's method `to_base64`.
    """
    found = [block.media for block in content if isinstance(block, ImageBlock | AudioBlock)]
    return [
        (media.data, media.mime_type or "") if media.data is not None else (media.url or "", "")
        for media in found
        if media.data is not None or media.url is not None
    ]


def media_of(item: JsonValue, path: str, *, kind: str) -> MediaRef:
    """Return the reference for one image or sound.

    The item is base64; for an image, it may also be an http(s) URL. The `coding-agent` system's JSON has no media type.
    For base64, the type is detected from the bytes, or else PNG or MP3. A URL has no type.

    Raises:
        DecodeError: the item is empty, a `file:` path, or in none of these forms.
    """
    if not isinstance(item, str):
        raise DecodeError(path, "wants text: base64 or a URL")
    if _is_file(item):
        raise DecodeError(path, "names a file. Pass `files` to read it")
    source = JsonObject({}, path)
    if kind == "image" and item.startswith(("http://", "https://")):
        return source.made(MediaRef, {"kind": "url", "url": item}, {"url": ""})
    if not item:
        raise DecodeError(path, "holds no bytes")
    media = source.made(MediaRef, {"kind": "data", "data": item}, {"data": ""})
    return media.model_copy(update={"mime_type": _shown(item, kind)})


def can_say_media(media: MediaRef, *, kind: str) -> bool:
    """Return whether the `coding-agent` format can represent the reference."""
    if media.kind == "url":
        return kind == "image" and (media.url or "").startswith(("http://", "https://"))
    return media.kind == "data"


def written_media(media: MediaRef) -> str:
    """Return the text for an image or sound in the `coding-agent` system's JSON: the URL or the base64 of `media`."""
    return (media.url if media.kind == "url" else media.data) or ""


def inlined(message: JsonValue, files: Files | None) -> JsonValue:
    """Return the message with each `data:` URL replaced by its base64.

    If `files` is not None, each `file:` path is replaced by the file's base64 too.
    """
    contents = message.get("contents") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(contents, list):
        return message
    return {**message, "contents": [_block_inlined(block, files) for block in contents]}


def _block_inlined(block: JsonValue, files: Files | None) -> JsonValue:
    name = _ITEMS.get(str(block.get("type"))) if isinstance(block, dict) else None
    items = block.get(name) if isinstance(block, dict) and name is not None else None
    if not isinstance(block, dict) or name is None or not isinstance(items, list):
        return block
    return {**block, name: [_item_inlined(item, files) for item in items]}


def _item_inlined(item: JsonValue, files: Files | None) -> JsonValue:
    if not isinstance(item, str):
        return item
    head, comma, data = item.partition(",")
    if comma and head.lower().startswith("data:") and head.endswith(";base64"):
        return data
    if files is not None and _is_file(item):
        return files(item[5:]).data
    return item


def _is_file(item: str) -> bool:
    return item[:5].lower() == "file:"


def _shown(data: str, kind: str) -> str:
    try:
        found = sniff(base64.b64decode(data[:1024]))
    except binascii.Error:
        found = None
    return found if found is not None and found.startswith(f"{kind}/") else _UNKNOWN[kind]


# The codec of the `coding-agent` format: its messages, their contents, and the usage of answers.


_blocks: TypeAdapter[tuple[Block, ...]] = TypeAdapter(Blocks)


def read_message(source: JsonObject, provider: str | None, model: str | None) -> tuple[Publishable, ...]:
    """Read one message of the `coding-agent` system.

    Args:
        source: the message.
        provider: provider of answers that do not name their provider; None leaves it unknown.
        model: model of answers that do not name their model; None leaves it unknown.

    Raises:
        UnknownRole: the message has a role that the format does not have.
        DecodeError: a field is missing or has the wrong form. The error names the path to it.
    """
    role = source.required_text("role")
    own_id, timestamp = source.text("id"), source.milliseconds("timestamp")
    match role:
        case "system":
            return (SystemMessage(content=read_contents(source), id=own_id, timestamp=timestamp),)
        case "user":
            return (UserMessage(content=read_contents(source), id=own_id, timestamp=timestamp),)
        case "assistant":
            return (_read_answer(source, provider, model),)
        case "tool":
            return _read_results(source)
        case "custom":
            return (_read_custom(source),)
        case "branch_summary":
            return (BranchSummary(summary=source.text("summary") or "", id=own_id, timestamp=timestamp),)
        case "compaction_summary":
            summary, tokens = source.text("summary") or "", source.count("tokens_before")
            return (Compaction(summary=summary, tokens_before=tokens, id=own_id, timestamp=timestamp),)
        case _:
            raise UnknownRole(role)


def _read_answer(source: JsonObject, provider: str | None, model: str | None) -> AssistantMessage:
    reason, raw = stop_of(source)
    return AssistantMessage(
        content=read_contents(source),
        id=source.text("id"),
        timestamp=source.milliseconds("timestamp"),
        stop_reason=reason,
        raw_stop_reason=raw,
        usage=usage_of(source),
        error_message=source.text("error") or None,
        provider=source.text("provider") or provider,
        model=source.text("model") or model,
    )


def _read_results(source: JsonObject) -> tuple[Publishable, ...]:
    contents = [JsonObject.of(item, path) for item, path in source.items("contents")]
    for content in contents:
        if content.required_text("type") != "tool_result":
            raise content.fault("type", "a tool message holds results")
    if not contents:
        raise source.fault("contents", "a tool message holds at least one result")
    results = [read_result(content) for content in contents]
    own_id = source.text("id")
    messages = ToolResultMessage.from_results(results, batch_id=own_id or source.digest())
    timestamp = source.milliseconds("timestamp")
    return tuple(
        message.model_copy(update={"id": own_id if number == 0 else None, "timestamp": timestamp})
        for number, message in enumerate(messages)
    )


def _read_custom(source: JsonObject) -> ExtensionMessage:
    contents = source.fields.get("contents")
    if isinstance(contents, str):
        blocks: tuple[Block, ...] = (TextBlock(text=contents),)
    else:
        blocks = read_contents(source)
    data: Object = {
        "customType": source.text("custom_type") or "",
        "contents": _blocks.dump_python(blocks, mode="json", by_alias=True, exclude_none=True),
        "display": source.flag("display"),
        "details": source.value("details"),
        "id": source.text("id"),
        "timestamp": source.milliseconds("timestamp"),
    }
    return ExtensionMessage.of("custom", {name: item for name, item in data.items() if item is not None})


# Write lanebus messages as the `coding-agent` system's messages.

_FAR = 10**15  # milliseconds; the `coding-agent` system accepts no later moment


def written_message(group: Sequence[Publishable]) -> JsonValue | None:
    """Return the `coding-agent` system's message for one lanebus message, or for the tool results of one batch.

    Return None if the `coding-agent` format has no such message.
    """
    match group[0]:
        case ToolResultMessage() as first:
            results = [message for message in group if isinstance(message, ToolResultMessage)]
            return {
                "role": "tool",
                "contents": [written_result(result.as_block()) for result in results],
                **_stamp(first),
            }
        case AssistantMessage() as answer:
            return _written_answer(answer)
        case SystemMessage() | DeveloperMessage() as message:
            return {"role": "system", "contents": written_contents(message.content), **_stamp(message)}
        case UserMessage() as message:
            return {"role": "user", "contents": written_contents(message.content), **_stamp(message)}
        case BranchSummary() as entry:
            return {"role": "branch_summary", "summary": entry.summary, **_stamp(entry)}
        case Compaction() as entry:
            tokens: Object = {} if entry.tokens_before is None else {"tokens_before": entry.tokens_before}
            return {"role": "compaction_summary", "summary": entry.summary, **tokens, **_stamp(entry)}
        case ExtensionMessage(kind="custom", data=dict() as data):
            return _written_custom(data)
        case _:
            return None


def _written_answer(answer: AssistantMessage) -> Object:
    usage: Object = {} if answer.usage is None else {"usage": written_usage(answer.usage)}
    return {
        "role": "assistant",
        "contents": written_contents(answer.content),
        **_stamp(answer),
        **usage,
        "stop_reason": written_stop(answer.stop_reason),
        "error": answer.error_message or "",
    }


def _written_custom(data: Object) -> JsonValue | None:
    if not isinstance(data.get("customType"), str):
        return None
    try:
        blocks = _blocks.validate_json(json.dumps(data.get("contents")))
    except ValidationError:
        return None
    rest: Object = {name: data[name] for name in ("display", "details", "id") if data.get(name) is not None}
    contents = written_contents(blocks)
    return {
        "role": "custom",
        "custom_type": data["customType"],
        "contents": contents,
        **rest,
        **_seconds(data.get("timestamp")),
    }


def _stamp(message: LlmMessage | BranchSummary | Compaction) -> Object:
    """Return the message's id and timestamp. The `coding-agent` system generates a missing id or timestamp when
    reading."""
    own_id: Object = {} if message.id is None else {"id": message.id}
    return {**own_id, **_seconds(message.timestamp)}


def _seconds(timestamp: JsonValue) -> Object:
    if not isinstance(timestamp, int) or isinstance(timestamp, bool) or abs(timestamp) >= _FAR:
        return {}
    return {"timestamp": timestamp / 1000}


def same_message(message: Publishable) -> Publishable:
    """Return the message with empty fields as None. To the `coding-agent` system, both mean the same."""
    if not isinstance(message, LlmMessage):
        return message
    same = message.model_copy(update={"content": same_blocks(message.content), "metadata": message.metadata or None})
    match same:
        case ToolResultMessage():
            return same.model_copy(
                update={"terminate": same.terminate or None, "terminate_message": same.terminate_message or None}
            )
        case AssistantMessage():
            return same.model_copy(update={"error_message": same.error_message or None})
        case _:
            return same


# Convert between the `coding-agent` system's contents, which name their kind as `type`, and lanebus blocks.
#
# To the `coding-agent` system, absent, empty and false fields are the same.

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
            return can_say_media(found, kind=block.type)
        case UnknownBlock(raw={"type": str(kind)} as raw):
            return kind not in _TYPES or _holds_nothing(raw, kind)
        case _:
            return False


def written_contents(blocks: tuple[Block, ...]) -> list[JsonValue]:
    """Return the contents for the blocks that the `coding-agent` format can represent."""
    sayable = [block for block in blocks if can_say(block)]
    return [_written_content(run) for run in _grouped_runs(sayable)]


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
        _with_group(same_block(block), str(number))
        for number, run in enumerate(_grouped_runs(list(blocks)))
        for block in run
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
                yield block(media=media_of(item, path, kind=kind), group_id=group_id)
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
                written_media(block.media) for block in run if isinstance(block, ImageBlock | AudioBlock)
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


def _grouped_runs(blocks: list[Block]) -> Iterator[list[Block]]:
    """Yield adjacent images of one group together, adjacent sounds of one group together, other blocks alone."""
    numbered = list(enumerate(blocks))
    for _, run in groupby(numbered, key=_group_key):
        yield [block for _, block in run]


def _group_key(numbered: tuple[int, Block]) -> tuple[str, str | int | None]:
    index, block = numbered
    return (block.type, block.group_id) if isinstance(block, ImageBlock | AudioBlock) else (block.type, index)


def _with_group(block: Block, group_id: str) -> Block:
    return block.model_copy(update={"group_id": group_id}) if isinstance(block, ImageBlock | AudioBlock) else block


# Read and write the stop reason, usage and cost of a `coding-agent` system's answer.

SOURCE = "seed-000"
"""`Cost.source` of a cost that the `coding-agent` system computed and stored in its message."""

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "content_filter": "guardRail",
    "abort": "aborted",
    "error": "error",
}
_TOKEN_FIELDS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}
_COST_FIELDS = ("input", "output", "cache_read", "cache_write", "total")


def stop_of(message: JsonObject) -> tuple[StopReason, str | None]:
    """Return lanebus's stop reason and, if the message's word is unknown, this word; otherwise None.

    A word that neither the `coding-agent` system nor lanebus knows is read as "stop".
    """
    word = message.text("stop_reason")
    if word is None:
        return "stop", None
    if word in _STOP_REASONS:
        return _STOP_REASONS[word], None
    for ours in get_args(StopReason):
        if word == ours:
            return ours, None
    return "stop", word


def written_stop(reason: StopReason) -> str:
    """Return the nearest of the `coding-agent` system's six stop reasons."""
    return next((theirs for theirs, ours in _STOP_REASONS.items() if ours == reason), "stop")


def usage_of(message: JsonObject) -> Usage | None:
    """Return tokens and cost. A cost of 0 in every field means unknown.

    The `coding-agent` system stores no total of tokens, so the total is the sum of the four counts.
    """
    usage = message.object("usage")
    if usage is None:
        return None
    counts = {ours: usage.count(theirs) or 0 for ours, theirs in _TOKEN_FIELDS.items()}
    cost = usage.object("cost")
    amounts = {} if cost is None else {name: cost.dollars(name) for name in _COST_FIELDS}
    return Usage.model_validate(
        {
            **counts,
            "total_tokens": sum(counts.values()),
            "cost": Cost(**amounts, source=SOURCE) if any(amounts.values()) else None,
        }
    )


def written_usage(usage: Usage) -> Object:
    """Return the usage in the form of the `coding-agent` system, with all fields."""
    cost = usage.cost or Cost()
    amounts: Object = {name: _dollars(getattr(cost, name)) for name in _COST_FIELDS}
    counts: Object = {theirs: getattr(usage, ours) for ours, theirs in _TOKEN_FIELDS.items()}
    return {**counts, "cost": amounts}


def _dollars(amount: Decimal) -> float:
    return float(amount) if abs(amount) < 10**12 else 0.0


_ABOUT = "a coding agent: several images in a block, several results in a message"


def coding_agent_codec(*, provider: str | None = None, model: str | None = None, files: Files | None = None) -> Codec:
    """Return the codec of the `coding-agent` system's messages, including the extra roles of its session files.

    A custom message becomes an extension message of kind `custom`. Both kinds of summaries become context entries. A
    tool message with several results becomes several messages with one `batch_id`.

    Args:
        provider, model: provider and model to record in answers that do not name them. Most answers do not. None leaves
            them unknown.
        files: reads local files that messages name; see `Files`. None refuses such messages. No file is opened without
            `files`.
    """
    require_text("provider", provider, is_optional=True)
    require_text("model", model, is_optional=True)
    if files is not None and not callable(files):
        raise InvalidArgument("files", files, "pass a function that returns a MediaRef, or None")

    def prepare(value: JsonValue) -> JsonValue:
        return inlined(value, files)

    def read(value: JsonValue) -> tuple[Publishable, ...]:
        return read_message(JsonObject.of(value), provider, model)

    return round_trip_codec(
        Dialect(
            name="000",
            about=_ABOUT,
            read=read,
            write=written_message,
            can_say=can_say,
            same=same_message,
            prepare=prepare,
            names_results=False,
        )
    )


CODING_AGENT = coding_agent_codec()
