"""Read another system's JSON field by field. Every error names the path of the faulty field."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self, TypeVar

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import DEPTH_LIMIT, Wire, require_depth, require_json
from lanebus.handlers.context import Object, as_flag, as_list, as_object, as_text, as_whole, below, first_fault

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
