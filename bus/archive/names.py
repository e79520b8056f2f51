"""What segments are called: where one begins and ends, and the SHA-256 of its file, so that a name is a proof too."""

import re
from typing import NamedTuple, Self

from lanebus.bus.errors import InvalidArchiveName

__all__ = ("SUFFIX", "SegmentName", "Tip", "file_of", "folder_of")

SUFFIX = ".jsonl.gz"

_STEM = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})-([0-9a-f]{64})")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


class SegmentName(NamedTuple):
    """A segment's own name, `<first>-<last>-<sha256>`."""

    first: int
    """its first position"""
    last: int
    """its last position"""
    sha256: str
    """of its file as it is, compressed"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The name that `str()` wrote.

        Raises:
            InvalidArchiveName: it is none.
        """
        match = _STEM.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise InvalidArchiveName(text)
        return cls(int(match[1]), int(match[2]), match[3])

    def __str__(self) -> str:
        return f"{self.first}-{self.last}-{self.sha256}"


class Tip(NamedTuple):
    """The end of a session's chain of segments: which one it is, counted from 1, and its name."""

    number: int
    name: SegmentName

    @classmethod
    def parse(cls, text: str) -> Self:
        """The tip that `str()` wrote.

        Raises:
            InvalidArchiveName: it is none.
        """
        number, _, name = text.partition(" ")
        if not (number.isascii() and number.isdigit()):
            raise InvalidArchiveName(text)
        return cls(int(number), SegmentName.parse(name))

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


def folder_of(namespace: str, session: str) -> str:
    """Where the segments of a session are."""
    return f"{_plain(namespace)}/{_plain(session)}"


def file_of(namespace: str, session: str, name: SegmentName) -> str:
    """What a segment is called in the store."""
    return f"{folder_of(namespace, session)}/{name}{SUFFIX}"


def _plain(text: str) -> str:
    """The text in characters that every store takes. Capitals are written as `=41`, as some file systems take them for
    small letters, and two sessions must not share a folder."""
    return "".join(c if c in _PLAIN else "".join(f"={byte:02x}" for byte in c.encode()) for c in text) or "="
