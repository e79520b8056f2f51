"""The export format of lanebus: one JSON object per line, the header first.

    {"type":"lanebus.export","version":1,"session":"s1","created":1795210750.6,"lanes":["llm","extension"],"first":1,"last":2}
    {"position":1,"lane":"llm","time":1795210750.6,"producer":"F7VX","message":{"role":"user",…}}
    {"position":2,"lane":"extension","time":0.0,"producer":"","message":null,"error":{"type":…,"reason":…},"raw":"<base64>"}

`message` is lanebus's own JSON. An entry that could not be decoded has `error` and its bytes as `raw`, and `message` is
null. A message that is nested too deeply for a line has `raw` without `error`. The JSON output of `lanebus tail` can be
read too.
"""

import base64
import json
import os
import tempfile
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar, overload

from pydantic import JsonValue

from lanebus.bus import MediaStore, SessionHead, media_of, resolve_media
from lanebus.bus.errors import DecodeError, MessageError, UnknownVersion
from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    BranchSummary,
    Compaction,
    CompactionEnded,
    ControlAnswered,
    DataBlock,
    DocumentBlock,
    ExtensionMessage,
    ImageBlock,
    Label,
    Lane,
    LeafMove,
    LlmMessage,
    MediaRef,
    MessageEnded,
    MessageStarted,
    Prune,
    PruneApplied,
    Publishable,
    RevertApplied,
    Steer,
    ToolEnded,
    ToolResultBlock,
    TurnEnded,
    TurnStarted,
    UsageSettled,
    UserMessage,
    VideoBlock,
    read_extension,
    read_llm,
    require_depth,
)
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.context import DEFERRED, READ_UP_TO, Object
from lanebus.handlers.formats.source import LINE_LIMIT_BYTES, canonical_json
from lanebus.handlers.formats.transcript import (
    LEFT_LABEL,
    ExportOrigin,
    Format,
    Moved,
    PositionMap,
    TranscriptBounds,
    TranscriptEntry,
    TranscriptLine,
)

POSITIONS: Mapping[str, tuple[str, ...]] = {
    TurnStarted.KIND: ("prompts",),
    TurnEnded.KIND: ("message", "toolResults"),
    UsageSettled.KIND: ("message",),
    MessageStarted.KIND: ("shown", "held"),
    MessageEnded.KIND: ("position",),
    ToolEnded.KIND: ("position",),
    CompactionEnded.KIND: ("position",),
    PruneApplied.KIND: ("pruned",),
    RevertApplied.KIND: ("target", "summary"),
    ControlAnswered.KIND: ("control",),
    Steer.KIND: ("position",),
}
"""kind of an agent event or command → its fields that hold positions, or lists of positions"""


def moved(message: Publishable) -> Publishable | Moved:
    """Return a `Moved` that replaces the positions in the message. If the message has no positions, return the message
    itself.

    If the referenced entry could not be imported, the position of a neighbour in the LLM lane is used. For a leaf move
    and a branch summary, this is the previous entry; for a compaction, the next entry.

    If the referenced entry never existed, the message has no effect in the new session either. A label of such an entry
    becomes an extension message of kind `import.label`. Events and prunes lose the position of such an entry.
    """
    match message:
        case LeafMove(to=int(to)):
            return Moved(lambda new: message.model_copy(update={"to": _leaf_target(to, new)}))
        case Compaction(first_kept=int(kept)):
            return Moved(lambda new: message.model_copy(update={"first_kept": _moved_compaction(kept, new)}))
        case Prune(pruned=pruned):
            return Moved(lambda new: message.model_copy(update={"pruned": _new_position(pruned, new)}))
        case BranchSummary(branch=int(at)):
            return Moved(lambda new: message.model_copy(update={"branch": new.of(at) or new.llm_at_or_before(at)}))
        case Label():
            return Moved(lambda new: _moved_label(message, new))
        case AssistantMessage(metadata=dict(metadata)) | UserMessage(metadata=dict(metadata)) if _is_position(
            metadata.get(READ_UP_TO)
        ):
            return Moved(lambda new: _moved_read_mark(message, metadata, new))
        case ExtensionMessage(kind=kind, data=dict(data)) if kind in POSITIONS:
            return Moved(lambda new: ExtensionMessage.of(kind, _moved_event(data, POSITIONS[kind], new)))
        case _:
            return message


def _leaf_target(to: int, new: PositionMap) -> int | None:
    """Return the new target of a leaf move. If the old target never existed, return the last entry: no effect."""
    return new.of(to) or (new.llm_at_or_before(to) if new.is_lost(to) else new.last_llm())


def _moved_compaction(first: int, new: PositionMap) -> int | None:
    return new.of(first) or (new.llm_at_or_after(first) if new.is_lost(first) else None)


def _new_position(positions: tuple[int, ...], new: PositionMap) -> tuple[int, ...]:
    return tuple(now for position in positions if (now := new.of(position)) is not None)


def _moved_label(label: Label, new: PositionMap) -> Publishable:
    target = new.of(label.target)
    if target is None:
        return ExtensionMessage.of(LEFT_LABEL, label.model_dump(mode="json", by_alias=True, exclude_none=True))
    return label.model_copy(update={"target": target})


def _moved_read_mark(message: LlmMessage, metadata: Object, new: PositionMap) -> LlmMessage:
    """Replace the positions in a message's metadata: how far the model had read, and the entries it was not shown."""
    seen, held = metadata[READ_UP_TO], metadata.get(DEFERRED)
    read = new.llm_at_or_before(seen) if isinstance(seen, int) else None
    mapped: Object = {**metadata, READ_UP_TO: read or 0}
    if isinstance(held, list):
        mapped[DEFERRED] = [at for at in (_moved_at(item, new) for item in held) if at is not None]
    return message.model_copy(update={"metadata": mapped})


def _moved_event(data: Object, names: tuple[str, ...], new: PositionMap) -> Object:
    result: Object = {}
    for name, value in data.items():
        if name not in names:
            result[name] = value
        elif isinstance(value, list):
            result[name] = [at for at in (_moved_at(item, new) for item in value) if at is not None]
        elif (at := _moved_at(value, new)) is not None:
            result[name] = at
    return result


def _moved_at(value: JsonValue, new: PositionMap) -> JsonValue:
    """Return the new position of an entry, or None. Return a value that is not a position unchanged."""
    return new.of(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_position(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


CARRIED_LIMIT_BYTES = LINE_LIMIT_BYTES // 2
"""Maximum number of bytes of inline media per message, before base64. An import refuses lines longer than
`LINE_LIMIT_BYTES`."""

M = TypeVar("M", bound=LlmMessage)


async def with_media(message: M, store: MediaStore) -> tuple[M, tuple[str, ...]]:
    """Return the message with its stored media inline, and the SHA-256 of each medium that is missing or too large.

    If the returned message is published to another bus, that bus stores the media again. The new entry equals the
    original.

    Raises:
        Unavailable: the store cannot be reached.
        SetupError: the store refuses access.
    """
    wanted = [media.sha256 for media in media_of(message) if media.kind == "sha256" and media.sha256]
    if not wanted:
        return message, ()
    loaded = await resolve_media([message], store, limit_bytes=CARRIED_LIMIT_BYTES)
    missing = tuple(dict.fromkeys(digest for digest in wanted if digest not in loaded))
    return message.model_copy(update={"content": _inlined_blocks(message.content, loaded)}), missing


def _inlined_blocks(content: Iterable[Block], loaded: Mapping[str, MediaRef]) -> tuple[Block, ...]:
    return tuple(_inlined_block(block, loaded) for block in content)


def _inlined_block(block: Block, loaded: Mapping[str, MediaRef]) -> Block:
    match block:
        case ToolResultBlock(content=content):
            return block.model_copy(update={"content": _inlined_blocks(content, loaded)})
        case VideoBlock(media=media, thumbnail=thumbnail):
            return block.model_copy(
                update={"media": _stored_media(media, loaded), "thumbnail": _stored_media(thumbnail, loaded)}
            )
        case ImageBlock() | AudioBlock() | DocumentBlock():
            return block.model_copy(update={"media": _stored_media(block.media, loaded)})
        case DataBlock():
            return block.model_copy(update={"media": _stored_media(block.media, loaded)})
        case _:
            return block


@overload
def _stored_media(media: MediaRef, loaded: Mapping[str, MediaRef]) -> MediaRef: ...
@overload
def _stored_media(media: MediaRef | None, loaded: Mapping[str, MediaRef]) -> MediaRef | None: ...
def _stored_media(media: MediaRef | None, loaded: Mapping[str, MediaRef]) -> MediaRef | None:
    """Put media inline. Other fields of the reference are kept. Storing the media again checks the SHA-256."""
    inline = loaded.get(media.sha256 or "") if media is not None and media.kind == "sha256" else None
    return media.model_copy(update={"kind": "data", "data": inline.data}) if media and inline else media


@contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    The file's data is synced to disk before the replacement.

    Only the owner may read the file. A symbolic link at `path` is replaced, not followed.

    Raises:
        OSError: the file could not be written. `path` is unchanged.
    """
    # In the same directory, because a rename cannot cross file systems.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


TYPE = "lanebus.export"
VERSION = 1

_DEEP = 60

_READ = {Lane.LLM: read_llm, Lane.EXTENSION: read_extension}


def header_line(head: SessionHead, lanes: Collection[Lane], first: int | None = None) -> str:
    """Return the first line of an export.

    Args:
        head: head of the exported session.
        lanes: the exported lanes.
        first: first exported position. None means the first position that was not trimmed.
    """
    header: dict[str, object] = {
        "type": TYPE,
        "version": VERSION,
        "session": head.session,
        "created": head.created,
        "lanes": [lane.value for lane in Lane if lane in set(lanes)],
        "first": head.first_kept if first is None else first,
        "last": head.position,
    }
    if len({*lanes}) < len(Lane) and (end := head.last_in({*lanes})):  # the last position of the exported lane
        header["end"] = end
    return _compact(header)


def entry_line(envelope: Envelope) -> str:
    """Return the line of an entry."""
    place: dict[str, object] = {"position": envelope.position}
    if envelope.delta:
        place["delta"] = envelope.delta
    origin = {**place, "lane": envelope.lane.value, "time": envelope.time, "producer": envelope.producer}
    message = envelope.message
    if isinstance(message, DecodeFailure):
        error = {"type": type(message.error).__name__, "reason": str(message.error)}
        return _compact({**origin, "message": None, "error": error, "raw": _base64(message.raw)})
    text = message.to_json()
    # The message is inserted as text, because it is JSON already and may be long.
    line = f'{_compact(origin)[:-1]},"message":{text}}}'
    return line if _is_shallow(text) else _compact({**origin, "message": None, "raw": _base64(text.encode())})


def _recognizes(line: JsonValue) -> bool:
    if not isinstance(line, dict):
        return False
    return line.get("type") == TYPE or ("lane" in line and "position" in line and "message" in line)


def _read(line: JsonValue) -> TranscriptEntry:
    if not isinstance(line, dict):
        raise DecodeError("", "a line is a JSON object")
    if line.get("type") == TYPE:
        raise DecodeError("type", "a header must be the first line")
    position, lane = line.get("position"), line.get("lane")
    if not (position := _position(position)):
        raise DecodeError("position", "wants a position, which is 1 or more and has at most 18 digits")
    if lane not in [each.value for each in Lane]:
        raise DecodeError("lane", "wants one of " + ", ".join(Lane))
    if "error" in line:
        unreadable = ExtensionMessage.of("import.unreadable", line)
        # An entry with a `delta` was written by a foreign client. Another entry has that position.
        is_entry = "delta" not in line
        return TranscriptEntry(
            message=unreadable, position=position if is_entry else None, is_lost=is_entry and lane == Lane.LLM
        )
    message = _message(line, Lane(lane))
    return TranscriptEntry(message=moved(message), position=position)


def _message(line: Object, lane: Lane) -> Publishable:
    raw = line.get("raw")
    try:
        if isinstance(raw, str):
            return _READ[lane](base64.b64decode(raw, validate=True))
        return _READ[lane](json.dumps(line.get("message"), ensure_ascii=False))
    except DecodeError as error:
        raise DecodeError(f"message.{error.path}" if error.path else "message", error.reason) from None
    except ValueError:
        raise DecodeError("raw", "not base64") from None


class _Lines:
    """Drops the header. Gives each other line a `content` that does not depend on the formatting of its JSON."""

    def __init__(self, bounds: TranscriptBounds) -> None:
        del bounds  # no line is held back
        self._is_first = True

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        value, is_first, self._is_first = line.value, self._is_first, False
        if is_first and isinstance(value, dict) and value.get("type") == TYPE:
            version = value.get("version")
            if not isinstance(version, int) or version > VERSION:
                raise UnknownVersion(version if isinstance(version, int) else 0, VERSION)
            return ()
        return (line._replace(content=canonical_json(value)),)

    def end(self) -> Iterable[TranscriptLine]:
        return ()


def _identity(line: JsonValue) -> bytes:
    """Return the session id as the identity: a later export with more entries is the same transcript."""
    return canonical_json(line.get("session")) if isinstance(line, dict) else b""


def _origin(line: JsonValue) -> ExportOrigin | None:
    if not isinstance(line, dict) or line.get("type") != TYPE:
        return None
    session, created, lanes = line.get("session"), line.get("created"), line.get("lanes")
    if not isinstance(session, str) or not isinstance(created, float | int) or not 0 <= created < 10**18:
        return None
    is_dense = isinstance(lanes, list) and len(lanes) == len(Lane)
    last = line.get("last" if is_dense else "end")
    return ExportOrigin(session, float(created), _position(line.get("first")), _position(last), is_dense)


def _position(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**18 else 0


def _is_shallow(text: str) -> bool:
    """Whether a line that contains the message `text` is nested no deeper than readers allow."""
    if text.count("{") + text.count("[") < _DEEP:  # each level needs a bracket
        return True
    try:
        value: JsonValue = json.loads(text)
        require_depth([value])
    except (MessageError, ValueError, RecursionError):
        return False
    return True


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


OWN = Format(
    name="lanebus",
    sign='what `lanebus export` writes: a header with "type":"lanebus.export", entries with "position", "lane" and '
    '"message"',
    recognizes=_recognizes,
    read=_read,
    identity=_identity,
    gather=_Lines,
    origin=_origin,
)
