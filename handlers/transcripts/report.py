"""The progress and the result of an import."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ("BadLine", "ImportProgress", "ImportReport", "MissingEntries", "MissingParent")


class BadLine(NamedTuple):
    """A line that was not imported."""

    number: int
    """number of the line, or of the message in a JSON document, from 1"""
    reason: str
    """text for people that says why the line was not imported"""


class MissingParent(NamedTuple):
    """A line that was imported without its parent: the file has none, or it was not imported before the line.

    In a file of Claude Code, or after a bad line, such a line follows the previous line. Else it begins a branch.
    """

    number: int
    """number of the line, from 1"""
    parent: str
    """id of the parent"""


class MissingEntries(NamedTuple):
    """Positions that an export should have, by its header, and that no line of the file has."""

    first: int
    """the first missing position in the exported log"""
    last: int
    """the last missing position in the exported log"""


class ImportProgress(NamedTuple):
    """The progress of an import."""

    lines: int
    """lines read"""
    read_bytes: int
    """bytes read"""
    total_bytes: int | None
    """size of the file; None for a pipe"""
    entries: int
    """entries acknowledged so far: entries added, and entries that the log already had"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import. One line can become several entries of the log."""

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
    missing_parents: tuple[MissingParent, ...] = ()
    """lines that were imported without their parent: what the model saw there is a guess"""
    missing_entries: tuple[MissingEntries, ...] = ()
    """positions that are not in the file, although the header of the export says so. Of an export of one lane, only its
    missing end is known"""
    is_cut: bool = False
    """whether the file ends within its last line, or before the last entry that its header names"""
    first: int | None
    """lowest position of the transcript's entries; None if there are no entries"""
    last: int | None
    """highest position of the transcript's entries; None if there are no entries"""
    unit: Literal["line", "message"] = "line"
    """unit of the numbers in `bad`: `message` if the file is one JSON document, otherwise `line`"""
