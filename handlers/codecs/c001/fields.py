"""The fields of one object of seed 001's JSON, each with the type its own reader asks for."""

from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from bus.errors import DecodeError

__all__ = ("Fields", "Object", "made")

Object = dict[str, JsonValue]

M = TypeVar("M", bound=BaseModel)


class Fields:
    """An object and the path to it. Keys that nobody asks for are passed over, as 001 does.

    Every method raises DecodeError with the path to the field, where it is missing or of another type.
    """

    def __init__(self, value: JsonValue, path: str = "") -> None:
        if not isinstance(value, dict):
            raise DecodeError(path, "wants an object")
        self.value, self.path = value, path

    def at(self, name: str) -> str:
        """The path to a field."""
        return f"{self.path}.{name}" if self.path else name

    def any(self, name: str) -> JsonValue:
        """Any JSON, null too, but it must be there."""
        if name not in self.value:
            raise DecodeError(self.at(name), "is missing")
        return self.value[name]

    def text(self, name: str) -> str:
        value = self.any(name)
        if not isinstance(value, str):
            raise DecodeError(self.at(name), "wants a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text; None where it is null or absent."""
        return None if self.value.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self.any(name)
        if not isinstance(value, bool):
            raise DecodeError(self.at(name), "wants true or false")
        return value

    def whole(self, name: str, *, bits: int = 64, default: int | None = None) -> int:
        """A whole number from 0 that fits the bits; absent it is the default, if there is one."""
        if default is not None and name not in self.value:
            return default
        return _whole(self.any(name), self.at(name), bits)

    def optional_whole(self, name: str) -> int | None:
        """A whole number; None where it is null or absent."""
        return None if self.value.get(name) is None else self.whole(name)

    def wholes(self, name: str) -> tuple[int, ...]:
        return tuple(_whole(item, f"{self.at(name)}.{index}", 64) for index, item in enumerate(self.items(name)))

    def items(self, name: str) -> list[JsonValue]:
        value = self.any(name)
        if not isinstance(value, list):
            raise DecodeError(self.at(name), "wants a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        found: list[str] = []
        for index, item in enumerate(self.items(name)):
            if not isinstance(item, str):
                raise DecodeError(f"{self.at(name)}.{index}", "wants a text")
            found.append(item)
        return tuple(found)

    def object(self, name: str) -> "Fields":
        return Fields(self.any(name), self.at(name))


def made(cls: type[M], path: str, fields: dict[str, object]) -> M:
    """A value of ours, whose rules may ask for more than 001's.

    Raises:
        DecodeError: it breaks one; the path is below `path`.
    """
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise DecodeError(".".join(filter(None, (path, *map(str, first["loc"])))), first["msg"]) from None


def _whole(value: JsonValue, path: str, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**bits:
        raise DecodeError(path, f"wants a whole number from 0, of {bits} bits")
    return value
