"""Envelope ⇄ the fields of a stream entry.

An entry has four fields, always in this order, so that the server stores their names once a block: `v` version, `t`
milliseconds by the server's clock, `by` producer, `m` the message's JSON. The scripts write them; this module reads
them, and is where an older version would be lifted to the present one.
"""

from collections.abc import Sequence

from bus.envelope import Envelope
from bus.errors import BusError, DecodeError, ForgedEntry, UnknownVersion
from bus.messages.delta import Delta
from bus.messages.lanes import Lane
from bus.messages.reading import Publishable, read_delta, read_extension, read_llm

__all__ = ("VERSION", "decode", "decode_delta", "encode")

VERSION = 1

_READ = {Lane.LLM: read_llm, Lane.EXTENSION: read_extension}
_VERSION_TEXT = str(VERSION).encode()

Entry = tuple[bytes, Sequence[bytes]]
"""A stream entry as the server sends it: its id, then names and values in turn."""


def encode(message: Publishable | Delta) -> bytes:
    """The message's JSON in UTF-8, as it goes into field `m`."""
    return message.__pydantic_serializer__.to_json(message, by_alias=True, exclude_none=True)


def decode(session: str, lane: Lane, entry: Entry) -> Envelope:
    """The envelope of an entry read from a lane's stream.

    Raises:
        ForgedEntry: the entry is not one that the bus writes: its id or fields have another shape, or its message
            does not belong into this lane.
        UnknownVersion: a newer package wrote it.
        DecodeError, UnknownKind, UnknownRole: its message cannot be read.
    """
    entry_id, fields = entry
    try:
        _, version, _, time, _, producer, _, body = fields
        position, _, zero = entry_id.partition(b"-")
        if version != _VERSION_TEXT:
            raise UnknownVersion(int(version), VERSION)
        if zero != b"0" or fields[6] != b"m":
            raise ValueError
        return Envelope(session, int(position), lane, _READ[lane](body), int(time) / 1000, producer.decode())
    except BusError:
        raise
    except (ValueError, TypeError):
        raise ForgedEntry(f"{session}:{lane}", entry_id.decode(errors="replace"), "not written by the bus") from None


def decode_delta(session: str, entry: Entry) -> Envelope:
    """The envelope of an entry of the live stream; `delta` is the part of its id after the hyphen.

    Raises:
        DecodeError, ForgedEntry: as for `decode`.
    """
    entry_id, fields = entry
    try:
        _, _, _, time, _, producer, _, body = fields
        position, _, delta = entry_id.partition(b"-")
        message = read_delta(body)
        return Envelope(session, int(position), Lane.LLM, message, int(time) / 1000, producer.decode(), int(delta))
    except DecodeError:
        raise
    except (ValueError, TypeError):
        raise ForgedEntry(f"{session}:live", entry_id.decode(errors="replace"), "not written by the bus") from None
