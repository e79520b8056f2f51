"""The progress and the result of an import."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ("BadLine", "ImportProgress", "ImportReport")


class BadLine(NamedTuple):
    """A line that was not imported."""

    number: int
    """number of the line, or of the message in a JSON document, from 1"""
    reason: str
    """why, for people"""


class ImportProgress(NamedTuple):
    """How far an import has come."""

    lines: int
    """lines read"""
    read_bytes: int
    """bytes read"""
    total_bytes: int | None
    """size of the file; None for a pipe"""
    entries: int
    """entries acknowledged so far, both added and already there"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import. A line becomes one entry of the log, or several."""

    format: str
    """name of the transcript's format"""
    lines: int
    """lines read"""
    added: int
    """entries added"""
    already_there: int
    """entries that an earlier import had added"""
    bad: tuple[BadLine, ...]
    """lines that were not imported"""
    first: int | None
    """lowest position of the transcript's entries; None if there are none"""
    last: int | None
    """highest such position"""
    unit: Literal["line", "message"] = "line"
    """what the numbers in `bad` count; a file that is one JSON document has messages instead of lines"""
