"""How an entry is written, read, and handed to readers: messages to JSON, stream entries to envelopes.

An entry has two fields. They are always in this order, so that the server stores the field names once per block:

- `h`, the header, separated by spaces: version, time in milliseconds by the server's clock, producer, token of the
  incarnation, checksum. The header of a live delta has no checksum. It has no token either if the session has no entry
  yet. The checksum of an imported entry begins with a mark, `i`.
- `m`, the message's JSON.

The proof of an entry (`Cursor.proof`) is the sum of its checksum and its time, modulo 2^32, in hexadecimal digits. It
differs for two appends of the same message, as their times differ, and for two messages of one millisecond. It is a sum
because the scripts need it too, and a digest costs them as much as the rest of an append.

The scripts write entries. Here entries are read, and older versions are converted to the present one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, cast
from zlib import crc32

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError

from lanebus.bus.errors import (
    Conflict,
    DecodeError,
    EntryDamaged,
    Fenced,
    ForgedEntry,
    InvalidArgument,
    InvalidCursor,
    KeyReserved,
    LogRolledBack,
    MessageError,
    MessageTooLarge,
    MissingUpcaster,
    NoKinds,
    NoLanes,
    OverLimit,
    SessionClosed,
    SessionErased,
    UnknownRole,
    UnknownVersion,
    WrongAgent,
    require_all,
    require_count,
    require_text,
)
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.content import Block, ErrorBlock, ToolCallBlock, ToolResultBlock, UnknownBlock
from lanebus.bus.messages.extension import STORE, ExtensionMessage
from lanebus.bus.messages.json_reader import (
    DIGITS_LIMIT,
    Publishable,
    parse_json,
    read_delta,
    read_extension,
    read_llm,
    require_depth,
    require_json,
)
from lanebus.bus.messages.message import (
    AssistantMessage,
    ContextEntry,
    Delta,
    DeveloperMessage,
    LlmMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from lanebus.bus.messages.message import AnyContextEntry, Message


# Convert old entries to the present form as they are read, one version at a time. Stored entries never change.
#
# An entry's header has the version of the entry's form. A change of the form needs a new version if old messages could
# not be read, or would have another meaning. For a new version, increase `VERSION` by one, add the step
# from the old version here, and add a golden log of the new version under tests/golden.

MessageJson = dict[str, JsonValue]
"""A message as parsed JSON, before validation."""

Upcaster = Callable[[Lane | None, MessageJson], MessageJson]
"""A function that converts a message to the next version. It may modify its argument. The lane of a live delta is
None."""

UPCASTERS: dict[int, Upcaster] = {}
"""The upcasters by version: each converts a message from its version to the next."""


def require_steps(newest: int, steps: Mapping[int, Upcaster] = UPCASTERS) -> None:
    """Check that `steps` has an upcaster for every version before `newest`. Called at import.

    Raises:
        MissingUpcaster: a version has no upcaster.
    """
    for version in range(1, newest):
        if version not in steps:
            raise MissingUpcaster(version, newest)


def lift(version: int, newest: int, lane: Lane | None, body: bytes) -> bytes:
    """Return a message's JSON in the newest form.

    Args:
        version: the version of `body`.
        newest: the version to return.
        lane: the message's lane; None for a live delta.
        body: the stored JSON.

    Raises:
        DecodeError: `body` is not a JSON object, or an upcaster failed.
    """
    value = parse_json(body)
    for step in range(version, newest):
        if not isinstance(value, dict):
            raise DecodeError("", f"not an object in version {step}")
        try:
            value = UPCASTERS[step](lane, value)
        except Exception as error:  # any fault of a step makes only this entry unreadable
            raise DecodeError("", f"cannot convert from version {step}: {type(error).__name__}") from error
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError("", f"cannot convert from version {version}: {type(error).__name__}") from error


MESSAGE_LIMIT_BYTES = 1_048_576
"""Maximum number of bytes of a message's JSON. Media of 50,000 bytes or more belong in the media store."""

VERSION = 1
"""The version of the stored form. Increase this number when you add a step to `UPCASTERS`."""

require_steps(VERSION)

_READ = {Lane.LLM: read_llm, Lane.EXTENSION: read_extension}

# Pydantic writes a lone surrogate in a key as this character, which would be read as another key. It refuses a lone
# surrogate in other text.
_REPLACED = "\ufffd".encode()
_LEAD = _REPLACED[:1]  # searched first, because a search for one byte is twenty times as fast as for three
_NESTING: frozenset[type] = frozenset((dict, list))

_FREE_IN_ALL = ("metadata",)
_FREE_IN_MESSAGES = (*_FREE_IN_ALL, "raw", "provenance_hint")
_LLM_MESSAGES = frozenset((SystemMessage, DeveloperMessage, UserMessage, AssistantMessage, ToolResultMessage))
_FREE_FIELDS: Mapping[type, tuple[str, ...]] = {
    ExtensionMessage: ("data",),
    **dict.fromkeys((SystemMessage, DeveloperMessage, UserMessage, AssistantMessage), _FREE_IN_MESSAGES),
    ToolResultMessage: (*_FREE_IN_MESSAGES, "structured"),
    ToolCallBlock: ("arguments", "metadata"),
    ToolResultBlock: ("structured", "metadata"),
    UnknownBlock: ("raw",),
    ErrorBlock: ("data",),
}
"""Fields with free JSON, for each type of message and block that has such fields."""

Entry = tuple[bytes, Sequence[bytes]]
"""A stream entry as the server sends it: the id, then a list of alternating names and values."""


class Mark(NamedTuple):
    """What tells an entry from every other entry that was ever appended at its position."""

    token: str
    """token of the incarnation that wrote the entry"""
    proof: str
    """see `Cursor.proof`"""


UNMARKED = Mark("", "")
"""The mark of an entry that the bus did not write."""


def encode(message: Publishable | Delta) -> bytes:
    """Return a message's JSON in UTF-8, as stored in the field `m` of an entry.

    Raises:
        DecodeError: free JSON, such as a tool's arguments, is nested too deep or has a number with too many digits, or
            a text contains a lone surrogate.
    """
    try:
        if _is_simple(message):
            data = message.__pydantic_serializer__.to_json(message, by_alias=True, exclude_none=True)
        else:
            for path, free, level in _free_json(message):
                _require_depth_at(level, free, path)
            data = message.to_json_bytes()
    except PydanticSerializationError:  # its text is left out, because it quotes the message
        _require_free_json(message)
        raise DecodeError("", "a text holds a lone surrogate, or it is nested too deep") from None
    if _is_suspect(data):
        _require_free_json(message)
        parse_json(data)
    return data


def _is_simple(message: Publishable | Delta) -> bool:
    """Return whether a message can be encoded without checks of its free JSON.

    It must be a message of the LLM lane, with free JSON far below the depth limit and without null arguments. Hot path,
    called for every publish: tracking the paths of values here would take four times as long.
    """
    if type(message) not in _LLM_MESSAGES:  # not isinstance(), which pydantic implements in Python
        return False
    llm_message = cast("LlmMessage", message)
    if llm_message.metadata is not None and not _is_shallow(llm_message.metadata):
        return False
    if llm_message.raw is not None or llm_message.provenance_hint is not None:
        return False
    if type(llm_message) is AssistantMessage:
        if llm_message.usage is not None and llm_message.usage.raw is not None:
            return False
    elif type(llm_message) is ToolResultMessage and llm_message.structured is not None:
        return False
    for block in llm_message.content:
        if type(block) is ToolCallBlock:
            if (
                block.arguments is None
                or not _is_shallow(block.arguments)
                or (block.metadata is not None and not _is_shallow(block.metadata))
            ):
                return False
        elif type(block) in _FREE_FIELDS:
            return False
    return True


def _is_shallow(value: JsonValue, room: int = 16) -> bool:
    """Return whether the value is nested at most about `room` levels deep."""
    if type(value) is dict:
        items: Iterable[JsonValue] = value.values()
    elif type(value) is list:
        items = value
    else:
        return True
    if _NESTING.isdisjoint(map(type, items)):
        return True
    return room > 0 and all(_is_shallow(item, room - 1) for item in items if type(item) in _NESTING)


def _is_suspect(data: bytes) -> bool:
    """Return whether the JSON needs a full check, because it has replaced characters or a long run of digits."""
    if _LEAD in data and _REPLACED in data:
        return True
    # A run of digits that is longer than the limit covers one of these offsets, with 16 or more digits on one side.
    for at in range(DIGITS_LIMIT - 1, len(data), DIGITS_LIMIT):
        if data[at : at + 1].isdigit() and (data[at - 16 : at].isdigit() or data[at : at + 16].isdigit()):
            return True
    return False


def _require_free_json(message: Publishable | Delta) -> None:
    for path, free, _ in _free_json(message):
        try:
            require_json(free)
        except DecodeError as error:
            raise DecodeError(".".join(filter(None, (path, error.path))), error.reason) from None


def _free_json(message: Publishable | Delta) -> Iterator[tuple[str, JsonValue, int]]:
    """Yield each free JSON value in a message: its path, the value, and the number of enclosing objects and lists."""
    # The type is compared, because isinstance(), which pydantic implements in Python, takes longer than all the rest.
    kind = type(message)
    if kind is Delta:
        return
    for name in _FREE_FIELDS.get(kind, _FREE_IN_ALL):
        if (value := getattr(message, name)) is not None:
            yield name, value, 1
    if isinstance(message, LlmMessage):
        if type(message) is AssistantMessage and message.usage is not None and message.usage.raw is not None:
            yield "usage.raw", message.usage.raw, 2
        yield from _free_json_in(message.content, "content", 2)


def _free_json_in(blocks: Iterable[Block], path: str, level: int) -> Iterator[tuple[str, JsonValue, int]]:
    for index, block in enumerate(blocks):
        for name in _FREE_FIELDS.get(type(block), ()):
            if (value := getattr(block, name)) is not None:
                yield f"{path}.{index}.{name}", value, level + 1
        if type(block) is ToolResultBlock:
            yield f"{path}.{index}.content", [], level + 1
            yield from _free_json_in(block.content, f"{path}.{index}.content", level + 2)


def _require_depth_at(level: int, value: JsonValue, path: str) -> None:
    if not isinstance(value, dict | list):
        return
    for _ in range(level):
        value = [value]
    try:
        require_depth(value)
    except DecodeError as error:
        raise DecodeError(path, error.reason) from None


def decode(session: str, lane: Lane, entry: Entry) -> Envelope:
    """Return the envelope of an entry in a lane.

    If the entry is unreadable, the envelope's message is a `DecodeFailure` with one of these errors:

    - `ForgedEntry`: the bus did not write the entry, or its message belongs in the other lane;
    - `EntryDamaged`: the checksum does not match;
    - `UnknownVersion`: a newer version of lanebus wrote the entry;
    - `DecodeError`, `UnknownKind`: the message has an unknown form.
    """
    entry_id, fields = entry
    try:
        _, header, name, body = fields
        rest, _, checksum = header.rpartition(b" ")
        version, time, producer, token, seeds, milliseconds = _entry_header(rest)
        position, _, delta = entry_id.partition(b"-")
        if delta == b"0" and name == b"m":
            place, seed = int(position), seeds[lane]
            if is_imported := checksum[:1] == IMPORTED:
                seed, checksum = imported_seed(seed), checksum[1:]
            total = int(checksum)
            # An entry of a newer version may have another kind of checksum.
            if crc32(body, seed) != total and version <= VERSION:
                return _unreadable(session, lane, entry, EntryDamaged(session, lane, place))
            if version == VERSION:  # the most frequent case
                proof = "%x" % ((total + milliseconds) & 0xFFFF_FFFF)
                return Envelope(session, place, lane, _READ[lane](body), time, producer, 0, token, is_imported, proof)
            if 0 < version < VERSION:
                message = _READ[lane](lift(version, VERSION, lane, body))
                proof = proof_from(checksum, milliseconds)
                return Envelope(session, place, lane, message, time, producer, 0, token, is_imported, proof)
    except (MessageError, ValueError, TypeError, OverflowError) as error:
        return _unreadable(session, lane, entry, error)
    return _unreadable(session, lane, entry, None)


def is_whole(lane: Lane, entry: Entry) -> bool:
    """Return whether the bus wrote the entry and the checksum matches. The message is not decoded."""
    try:
        _, header, name, body = entry[1]
        rest, _, checksum = header.rpartition(b" ")
        position, _, delta = entry[0].partition(b"-")
        seed = _entry_header(rest)[4][lane]
        if checksum[:1] == IMPORTED:
            seed, checksum = imported_seed(seed), checksum[1:]
        found = crc32(body, seed)
        return position.isdigit() and delta == b"0" and name == b"m" and found == int(checksum)
    except (ValueError, OverflowError):
        return False


def decode_delta(session: str, entry: Entry) -> Envelope:
    """Return the envelope of an entry in the live stream. `Envelope.delta` is the part of the id after the hyphen."""
    entry_id, fields = entry
    try:
        _, header, _, body = fields
        version, time, producer, token, proof = _delta_header(header)
        position, _, delta = entry_id.partition(b"-")
        if 0 < version <= VERSION:
            message = read_delta(body if version == VERSION else lift(version, VERSION, None, body))
            return Envelope(session, int(position), Lane.LLM, message, time, producer, int(delta), token, proof=proof)
    except (MessageError, ValueError, TypeError, OverflowError) as error:
        return _unreadable(session, Lane.LLM, entry, error)
    return _unreadable(session, Lane.LLM, entry, None)


@lru_cache(maxsize=64)  # entries of one publish have the same header
def _entry_header(header: bytes) -> tuple[int, float, str, str, Mapping[Lane, int], int]:
    """Return version, time in seconds, producer, token, for each lane the initial value of the checksum, and the time
    in milliseconds.

    Args:
        header: the header without the checksum.

    Raises:
        ValueError: the bus did not write this header.
    """
    version, milliseconds, name, token = header.split(b" ")
    number, producer = int(version), name.decode()
    return (
        number,
        int(milliseconds) / 1000,
        producer,
        token.decode(),
        {lane: seed_of(number, producer, lane) for lane in Lane},
        int(milliseconds),
    )


@lru_cache(maxsize=64)
def _delta_header(header: bytes) -> tuple[int, float, str, str, str]:
    """Return version, time in seconds, producer, and token and proof of the entry at the delta's position.

    Raises:
        ValueError: the bus did not write this header.
    """
    version, milliseconds, producer, *entry = header.split(b" ")
    if len(entry) > 2:
        raise ValueError
    token, proof, *_ = (*(word.decode() for word in entry), "", "")
    return int(version), int(milliseconds) / 1000, producer.decode(), token, proof


def token_of(entry: Entry) -> str:
    """Return the token of the incarnation that wrote an entry; "" if the entry's header has no token."""
    return mark_of(entry).token


def proof_from(checksum: bytes, milliseconds: int) -> str:
    """Return the proof of an entry.

    Args:
        checksum: the checksum as in the entry's header.
        milliseconds: time of the append.

    Raises:
        ValueError: the checksum is no number.
    """
    return f"{(int(checksum.removeprefix(IMPORTED)) + milliseconds) & 0xFFFF_FFFF:x}"


def mark_of(entry: Entry) -> Mark:
    """Return the mark of an entry; see `mark_in`."""
    return mark_in(entry[1][1]) if len(entry[1]) > 1 else UNMARKED


def mark_in(header: bytes) -> Mark:
    """Return the mark that an entry's header tells. A part that it does not tell is ""."""
    words = header.split(b" ")
    if len(words) != 5:
        return UNMARKED
    try:
        proof = proof_from(words[4], int(words[1]))
    except ValueError:  # a foreign client wrote the header
        proof = ""
    return Mark(words[3].decode(errors="replace"), proof)


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
    message = DecodeFailure(error, values.get(b"m", b""))
    token, proof = mark_of(entry)
    return Envelope(session, int(position), lane, message, 0.0, "", int(delta), token, proof=proof)


def position_of(entry: Entry) -> int:
    """Return the position in an entry's id."""
    return int(entry[0].partition(b"-")[0])


# The checksum of an entry, which detects bytes that changed on disk or in memory.
#
# The checksum is the last word of an entry's header: the CRC-32 of version, producer, lane and the message's JSON. The
# publishing client computes the checksum, and the script only stores it. Time and position are not covered, because
# only the script knows them, and hashing in the script is slow. Positions are checked by their order, and incarnations
# by the position at which each of them begins.
#
# The header of an imported entry has the letter `i` before the digits of the checksum. This mark is covered too.
#
# The checksum is not a signature: any client that can write to the server can compute it.

IMPORTED = b"i"
"""The mark of an imported entry, before the digits of its checksum. It is no word of its own, because scripts rely on
the number of the header's words."""


@lru_cache(maxsize=1024)
def seed_of(version: int, producer: str, lane: Lane) -> int:
    """Return the CRC of version, producer and lane: the initial value for the CRC of a message's JSON."""
    return crc32(f"{version} {producer} {lane.value} ".encode())


@lru_cache(maxsize=64)
def imported_seed(seed: int) -> int:
    """Return the initial value for the CRC of an imported message's JSON.

    Args:
        seed: the value that `seed_of` returns.
    """
    return crc32(b"imported ", seed)


# The selection of a reader: lanes, and kinds of messages in these lanes.

_LANES = frozenset(Lane)

# The beginning of a message's JSON as the bus writes it. If JSON begins differently, its kind is known after decoding.
_KIND = {
    Lane.LLM: re.compile(rb'\{"role":"(?:context","kind":"(\w+)|(system|developer|user|assistant|toolResult))"'),
    Lane.EXTENSION: re.compile(rb'\{"role":"extension","kind":"([ !#-\[\]-~]*)"'),
}


class Selection(NamedTuple):
    """The lanes and kinds to read. An unreadable or forged entry matches every kind, so it is never hidden.

    What a framework stores (kinds `store.…` of the extension lane) may hold content of the LLM lane. It is selected
    only together with the LLM lane, so a reader of the extension lane alone never sees it.
    """

    lanes: frozenset[Lane]
    names: frozenset[str] | None = None
    """exact kinds to select; None selects every kind"""
    prefixes: tuple[str, ...] = ()
    """prefixes of kinds to select"""
    whole: frozenset[Lane] = frozenset()
    """lanes in which every kind is selected, regardless of `names` and `prefixes`"""

    @classmethod
    def of(cls, lanes: Collection[Lane], kinds: Collection[str] | Mapping[Lane, Collection[str]] | None = None) -> Self:
        """Return the selection for a caller's arguments.

        Args:
            lanes: the lanes to read.
            kinds: exact kinds, or prefixes such as `agent.*`; None selects every kind. A mapping selects kinds for some
                lanes; in the other lanes every kind is selected.

        Raises:
            NoLanes: `lanes` is empty.
            NoKinds: `kinds` is empty, or selects no kind in any of the lanes.
        """
        if isinstance(lanes, str):  # a single lane, not a collection of letters
            lanes = (Lane(lanes),) if lanes in _LANES else ()
        require_all("lanes", lanes, str, "pass lanes, such as {Lane.LLM}")
        if not lanes:
            raise NoLanes
        _require_lanes("lanes", lanes)
        if kinds is None:
            return cls(frozenset(lanes))
        if isinstance(kinds, Mapping):
            by_lane = cast("Mapping[Lane, Collection[str]]", kinds)
            _require_lanes("kinds", by_lane)
            whole = frozenset(lanes) - by_lane.keys()
            if whole and not any(by_lane.values()):  # no kind is selected in the lanes of the mapping
                return cls(frozenset(lanes), frozenset(), (), whole)
            named = cls.of(lanes, [kind for each in by_lane.values() for kind in each])
            return named._replace(whole=whole)
        if isinstance(kinds, str):  # a single kind, not a collection of letters
            kinds = (kinds,)
        require_all("kinds", kinds, str, 'pass texts, such as {"user", "agent.*"}')
        if not kinds:
            raise NoKinds
        prefixes = sorted({kind[:-1] for kind in kinds if kind.endswith("*")})
        return cls(frozenset(lanes), frozenset(kind for kind in kinds if not kind.endswith("*")), tuple(prefixes))

    @classmethod
    def union(cls, selections: Iterable[Selection]) -> Self:
        """Return a selection that includes all of `selections`, and possibly more."""
        lanes, names, prefixes, whole, has_all = set[Lane](), set[str](), set[str](), set[Lane](), False
        for each in selections:
            lanes |= each.lanes
            has_all = has_all or each.names is None
            names |= each.names or frozenset()
            prefixes |= {*each.prefixes}
            whole |= each.whole
        if has_all:
            return cls(frozenset(lanes))
        return cls(frozenset(lanes), frozenset(names), tuple(sorted(prefixes)), frozenset(whole))

    @property
    def in_order(self) -> tuple[Lane, ...]:
        """The lanes, always in the same order."""
        return tuple(lane for lane in Lane if lane in self.lanes)

    def takes(self, envelope: Envelope) -> bool:
        """Return whether an envelope is selected."""
        if envelope.lane not in self.lanes or (Lane.LLM not in self.lanes and _is_stored(envelope.message)):
            return False
        if self.names is None or envelope.lane in self.whole:
            return True
        message = envelope.message
        if not isinstance(message, DecodeFailure):
            return self.takes_kind(kind_of(message))
        if isinstance(message.error, ForgedEntry | EntryDamaged | UnknownVersion):
            return True
        kind = _kind_in(envelope.lane, message.raw)
        return kind is None or self.takes_kind(kind)

    def takes_kind(self, kind: str) -> bool:
        """Return whether messages of this kind are selected."""
        return self.names is None or kind in self.names or kind.startswith(self.prefixes)

    def may_take(self, lane: Lane, entry: Entry) -> bool:
        """Return whether an entry may be selected, judging by its first bytes.

        If True, the entry has to be decoded, and `takes` decides. For a short message, this call takes a tenth of the
        time of decoding. It takes no longer for a long message.
        """
        if lane in self.whole and Lane.LLM in self.lanes:
            return True
        kind = _kind_in(lane, entry[1][-1])
        if kind is not None and Lane.LLM not in self.lanes and kind.startswith(STORE):
            return False
        if kind is None or self.takes_kind(kind):
            return True
        # Only an intact entry of the bus may be skipped. Forged and damaged entries are shown.
        return not is_whole(lane, entry)


def _require_lanes(name: str, lanes: Collection[str]) -> None:
    for lane in lanes:
        if lane not in _LANES:
            raise InvalidArgument(name, lane, "name the lanes Lane.LLM and Lane.EXTENSION")


def _is_stored(message: Publishable | Delta | DecodeFailure) -> bool:
    """Return whether a message is what a framework stores, also if the entry is unreadable."""
    if isinstance(message, DecodeFailure):
        return (_kind_in(Lane.EXTENSION, message.raw) or "").startswith(STORE)
    return isinstance(message, ExtensionMessage) and message.is_stored_state


def kind_of(message: Publishable | Delta) -> str:
    """Return the kind of an extension message or context entry, or the role of any other message."""
    if isinstance(message, ExtensionMessage | ContextEntry):
        return cast("ExtensionMessage | AnyContextEntry", message).kind
    return cast("Message | Delta", message).role


def _kind_in(lane: Lane, body: bytes) -> str | None:
    found = _KIND[lane].match(body)
    return found[found.lastindex or 0].decode() if found else None


# What readers and publishers get: envelopes with cursors, notices between envelopes, and receipts.


CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:\.([A-Za-z0-9_-]{1,32})(?:\.([0-9a-f]{1,8}))?)?)?")


class Cursor(NamedTuple):
    """The place of a reader in a session. The reader has seen everything up to and including this place.

    Compare cursors as numbers, never as text. The text form is a stream id, followed by the incarnation and the proof
    if they are known: `<position>-<delta>.<incarnation>.<proof>`.
    """

    position: int
    """position of the last entry that was seen; 0 is before the first entry"""
    delta: int = 0
    """number of the last live delta that was seen at this position; 0 is before the first delta"""
    incarnation: str = ""
    """token of the log's incarnation. A log that loses its end gets a new incarnation, so that a cursor of
    lost entries is detected. A cursor with "" was not read from the log. Of such a cursor, only the position is
    checked: it must not be beyond the log's end"""
    proof: str = ""
    """proof of the entry at `position`, in hexadecimal digits. It differs for every entry that was ever appended there,
    so that a log is detected that went back without a restart, such as by restored keys. "" if unknown: such a cursor
    was read by an earlier version, or after a range that was not read whole; only its incarnation is checked"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor from the text that `str()` returns, or from a plain position.

        Raises:
            InvalidCursor: the text is neither a cursor nor a position.
        """
        return cls._read("text", text)

    @classmethod
    def of(cls, given: Cursor | str, name: str = "after") -> Cursor:
        """Return the cursor that a caller passed, either as a `Cursor` or as the text that `str()` returns.

        Args:
            given: the cursor.
            name: the caller's name for the argument, for the error.

        Raises:
            InvalidCursor: the text is not a cursor.
            InvalidArgument: `given` is neither a cursor nor a text, or its position or delta is negative.
        """
        return given if type(given) is Cursor and _is_whole(given) else cls._read(name, given)

    @classmethod
    def _read(cls, name: str, given: object) -> Self:
        if type(given) is Cursor:
            position, delta, incarnation, proof = cast("tuple[object, object, object, object]", given)
            require_count(f"{name}.position", position)
            require_count(f"{name}.delta", delta)
            require_text(f"{name}.incarnation", incarnation)
            require_text(f"{name}.proof", proof)
        if isinstance(getattr(given, "cursor", None), Cursor):  # a receipt, an envelope, a notice, a head
            raise InvalidArgument(name, given, "pass its `cursor`")
        if not isinstance(given, str):
            raise InvalidArgument(name, given, "pass a Cursor, or its text such as '12-0'; START is the first")
        match = CURSOR.fullmatch(given)
        if match is None:
            raise InvalidCursor(given)
        return cls(int(match[1]), int(match[2] or 0), match[3] or "", match[4] or "")

    def __str__(self) -> str:
        if not self.incarnation:
            return self.id
        return f"{self.id}.{self.incarnation}.{self.proof}" if self.proof else f"{self.id}.{self.incarnation}"

    @property
    def id(self) -> str:
        """The place as a stream id."""
        return f"{self.position}-{self.delta}"

    def is_after(self, other: Cursor) -> bool:
        """Return whether this cursor is after `other`. Incarnations and proofs are not compared."""
        return self[:2] > other[:2]


def _is_whole(cursor: Cursor) -> bool:
    """Return whether the parts have the types and values of a cursor: a NamedTuple accepts any value."""
    position, delta, incarnation, proof = cast("tuple[object, object, object, object]", cursor)
    numbers = type(position) is int and type(delta) is int and position >= 0 and delta >= 0
    return numbers and isinstance(incarnation, str) and isinstance(proof, str)


START = Cursor(0)
"""The cursor before the first entry: reading after it returns everything."""


class DecodeFailure(NamedTuple):
    """Stands in `Envelope.message` for an entry that cannot be read or trusted, so that readers get every position."""

    error: MessageError
    raw: bytes
    """the stored body of the entry, unchanged; b"" if the entry has no body"""


class Envelope(NamedTuple):
    """A message with its session, position, time and producer.

    A live delta has the position of the session's last entry, and a `delta` of 1 or more. A snapshot
    (`Delta.is_snapshot`) has the position and `delta` at which the follower joins.
    """

    session: str
    position: int
    """position in the session. The positions of both lanes together count from 1 without gaps"""
    lane: Lane
    message: Publishable | Delta | DecodeFailure
    time: float
    """time of the append, in seconds since 1970 UTC by the server's clock"""
    producer: str
    """name of the process that appended the message"""
    delta: int = 0
    """for a live delta, its number among the deltas at this position; 0 for an entry"""
    incarnation: str = ""
    """incarnation of the log that was read, see `Cursor`"""
    is_imported: bool = False
    """whether an import brought the entry. Workers do not act on imported events, commands and tool calls. False for an
    entry that cannot be read"""
    proof: str = ""
    """proof of the entry, or for a live delta of the entry at its position, see `Cursor`"""

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen this envelope and nothing after it."""
        return Cursor(self.position, self.delta, self.incarnation, self.proof)


CLOSED, REOPENED = "session.closed", "session.reopened"
"""The kinds of the extension messages that are appended when a session is closed or reopened."""

NoticeKind = Literal["caughtUp", "fellBehind", "scanned", "closed", "reopened"]


class Notice(NamedTuple):
    """A notice to a follower. If a new follower starts after `cursor`, it repeats nothing and loses nothing.

    caughtUp     the follower has received all entries that existed when it started, or when it fell behind
    fellBehind   the follower's buffer was full; the next entries are read from the log again, so nothing is lost
    scanned      the follower's selection matches no further entry up to the cursor
    closed       the session is closed, and the follower has received all entries of the session
    reopened     the session accepts messages again
    """

    kind: NoticeKind
    cursor: Cursor


# The outcome of a publish: a receipt, or the error with which the log refused the publish.


class Receipt(NamedTuple):
    """The positions of the messages of one publish."""

    positions: tuple[int, ...]
    """one position for each message, in order"""
    is_duplicate: bool = False
    """whether nothing was appended, because an earlier publish had the same key. `positions` are then those of the
    earlier publish"""
    incarnation: str = ""
    """incarnation of the log to which the messages were appended, see `Cursor`"""
    proof: str = ""
    """proof of the last message's entry, see `Cursor`"""

    @property
    def position(self) -> int:
        """The position of the last message."""
        return self.positions[-1]

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen these messages and all earlier messages."""
        return Cursor(self.position, 0, self.incarnation, self.proof)


Expected = Cursor | Receipt | str | int
"""The end of a session that a caller saw: a cursor, its text, the receipt of the last publish, or a plain position. A
plain position names nothing across a rollback: other entries may have taken the places of those that the caller
saw."""

REFUSALS = (Conflict, Fenced, WrongAgent, SessionClosed, SessionErased, OverLimit, MessageTooLarge, LogRolledBack)

Outcome = (
    Receipt
    | Conflict
    | Fenced
    | WrongAgent
    | SessionClosed
    | SessionErased
    | OverLimit
    | MessageTooLarge
    | LogRolledBack
)
"""The result of `Session.try_publish`: a receipt, or the error with which the log refused the publish."""


def cursor_of(expected: Expected | None) -> Cursor | None:
    """Return the cursor that a caller passed as `expected`; None for None.

    Raises:
        InvalidCursor: the text is not a cursor.
        InvalidArgument: `expected` has another type, or a negative number.
    """
    match expected:
        case None | Cursor():
            return None if expected is None else Cursor.of(expected, "expected")
        case Receipt():
            return expected.cursor
        case str():
            return Cursor.of(expected, "expected")
        case int() if expected >= 0 and not isinstance(expected, bool):
            return Cursor(expected)
        case _ if isinstance(getattr(expected, "cursor", None), Cursor):  # an envelope, a notice
            raise InvalidArgument("expected", expected, "pass its `cursor`")
        case _:
            raise InvalidArgument("expected", expected, "pass a cursor, its text, a receipt, or START if it is empty")


# Publish keys of the bus's own, which no caller can use.

RESERVED: Final = "lanebus:"
"""The prefix of reserved keys. It is part of the stored format, not a setting."""


class ReservedKey(str):
    """The key of a publish by lanebus itself, such as a worker's answer: a name with the prefix `lanebus:`.

    Such keys can be predicted, and the first publish under a key wins. So the keys of callers must not meet them.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Return the key `lanebus:<name>`."""
        return super().__new__(cls, RESERVED + name)


def check_key(key: str | None) -> None:
    """Raise KeyReserved if a caller's key has the prefix of reserved keys.

    Args:
        key: the key; None and a `ReservedKey` are accepted.
    """
    if key is not None and key.startswith(RESERVED) and not isinstance(key, ReservedKey):
        raise KeyReserved(key, RESERVED)
