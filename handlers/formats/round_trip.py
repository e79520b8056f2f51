"""Make codecs that write back what they have read, from a dialect, and read another system's JSON field by field."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, Self, TypeVar

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages import (
    DEPTH_LIMIT,
    Block,
    ExtensionMessage,
    LlmMessage,
    Publishable,
    ToolCallBlock,
    ToolResultMessage,
    Wire,
    require_depth,
    require_json,
)
from lanebus.handlers.context import Object, as_flag, as_list, as_object, as_text, as_whole, below, first_fault
from lanebus.handlers.formats.codec import ORIGIN, Codec, Written, written

W = TypeVar("W", bound=Wire)

_LIMIT = 2**63
_FAR = 10**12  # seconds: about thirty thousand years

# An origin stores a value at most six levels deeper in the lanebus message than the value was in the other system's
# message. A value that would be too deep to publish is refused here, where its path is still known.
_ROOM = 6


def plain(value: JsonValue) -> JsonValue:
    """Return a copy of the value as JSON that the bus can store. The function refuses the same values as `parse_json`.

    Raises:
        DecodeError: the value holds NaN or a lone surrogate, is nested too deep, or is not JSON. The error names the
            path.
    """
    try:
        require_json(value)
        copy: JsonValue = json.loads(json.dumps(value))
    except TypeError as error:
        raise DecodeError("", f"not JSON: {error}") from None
    for name, item in copy.items() if isinstance(copy, dict) else ():
        _require_room(item, name)
    return copy


def _require_room(item: JsonValue, name: str) -> None:
    for _ in range(_ROOM):
        item = [item]
    try:
        require_depth(item)
    except DecodeError:
        raise DecodeError(name, f"nested deeper than {DEPTH_LIMIT - _ROOM}") from None


@dataclass(frozen=True, slots=True)
class JsonObject:
    """One object of the other system's JSON, and its path. A field that is null is treated as absent.

    Several `names` in one call are spellings of the same field. If two of these names have different values, the call
    raises DecodeError.
    """

    fields: Object
    path: str = ""

    @classmethod
    def of(cls, value: JsonValue, path: str = "") -> Self:
        """Wrap an object.

        Raises:
            DecodeError: the value is not an object.
        """
        return cls(as_object(value, path), path)

    def at(self, name: str | int) -> str:
        """Return the path of a field."""
        return below(self.path, name)

    def fault(self, name: str, reason: str) -> DecodeError:
        """Return the error for a field; the name "" means the object itself."""
        return DecodeError(self.at(name) if name else self.path, reason)

    def value(self, *names: str) -> JsonValue:
        """Return the field under any of the names; None if it is absent."""
        return self._found(names)[1]

    def text(self, *names: str) -> str | None:
        name, value = self._found(names)
        return None if value is None else as_text(value, self.at(name))

    def required_text(self, *names: str) -> str:
        value = self.text(*names)
        if value is None:
            raise self.fault(names[0], "is required")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.fields.get(name)
        return None if value is None else as_flag(value, self.at(name))

    def count(self, name: str) -> int | None:
        """Return a whole number from 0, such as a count of tokens; None if the field is absent."""
        value = self.fields.get(name)
        if value is None:
            return None
        return as_whole(value, self.at(name), limit=_LIMIT, wants="a whole number from 0 to 2⁶³ - 1")

    def milliseconds(self, name: str) -> int | None:
        """Return a moment in milliseconds since 1970; None if the field is absent. The field holds seconds."""
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _FAR:
            raise self.fault(name, "wants seconds since 1970")
        return round(value * 1000)

    def dollars(self, name: str) -> Decimal:
        """Return an amount of money; 0 if the field is absent.

        The amount is rounded to twelve decimals: finer than any price, coarser than the error of a float.
        """
        value = self.fields.get(name)
        if value is None:
            return Decimal(0)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _FAR:
            raise self.fault(name, "wants an amount of money")
        return Decimal(format(round(Decimal(repr(value)), 12).normalize(), "f"))

    def object(self, name: str) -> "JsonObject | None":
        value = self.fields.get(name)
        return None if value is None else JsonObject.of(value, self.at(name))

    def required_object(self, name: str) -> "JsonObject":
        return JsonObject.of(self.fields.get(name), self.at(name))

    def items(self, name: str) -> Iterator[tuple[JsonValue, str]]:
        """Return each item of a list with its path; nothing if the field is absent."""
        value = self.fields.get(name)
        if value is None:
            return
        path = self.at(name)
        yield from ((item, f"{path}.{index}") for index, item in enumerate(as_list(value, path)))

    def digest(self) -> str:
        """Return a stable id for an object without an id, derived from the object's content."""
        text = json.dumps(self.fields, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def made(self, kind: type[W], fields: Object, names: Mapping[str, str] | None = None) -> W:
        """Return a lanebus value that is made from this object.

        Args:
            kind: the class of the value.
            fields: the value's fields; fields that are None are left out.
            names: lanebus field → the other system's field, if the names differ. An error names the other system's
                field.

        Raises:
            DecodeError: a field is not valid.
        """
        try:
            return kind.model_validate({name: item for name, item in fields.items() if item is not None})
        except ValidationError as error:
            found, reason = first_fault(error)
            ours = found[0] if found else ""
            raise self.fault((names or {}).get(ours, ours), reason.removeprefix("Value error, ")) from None

    def _found(self, names: tuple[str, ...]) -> tuple[str, JsonValue]:
        found = [(name, self.fields[name]) for name in names if self.fields.get(name) is not None]
        for name, value in found[1:]:
            if value != found[0][1]:
                raise self.fault(name, f"has another value than {found[0][0]!r}, which is the same field")
        return found[0] if found else (names[0], None)


# Make codecs that write back what they have read: from a dialect, and from patches between two JSON values.


# The difference between two JSON values, and patches that turn one value into the other.
#
# Another system accepts several spellings of a message, and a lanebus codec writes one of them. The patch turns the
# written JSON into the JSON that was read. A patch is a list of edits, each with the path `at`. An edit with `value`
# puts that value at the path. An edit with `from` copies the source's value from the path `from`. Any other edit
# removes the field.

Path = tuple[str | int, ...]

_LONG = 32  # a shorter text takes fewer bytes than the path to it


class Change(NamedTuple):
    """One place at which two values differ. The place is as deep inside the values as possible."""

    path: Path
    before: tuple[JsonValue, ...]
    """The old value; empty if the field is new."""
    after: tuple[JsonValue, ...]
    """The new value; empty if the field is removed."""


def equal(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two values are the same: true is not 1, and 1 is 1.0."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def changes(
    before: JsonValue,
    after: JsonValue,
    path: Path = (),
    *,
    same: Callable[[JsonValue, JsonValue], bool] = equal,
    removed_first: bool = False,
) -> Iterator[Change]:
    """Yield the changes from `before` to `after`.

    Objects are compared key by key, in the order of the keys of `after`. Lists of the same length are compared item by
    item.

    Args:
        path: prefix of the path of each change.
        same: returns whether two values are the same. Called for values that are not compared key by key or item by
            item.
        removed_first: True yields the removed fields of an object before its other changes; False yields them after.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        removed = [key for key in before if key not in after]
        for key in (*removed, *after) if removed_first else (*after, *removed):
            if key in before and key in after:
                yield from changes(before[key], after[key], (*path, key), same=same, removed_first=removed_first)
            else:
                was, now = ((value[key],) if key in value else () for value in (before, after))
                yield Change((*path, key), was, now)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from changes(old, new, (*path, index), same=same, removed_first=removed_first)
    elif not same(before, after):
        yield Change(path, (before,), (after,))


def differences(one: JsonValue, other: JsonValue) -> Iterator[Path]:
    """Return the paths at which two values differ; true is not 1, and 1 is 1.0."""
    return (change.path for change in changes(other, one))


def make_patch(source: JsonValue, target: JsonValue) -> list[JsonValue]:
    """Return the patch that turns `source` into `target`; empty if they are the same value.

    The patch refers to a long text that `source` contains instead of repeating it. So media and outputs are not stored
    twice.
    """
    texts = dict(_long_texts(source, ()))
    patch: list[JsonValue] = []
    for path, _, after in changes(source, target, removed_first=True):
        if after:
            patch += _additions(after[0], path, texts)
        else:
            patch.append({"at": [*path]})
    return patch


def apply_patch(source: JsonValue, patch: JsonValue) -> JsonValue:
    """Return a copy of `source` with the patch applied. `source` itself does not change.

    Raises:
        DecodeError: `patch` is not a patch, or it is a patch of another value.
    """
    result: list[JsonValue] = [copy.deepcopy(source)]
    try:
        for edit in patch if isinstance(patch, list) else [patch]:
            match edit:
                case {"at": [*path], "value": value}:
                    put_at(result, [0, *path], value)
                case {"at": [*path], "from": [*place]}:
                    put_at(result, [0, *path], value_at(source, place))
                case {"at": [*path], **rest} if not rest:
                    put_at(result, [0, *path])
                case _:
                    raise TypeError
    except (LookupError, TypeError):
        raise DecodeError("", "is not a patch for this value") from None
    return result[0]


def value_at(value: JsonValue, path: Sequence[JsonValue]) -> JsonValue:
    """Return the value at a path.

    Raises:
        LookupError, TypeError: there is no value at the path.
    """
    for key in path:
        match value, key:
            case list(), int() if key >= 0:
                value = value[key]
            case dict(), str():
                value = value[key]
            case _:
                raise TypeError
    return value


def put_at(root: JsonValue, path: Sequence[JsonValue], *new: JsonValue) -> None:
    """Put a copy of `new` at a path inside `root`; without `new`, remove the field. A list can grow by one item.

    Raises:
        LookupError, TypeError: `root` has no such path.
    """
    key = path[-1]
    match value_at(root, path[:-1]), key:
        case dict() as parent, str():
            if new:
                parent[key] = copy.deepcopy(new[0])
            else:
                del parent[key]
        case list() as parent, int() if new and 0 <= key <= len(parent):
            parent[key : key + 1] = [copy.deepcopy(new[0])]
        case _:
            raise TypeError


def _additions(value: JsonValue, path: Path, texts: Mapping[str, Path]) -> Iterator[JsonValue]:
    if isinstance(value, str) and value in texts:
        yield {"at": [*path], "from": [*texts[value]]}
    elif isinstance(value, dict | list) and any(text in texts for text, _ in _long_texts(value, ())):
        yield {"at": [*path], "value": type(value)()}
        for key, item in _members(value):
            yield from _additions(item, (*path, key), texts)
    else:
        yield {"at": [*path], "value": value}


def _long_texts(value: JsonValue, path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(value, str) and len(value) >= _LONG:
        yield value, path
    for key, item in _members(value):
        yield from _long_texts(item, (*path, key))


def _members(value: JsonValue) -> Iterator[tuple[str | int, JsonValue]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


# Make a codec from a dialect. The codec writes JSON that it has read back unchanged, and reports every loss.
#
# A dialect reads and writes one message in one spelling, with only the fields of lanebus. Other spellings, and keys
# that lanebus has no field for, are stored as a patch in `metadata[ORIGIN]`. To find losses, the codec reads the
# written JSON again and compares the result with the original.

Group = tuple[Publishable, ...]
"""The lanebus messages that become one message of the other system: a single message, or the results of one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one other system represents the fields of lanebus messages."""

    name: str
    about: str
    read: Callable[[JsonValue], Group]
    """Reads one message of the other system. Ignores keys that lanebus has no field for. Raises DecodeError."""
    write: Callable[[Group], JsonValue | None]
    """Writes a group as one message of the other system. Returns None if the other system has no such message.

    Ignores lanebus fields that the other system does not have.
    """
    can_say: Callable[[Block], bool]
    """Returns whether the other system has a block for a lanebus block. Fields of that block may still be lost."""
    same: Callable[[Publishable], Publishable] = lambda message: message
    """Normalizes fields that differ only in spelling."""
    prepare: Callable[[JsonValue], JsonValue] = lambda value: value
    """Changes a message of the other system before it is read. Writing does not undo this change."""
    names_results: bool = True
    """Whether a tool result contains the tool's name. If False, only the tool call names the tool."""


def round_trip_codec(dialect: Dialect) -> Codec:
    """Return the codec of a dialect."""

    def read(value: JsonValue) -> Group:
        return _read(dialect, plain(dialect.prepare(plain(value))))

    def write(messages: Sequence[Publishable], lossy: bool) -> Written:
        values, losses = list[JsonValue](), list[str]()
        names, batches = dict[str, str](), set[str | None]()
        for first, group in _grouped(messages):
            value, lost = _written(dialect, group, names)
            values += value
            losses += [f"{first + offset}{path}" for offset, path in lost]
            if (batch := _batch_of(group[0])) is not None and batch in batches:
                losses.append(f"{first}.batchId")  # other messages stand between the parts of this batch
            batches.add(batch)
            names |= {call.id: call.name for message in group for call in _calls_of(message)}
        return written(dialect.name, values, losses, lossy=lossy)

    return Codec(name=dialect.name, about=dialect.about, read=read, write=write)


def _read(dialect: Dialect, value: JsonValue) -> Group:
    group = dialect.read(value)
    patch = make_patch(dialect.write(group), value)
    if not patch:
        return group
    return _with_origin(group[0], {"codec": dialect.name, "edits": patch}), *group[1:]


def _written(dialect: Dialect, group: Group, names: dict[str, str]) -> tuple[list[JsonValue], list[tuple[int, str]]]:
    """Return the JSON value of the group in a list, and the losses. The list is empty if the group cannot be written.

    Each loss is the message's index in the group, and the path inside that message.
    """
    ours = tuple(_without_origin(message, dialect.name) for message in group)
    cut = tuple(_with_blocks(message, dialect.can_say) for message in ours)
    value = dialect.write(tuple(message for message, _ in cut))
    if value is None:
        return [], [(offset, f" ({_kind_text(message)})") for offset, message in enumerate(group)]
    value = _as_it_was(dialect, group[0], ours, value)
    try:
        again = dialect.read(value)
    except DecodeError as error:
        # For example, a number is out of the other system's range. Half of the message would mean something else.
        return [], [(offset, f" ({_kind_text(message)}: {error})") for offset, message in enumerate(group)]
    losses = list[tuple[int, str]]()
    for offset, (message, back) in enumerate(zip(ours, again, strict=True)):
        kept = cut[offset][1]
        losses += [(offset, f".content.{index} ({block.type})") for index, block in _left_out(message, kept)]
        one, other = _comparable(dialect, cut[offset][0], names), _comparable(dialect, back, names)
        losses += [(offset, _path_text(place, kept)) for place in differences(one, other)]
    return [value], losses


def _as_it_was(dialect: Dialect, first: Publishable, ours: Group, value: JsonValue) -> JsonValue:
    """Return the JSON that was originally read. If a message has changed since, return `value`.

    Args:
        dialect: the other system's dialect.
        first: the first message of the group, which stores the origin.
        ours: the group without origins.
        value: the group as the dialect writes it.
    """
    origin = _metadata(first).get(ORIGIN)
    if not isinstance(origin, dict) or origin.get("codec") != dialect.name:
        return value
    try:
        was = apply_patch(value, origin.get("edits"))
        again = dialect.read(was)
        is_same = len(again) == len(ours) and not any(
            any(differences(_native(one), _native(other))) for one, other in zip(ours, again, strict=True)
        )
        return was if is_same else value
    except MessageError:  # metadata can be forged: the patch may produce no message, or a message of another role
        return value


def _grouped(messages: Sequence[Publishable]) -> Iterable[tuple[int, Group]]:
    first = 0
    while first < len(messages):
        end = first + 1
        batch = _batch_of(messages[first])
        while batch is not None and end < len(messages) and _batch_of(messages[end]) == batch:
            end += 1
        yield first, tuple(messages[first:end])
        first = end


def _batch_of(message: Publishable) -> str | None:
    return message.batch_id if isinstance(message, ToolResultMessage) else None


def _calls_of(message: Publishable) -> list[ToolCallBlock]:
    content = message.content if isinstance(message, LlmMessage) else ()
    return [block for block in content if isinstance(block, ToolCallBlock)]


def _with_blocks(message: Publishable, can_say: Callable[[Block], bool]) -> tuple[Publishable, tuple[int, ...]]:
    """Return the message with only the blocks for which `can_say` is true, and the original indexes of these blocks."""
    if not isinstance(message, LlmMessage):
        return message, ()
    kept = tuple(index for index, block in enumerate(message.content) if can_say(block))
    if len(kept) == len(message.content):
        return message, kept
    return message.model_copy(update={"content": tuple(message.content[index] for index in kept)}), kept


def _left_out(message: Publishable, kept: tuple[int, ...]) -> list[tuple[int, Block]]:
    content = message.content if isinstance(message, LlmMessage) else ()
    return [(index, block) for index, block in enumerate(content) if index not in kept]


def _comparable(dialect: Dialect, message: Publishable, names: dict[str, str]) -> Object:
    if (
        isinstance(message, ToolResultMessage)
        and not dialect.names_results
        and message.tool_name == names.get(message.tool_call_id)
    ):
        message = message.model_copy(update={"tool_name": None})
    return _native(dialect.same(message))


def _native(message: Publishable) -> Object:
    """Return the message's JSON without its batch id. Batch ids are not compared: a group is one batch anyway."""
    if isinstance(message, ToolResultMessage):
        message = message.model_copy(update={"batch_id": None})
    native: Object = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return native


def _path_text(place: Path, kept: tuple[int, ...]) -> str:
    match place:
        case ("content", int(index), *rest):
            place = ("content", kept[index], *rest)
        case _:
            pass
    return "".join(f".{key}" for key in place)


def _kind_text(message: Publishable) -> str:
    native = _native(message)
    return " ".join(str(native[name]) for name in ("role", "kind") if name in native)


def _metadata(message: Publishable) -> Object:
    """Return the object that stores a message's origin: the metadata, or the data of an extension message."""
    if isinstance(message, ExtensionMessage):
        return message.data if isinstance(message.data, dict) else {}
    return message.metadata or {}


def _with_origin(message: Publishable, origin: Object) -> Publishable:
    return _with_metadata(message, {**_metadata(message), ORIGIN: origin})


def _without_origin(message: Publishable, codec: str) -> Publishable:
    metadata = _metadata(message)
    origin = metadata.get(ORIGIN)
    if not isinstance(origin, dict) or origin.get("codec") != codec:
        return message
    return _with_metadata(message, {key: item for key, item in metadata.items() if key != ORIGIN})


def _with_metadata(message: Publishable, metadata: Object) -> Publishable:
    if isinstance(message, ExtensionMessage):
        return message.model_copy(update={"data": metadata})
    return message.model_copy(update={"metadata": metadata or None})
