"""Read the fields of one object in the two-lane agent's JSON. The types are checked as the two-lane agent does."""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.json_fields import as_flag, as_list, as_object, as_text, as_whole, below

__all__ = ("Fields",)


class Fields:
    """An object and its path. Unknown keys are ignored, as in the two-lane agent.

    Every method raises DecodeError, with the path to the field, if the field is missing or has another type.
    """

    def __init__(self, value: JsonValue, path: str = "") -> None:
        self.value, self.path = as_object(value, path), path

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return below(self.path, name)

    def any(self, name: str) -> JsonValue:
        """Return the field's JSON of any type, null included. The field must exist."""
        if name not in self.value:
            raise DecodeError(self.at(name), "is missing")
        return self.value[name]

    def text(self, name: str) -> str:
        return as_text(self.any(name), self.at(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text; None if the field is null or missing."""
        return None if self.value.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        return as_flag(self.any(name), self.at(name))

    def whole(self, name: str, *, bits: int = 64, default: int | None = None) -> int:
        """Return a whole number from 0 with at most `bits` bits.

        If the field is missing, return `default`; if `default` is None, the field is required.
        """
        if default is not None and name not in self.value:
            return default
        return _whole(self.any(name), self.at(name), bits)

    def optional_whole(self, name: str) -> int | None:
        """Return a whole number; None if the field is null or missing."""
        return None if self.value.get(name) is None else self.whole(name)

    def wholes(self, name: str) -> tuple[int, ...]:
        return tuple(_whole(item, f"{self.at(name)}.{index}", 64) for index, item in enumerate(self.items(name)))

    def items(self, name: str) -> list[JsonValue]:
        return as_list(self.any(name), self.at(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(as_text(item, f"{self.at(name)}.{index}") for index, item in enumerate(self.items(name)))

    def object(self, name: str) -> "Fields":
        return Fields(self.any(name), self.at(name))


def _whole(value: JsonValue, path: str, bits: int) -> int:
    return as_whole(value, path, limit=2**bits, wants=f"a whole number from 0, of {bits} bits")
