"""What an import tells: how far it is, and what it did."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ("BadLine", "ImportProgress", "ImportReport")


class BadLine(NamedTuple):
    number: int
    """of the line, or of the message in a JSON document; from 1, as editors count"""
    reason: str


class ImportProgress(NamedTuple):
    """How far an import is."""

    lines: int
    read_bytes: int
    total_bytes: int | None
    """None for a pipe"""
    entries: int
    """acknowledged so far, new and old"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did. An entry is one of the log; a line gives one, or two where its branch begins elsewhere."""

    format: str
    lines: int
    added: int
    already_there: int
    bad: tuple[BadLine, ...]
    first: int | None
    """lowest position of the transcript's entries; None where none went in"""
    last: int | None
    unit: Literal["line", "message"] = "line"
    """what the numbers of `bad` count: a file that is one JSON document has no lines"""
