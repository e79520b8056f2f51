"""Read, check and write the parts of the graph format's JSON, and store how a message's JSON was spelled.

`GraphDialect` says how the two formats differ.
"""

import copy
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import LlmMessage, MediaRef, ToolCallBlock, require_few_values
from lanebus.handlers.context import Object, first_fault
from lanebus.handlers.formats.codec import ORIGIN
from lanebus.handlers.formats.round_trip import changes, equal, put_at, value_at
from lanebus.handlers.formats.transcript import datetime_of, milliseconds_of, parse_datetime

# Patches that apply only if the value at their path has not changed since the patch was made.
#
# A patch is `[path, digest, value]`: the path, a digest of the old value, and the new value. The digest is None if
# there was no old value; the new value is absent if the patch removes the field. A field that has changed since keeps
# its new value. Such patches preserve JSON that lanebus messages have no field for, without a rule for each case.

GuardedPatch = list[JsonValue]
"""`[path, digest]` removes a field; `[path, digest, value]` sets it. `digest` is of the old value; None for a new
field."""


def same_literal(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same, including the type of each number: 1 is not 1.0, 0.0 is not -0.0."""
    return equal(one, other) and str(one) == str(other)


def guarded_patches(source: JsonValue, target: JsonValue) -> Iterator[GuardedPatch]:
    """Return the patches that turn `source` into `target`."""
    for path, before, after in changes(source, target, same=same_literal):
        yield [[*path], _digest(before[0]) if before else None, *after]


def apply_guarded(source: JsonValue, patches: Iterable[GuardedPatch]) -> JsonValue:
    """Apply each patch whose digest still matches to a copy of `source`, and return the copy. Ignore damaged
    patches."""
    result = copy.deepcopy(source)
    for patch in patches:
        with suppress(LookupError, TypeError):
            match patch:
                case [[_, *_] as path, digest, *new] if len(new) <= 1 and _digest_at(result, path) == digest:
                    put_at(result, path, *new)
                case _:
                    continue
    return result


def _digest_at(value: JsonValue, path: Sequence[JsonValue]) -> str | None:
    try:
        return _digest(value_at(value, path))
    except KeyError:  # there is no such field yet
        return None


def _digest(value: JsonValue) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]


# The origin: what a message stores about the JSON that it was read from, to write that JSON back unchanged.

_SPELLINGS = frozenset({"codec", "sparse", "words", "beside", "bare", "calls", "residue"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOrigin:
    """The parts of one graph message that lanebus messages have no field for."""

    is_sparse: bool = False
    """Whether the graph message left out empty keys."""
    has_int_id: bool = False
    """Whether the graph message's id was a number. The lanebus id is the number as text."""
    spellings: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Path → spelling of the block at that path, only for blocks whose spelling is not the dialect's."""
    beside: tuple[tuple[int, int], ...] = ()
    """For a message of tool results, one pair per result: the number of blocks before and after the result."""
    is_bare: bool = False
    """Whether the graph message has the role `tool` but holds no result."""
    added_calls: int = 0
    """Number of calls at the end of the content that came from the field `tools_calls` alone."""
    residue: tuple[GuardedPatch, ...] = ()
    """Patches that turn the JSON that the other fields produce into the JSON that was read."""

    def to_json(self, codec: str) -> Object | None:
        """Return the JSON to store in the message's metadata; None if there is nothing to store."""
        flags: Object = {
            "sparse": self.is_sparse,
            "intId": self.has_int_id,
            "words": {path: [*sorted(spelling)] for path, spelling in self.spellings.items()},
            "beside": [[*pair] for pair in self.beside],
            "bare": self.is_bare,
            "calls": self.added_calls,
            "residue": [*self.residue],
        }
        stored = {key: value for key, value in flags.items() if value}
        return {"codec": codec, **stored} if stored else None


def origin_of(message: LlmMessage, codec: str) -> MessageOrigin:
    """Return the origin that the codec named `codec` stored. A missing origin and a damaged part are read as empty."""
    stored = (message.metadata or {}).get(ORIGIN)
    if not isinstance(stored, dict) or stored.get("codec") != codec:
        return MessageOrigin()
    return MessageOrigin(
        is_sparse=stored.get("sparse") is True,
        has_int_id=stored.get("intId") is True,
        spellings=_spellings(stored.get("words")),
        beside=_pairs(stored.get("beside")),
        is_bare=stored.get("bare") is True,
        added_calls=_count(stored.get("calls")),
        residue=tuple(patch for patch in _list_items(stored.get("residue")) if isinstance(patch, list)),
    )


def is_spelling(stored: Mapping[str, JsonValue]) -> bool:
    """Return whether an origin describes only spelling and omitted keys."""
    adds = any(isinstance(patch, list) and len(patch) != 2 for patch in _list_items(stored.get("residue")))
    return stored.keys() <= _SPELLINGS and not adds


def without_origin(metadata: Mapping[str, JsonValue] | None) -> Object:
    """Return a copy of the metadata without the record that a codec stored under `ORIGIN`."""
    stored = dict(metadata or {})
    match stored.get(ORIGIN):
        case {"codec": str()}:
            del stored[ORIGIN]
        case _:
            pass
    return stored


def _spellings(value: JsonValue) -> dict[str, frozenset[str]]:
    if not isinstance(value, dict):
        return {}
    return {
        path: frozenset(word for word in _list_items(spelling) if isinstance(word, str))
        for path, spelling in value.items()
    }


def _pairs(value: JsonValue) -> tuple[tuple[int, int], ...]:
    return tuple((_count(pair[0]), _count(pair[1])) for pair in map(_list_items, _list_items(value)) if len(pair) == 2)


def _list_items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _count(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# Read, check and write the parts of the graph format's JSON: objects, media, calls and moments.


# The form of the graph format's JSON, checked before a message is read. One class per object, with the same key names.
#
# Unknown keys are not checked; the origin stores them. Source: both graph formats, with the defaults of both.

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A signed whole number of at most 64 bits. A larger number is an error, because some languages read it differently."""


class Shape(BaseModel):
    """An object of the graph format's JSON. Types are never converted."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


S = TypeVar("S", bound=Shape)


class RefShape(Shape):
    url: str | None = None
    file_id: str | None = None
    page: Whole | None = None
    index: Whole | None = None
    title: str | None = None


class MediaShape(Shape):
    kind: Literal["url", "file_id", "data"] = "url"
    url: str | None = None
    file_id: str | None = None
    data_base64: str | None = None
    mime_type: str | None = None
    size_bytes: Whole | None = None
    sha256: str | None = None
    filename: str | None = None
    width: Whole | None = None
    height: Whole | None = None
    duration_ms: Whole | None = None
    page: Whole | None = None


class TextShape(Shape):
    text: str = ""
    annotations: list[RefShape] | None = None


class ImageShape(Shape):
    media: MediaShape
    alt_text: str | None = None
    bbox: Annotated[list[float], Field(min_length=4, max_length=4)] | None = None


class AudioShape(Shape):
    media: MediaShape
    transcript: str | None = None
    sample_rate: Whole | None = None
    channels: Whole | None = None


class VideoShape(Shape):
    media: MediaShape
    thumbnail: MediaShape | None = None


class DocumentShape(Shape):
    media: MediaShape
    text: str | None = None
    pages: list[Whole] | None = None
    excerpt: str | None = None


class DataShape(Shape):
    mime_type: str
    data_base64: str | None = None
    media: MediaShape | None = None


class CallShape(Shape):
    """A tool call or a remote tool call."""

    id: str
    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    tool_type: str | None = None


class ResultShape(Shape):
    call_id: str
    output: JsonValue = None
    is_error: bool = False
    status: Literal["completed", "failed"] | None = None


class ReasoningShape(Shape):
    summary: str
    details: list[str] | None = None
    signature: str | None = None


class AnnotationShape(Shape):
    kind: Literal["citation", "note"] = "citation"
    refs: list[RefShape] = Field(default_factory=list[RefShape])
    spans: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]] | None = None
    annotation: RefShape | None = None


class ErrorShape(Shape):
    message: str
    code: str | None = None
    data: dict[str, JsonValue] | None = None


class UsageShape(Shape):
    completion_tokens: Whole
    prompt_tokens: Whole
    total_tokens: Whole
    reasoning_tokens: Whole = 0
    cache_creation_input_tokens: Whole = 0
    cache_read_input_tokens: Whole = 0
    image_tokens: Whole | None = 0
    audio_tokens: Whole | None = 0


class MessageShape(Shape):
    """A message. `content` is not checked here: each block is checked by its type when it is read."""

    message_id: str | int = ""
    role: Literal["user", "assistant", "system", "tool"]
    content: JsonValue = None
    delta: bool = False
    tools_calls: list[dict[str, JsonValue]] | None = None
    reasoning: str | None = None
    timestamp: JsonValue = None
    metadata: dict[str, JsonValue] | None = None
    usages: UsageShape | None = None
    raw: dict[str, JsonValue] | None = None


def checked(shape: type[S], value: JsonValue, path: str, names: dict[str, str]) -> S:
    """Validate a value against its form.

    Args:
        shape: the form.
        value: the JSON to validate.
        path: path of the value; the path of an error starts with it.
        names: key → the alias that the data has in place of the key.

    Raises:
        DecodeError: a field is invalid. The error names the first invalid field as the data spells it.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        found, reason = first_fault(error)
        known = [part for part in found if part not in {"str", "int", "dict", "list"}]
        known[:1] = [names.get(name, name) for name in known[:1]]
        raise DecodeError(".".join([*([path] if path else []), *known]), reason) from None


# Read and write the graph format's references to media. No file is opened and no URL is fetched.

_MEDIA_KEYS = {"url": "url", "file_id": "file_id", "data": "data_base64"}
_THEIR_NAMES = {"data": "data_base64"}


def media_of(shape: MediaShape, path: str) -> MediaRef:
    """Read a graph reference as a lanebus reference.

    Raises:
        DecodeError: the field that `kind` requires is missing, a URL is a local path, or base64 or a digest is invalid.
    """
    needed = _MEDIA_KEYS[shape.kind]
    if not getattr(shape, needed):
        raise DecodeError(f"{path}.{needed}", f"media of kind {shape.kind!r} needs it")
    try:
        return MediaRef.model_validate(
            {
                "kind": shape.kind,
                "url": shape.url,
                "file_id": shape.file_id,
                "data": shape.data_base64,
                "sha256": None if shape.sha256 is None else shape.sha256.lower(),
                "mime_type": shape.mime_type,
                "size_bytes": shape.size_bytes,
                "filename": shape.filename,
                "width": shape.width,
                "height": shape.height,
                "duration_ms": shape.duration_ms,
                "page": shape.page,
            }
        )
    except ValidationError as error:
        names, reason = first_fault(error)
        name = names[0] if names else shape.kind
        raise DecodeError(f"{path}.{_THEIR_NAMES.get(name, name)}", reason) from None


def media_out(media: MediaRef) -> tuple[Object, Object] | None:
    """Return the required and the optional fields of a reference; None if the media are in the media store."""
    if media.kind == "sha256":
        return None
    return {"kind": media.kind}, {
        "url": media.url,
        "file_id": media.file_id,
        "data_base64": media.data,
        "mime_type": media.mime_type,
        "size_bytes": media.size_bytes,
        "sha256": media.sha256,
        "filename": media.filename,
        "width": media.width,
        "height": media.height,
        "duration_ms": media.duration_ms,
        "page": media.page,
    }


def looks_like_media(value: JsonValue) -> bool:
    """Return whether a tool's result is one reference to media, and not other JSON that has some of the same keys."""
    if not isinstance(value, dict) or not value.keys() <= MediaShape.model_fields.keys():
        return False
    kind = value.get("kind")
    return (
        isinstance(kind, str)
        and kind in _MEDIA_KEYS
        and bool(value.get(_MEDIA_KEYS[kind]))
        and bool(value.get("mime_type"))
    )


# `tools_calls`, in which a graph message repeats its tool calls in the provider's form. lanebus prefers the blocks.


def calls_beside(values: Iterable[Object], known: Iterable[str]) -> tuple[ToolCallBlock, ...]:
    """Return the calls in `values` whose ids are not in `known`, in order.

    A call has the form of OpenAI's Chat Completions, or is a flat object. The codec stores other values in
    the message's metadata alone.
    """
    ids = set(known)
    found: list[ToolCallBlock] = []
    for value in values:
        function = value.get("function")
        fields = function if isinstance(function, dict) else value
        id, name = value.get("id"), fields.get("name")
        if isinstance(id, str) and isinstance(name, str) and id not in ids:
            found.append(_call_block(id, name, fields))
            ids.add(id)
    return tuple(found)


def calls_out(blocks: Iterable[ToolCallBlock]) -> list[JsonValue] | None:
    """Return the calls in the form of OpenAI's Chat Completions, without remote calls. Return None if no call remains.

    Remote calls are left out because they do not come from a provider.
    """
    calls: list[JsonValue] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments_text(call)}}
        for call in blocks
        if not call.remote
    ]
    return calls or None


def _call_block(id: str, name: str, fields: dict[str, JsonValue]) -> ToolCallBlock:
    arguments = fields.get("arguments", fields.get("args"))
    if not isinstance(arguments, str):
        return ToolCallBlock(id=id, name=name, arguments={} if arguments is None else arguments)
    try:
        require_few_values(arguments)
        parsed: JsonValue = json.loads(arguments)
    except (DecodeError, ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return ToolCallBlock(id=id, name=name, arguments={}, arguments_raw=arguments)
    return ToolCallBlock(id=id, name=name, arguments=parsed)


def _arguments_text(call: ToolCallBlock) -> str:
    if call.arguments_raw is not None and not call.arguments:
        return call.arguments_raw
    return json.dumps(call.arguments, ensure_ascii=False)


# Read and write moments of the graph format: ISO 8601 text or numbers.

_MILLISECONDS_FROM = 1e11
"""A larger number is milliseconds, which the TypeScript client writes. As seconds, this number is in the year 5138."""

_LIMIT = 2**53


def read_moment(value: JsonValue, path: str) -> int | None:
    """Return a moment in milliseconds UTC, rounded. Text without a zone is UTC.

    Raises:
        DecodeError: `value` is not a moment, or out of range.
    """
    match value:
        case None:
            return None
        case bool():
            raise DecodeError(path, "must be seconds or ISO 8601 text")
        case int() | float():
            found = _from_number(value)
        case str():
            found = milliseconds_of(parse_datetime(value, path))
        case _:
            raise DecodeError(path, "must be seconds or ISO 8601 text")
    if found is None or abs(found) > _LIMIT:
        raise DecodeError(path, "is out of the range of a timestamp")
    return found


def seconds(moment: int | None) -> float | None:
    """Return a moment in milliseconds UTC as seconds since 1970; None if `moment` is None."""
    return None if moment is None else moment / 1000


def iso_time(moment: int | None) -> str | None:
    """Return a moment in milliseconds UTC as ISO 8601 text; None if `moment` is None or outside the calendar."""
    if moment is None:
        return None
    try:
        return datetime_of(moment).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return None


def _from_number(value: float) -> int | None:
    if abs(value) > _LIMIT or not math.isfinite(value):  # in this order: a large int cannot become a float
        return None
    return round(value if abs(value) > _MILLISECONDS_FROM else value * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDialect:
    """How one graph format is written if a message has no origin."""

    name: str
    """The codec's name, which is stored in the origin."""
    spelling: Mapping[str, frozenset[str]]
    """Type of block → the alternative key names that are written. Other types have no alternative names."""
    has_document_text: bool
    has_remote_calls: bool
    writes_iso_time: bool
    """Whether moments are written as ISO 8601 text; otherwise they are float seconds."""


# The keys are the names of the first year. The documentation of the second year renames some of
# these keys; the code of the second year does not.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "tool_call": {"arguments": "args"},
    "remote_tool_call": {"arguments": "args"},
    "tool_result": {"tool_call_id": "call_id", "content": "output"},
    "reasoning": {"thinking": "summary"},
    "error": {"error": "message"},
}
"""For each type of block: alternative name of a key → the key's usual name."""

MESSAGE_ALIASES: Mapping[str, str] = {"usage": "usages", "tool_calls": "tools_calls"}
