"""Envelope ⇄ the fields of a stream entry.

An entry has two fields, always in this order, so that the server stores their names once a block: `h` the header, which
is version, milliseconds by the server's clock and producer with a space between; `m` the message's JSON. The scripts
write them; this module reads them, and is where an older version would be lifted to the present one.
"""

from collections.abc import Sequence
from functools import lru_cache

from pydantic_core import PydanticSerializationError

from bus.envelope import Envelope, Unreadable
from bus.errors import DecodeError, ForgedEntry, MessageError, UnknownRole, UnknownVersion
from bus.messages.content import ToolCallBlock
from bus.messages.delta import Delta
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.message import AssistantMessage
from bus.messages.reading import Publishable, read_delta, read_extension, read_llm, require_depth

__all__ = ("VERSION", "decode", "decode_delta", "encode")

VERSION = 1

_READ = {Lane.LLM: read_llm, Lane.EXTENSION: read_extension}

Entry = tuple[bytes, Sequence[bytes]]
"""A stream entry as the server sends it: its id, then names and values in turn."""


def encode(message: Publishable | Delta) -> bytes:
    """The message's JSON in UTF-8, as it goes into field `m`.

    Raises:
        DecodeError: its data or a tool's arguments are nested deeper than the readers of the log follow, or a text in
            it is none: it holds a lone surrogate.
    """
    # By type, as pydantic's isinstance() takes longer than all of this: it goes through Python for another class.
    if type(message) is ExtensionMessage:
        require_depth(message.data, "data")
    elif type(message) is AssistantMessage:
        for block in message.content:
            if type(block) is ToolCallBlock:
                require_depth(block.arguments, "content")
    try:
        return message.to_json_bytes()
    except PydanticSerializationError:  # without its text, which quotes the message
        raise DecodeError("", "a text holds a lone surrogate, or it is nested too deep") from None


def decode(session: str, lane: Lane, entry: Entry) -> Envelope:
    """The envelope of an entry read from a lane's stream; one that cannot be read holds an `Unreadable` with its error:

    - `ForgedEntry`: the entry is not one that the bus writes, or its message does not belong into this lane;
    - `UnknownVersion`: a newer package wrote it;
    - `DecodeError`, `UnknownKind`: its message has no shape we know.
    """
    entry_id, fields = entry
    try:
        _, header, name, body = fields
        version, time, producer = _header(header)
        position, _, rest = entry_id.partition(b"-")
        if version == VERSION and rest == b"0" and name == b"m":
            return Envelope(session, int(position), lane, _READ[lane](body), time, producer)
    except (MessageError, ValueError, TypeError, OverflowError) as error:
        return _unreadable(session, lane, entry, error)
    return _unreadable(session, lane, entry, None)


def decode_delta(session: str, entry: Entry) -> Envelope:
    """The envelope of an entry of the live stream; `delta` is the part of its id after the hyphen."""
    entry_id, fields = entry
    try:
        _, header, _, body = fields
        _, time, producer = _header(header)
        position, _, delta = entry_id.partition(b"-")
        return Envelope(session, int(position), Lane.LLM, read_delta(body), time, producer, int(delta))
    except (MessageError, ValueError, TypeError, OverflowError) as error:
        return _unreadable(session, Lane.LLM, entry, error)


@lru_cache(maxsize=64)  # entries that went in together have the same one
def _header(header: bytes) -> tuple[int, float, str]:
    """Version, seconds and producer.

    Raises:
        ValueError: it is none of the bus's.
    """
    version, milliseconds, producer = header.split(b" ")
    return int(version), int(milliseconds) / 1000, producer.decode()


def _unreadable(session: str, lane: Lane, entry: Entry, cause: Exception | None) -> Envelope:
    entry_id, fields = entry
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    position, _, delta = entry_id.decode(errors="replace").partition("-")
    version, _, _ = values.get(b"h", b"").partition(b" ")
    match cause:
        case UnknownRole():
            error: MessageError = ForgedEntry(f"{session}:{lane}", entry_id.decode(), f"not of this lane: {cause}")
        case MessageError():
            error = cause
        case _ if cause is None and version.isdigit() and len(version) < 10 and int(version) > VERSION:
            error = UnknownVersion(int(version), VERSION)
        case _:
            error = ForgedEntry(f"{session}:{lane}", entry_id.decode(), "not written by the bus")
    message = Unreadable(error, values.get(b"m", b""))
    return Envelope(session, int(position), lane, message, 0.0, "", int(delta))
