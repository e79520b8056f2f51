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
from collections.abc import Collection, Iterable

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError, UnknownVersion
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import require_depth
from lanebus.bus.messages.json_reader import Publishable, read_extension, read_llm
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.json_fields import Object
from lanebus.handlers.transcripts.bounds import TranscriptBounds
from lanebus.handlers.transcripts.format import ExportOrigin, Format, TranscriptEntry, TranscriptLine
from lanebus.handlers.transcripts.lanebus_export.relocation import moved
from lanebus.handlers.transcripts.source import canonical_json

__all__ = ("OWN", "entry_line", "header_line")

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
    if not isinstance(position, int) or isinstance(position, bool) or position < 1:
        raise DecodeError("position", "wants a position, which is 1 or more")
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
    if not isinstance(session, str) or not isinstance(created, float | int):
        return None
    is_dense = isinstance(lanes, list) and len(lanes) == len(Lane)
    last = line.get("last" if is_dense else "end")
    return ExportOrigin(session, float(created), _position(line.get("first")), _position(last), is_dense)


def _position(value: JsonValue) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


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
