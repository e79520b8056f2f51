"""Read JSON input and write JSON output in the same form: one value, a list, or one value per line."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.json_parser import parse_json
from lanebus.handlers.json_text import compact

__all__ = ("INPUT_LIMIT_BYTES", "BadInput", "InputTooLarge", "Values", "read_values", "written_values")

INPUT_LIMIT_BYTES = 64 * 1024 * 1024
"""maximum number of bytes of input, which is held in memory"""

Form = Literal["one", "list", "lines"]
_UNIT = {"list": "message", "lines": "line"}


class BadInput(MessageError):
    """The input cannot be decoded. Nothing was written.

    Fields: `where`, such as "line 3", counted from 1, or "" for the whole input; `reason`, with the path to the fault.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where, self.reason = where, reason


class InputTooLarge(MessageError):
    """The input is larger than the limit. Nothing was decoded."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the input is over the limit of {limit_bytes} bytes", "split it")
        self.limit_bytes = limit_bytes


class Values(NamedTuple):
    """The JSON values of the input, and whether the input was one value, a list, or a value per line."""

    form: Form
    values: tuple[tuple[int, JsonValue], ...]
    """pairs of number and value. The number, counted from 1, is the value's line or its index in the list"""

    def where(self, number: int) -> str:
        """Return where the value with this number is in the input, such as "line 3"; "" if the input is one value."""
        return f"{_UNIT[self.form]} {number}" if self.form in _UNIT else ""


def read_values(data: bytes, *, limit_bytes: int = INPUT_LIMIT_BYTES) -> Values:
    """Decode JSON: one value, a list, or a value per line.

    Raises:
        BadInput: the input, or a line of the input, is not JSON.
        InputTooLarge: the input is larger than `limit_bytes`.
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
    """Encode values as JSON in the given form. With the form "one", several values are written
    as a list."""
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
