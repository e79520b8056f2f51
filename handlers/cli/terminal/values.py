"""JSON that a command is given: one value, a list of them, or one a line; and the same form for what it gives back."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.json_reader import parse_json
from lanebus.handlers.json_text import compact

__all__ = ("INPUT_LIMIT_BYTES", "BadInput", "InputTooLarge", "Values", "read_values", "written_values")

INPUT_LIMIT_BYTES = 64 * 1024 * 1024
"""The input is in memory as a whole."""

Form = Literal["one", "list", "lines"]
_UNIT = {"list": "message", "lines": "line"}


class BadInput(MessageError):
    """Something of the input cannot be read; nothing was written.

    Fields: `where`, such as "line 3", counted from 1, "" for the whole; `reason`, with the path inside of it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where, self.reason = where, reason


class InputTooLarge(MessageError):
    """The input is over the limit; nothing of it was read."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the input is over the limit of {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class Values(NamedTuple):
    """What stood in the input."""

    form: Form
    values: tuple[tuple[int, JsonValue], ...]
    """each with its number: of its line, or its count in the list; from 1"""

    def where(self, number: int) -> str:
        """The place of a value, in words; "" where there is only one."""
        return f"{_UNIT[self.form]} {number}" if self.form in _UNIT else ""


def read_values(data: bytes, *, limit_bytes: int = INPUT_LIMIT_BYTES) -> Values:
    """What the input holds.

    Raises:
        BadInput: it is no JSON, or one of its lines is none.
        InputTooLarge: it is over the limit.
    """
    if len(data) > limit_bytes:
        raise InputTooLarge(limit_bytes)
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value = parse_json(text)
    except DecodeError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not any(_is_object(line) for _, line in (lines[0], lines[-1])):
            raise BadInput("", str(error)) from None
        return Values("lines", tuple(_parsed(lines)))
    if isinstance(value, list):
        return Values("list", tuple(enumerate(value, 1)))
    return Values("one", ((1, value),))


def written_values(form: Form, values: Sequence[JsonValue]) -> str:
    """Values in the form that the input had; what was one and became several is a list."""
    if form == "lines":
        return "\n".join(map(compact, values))
    return compact(values[0] if form == "one" and len(values) == 1 else list(values))


def _parsed(lines: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, JsonValue]]:
    for number, line in lines:
        try:
            yield number, parse_json(line)
        except DecodeError as error:
            raise BadInput(f"line {number}", str(error)) from None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except DecodeError:
        return False
