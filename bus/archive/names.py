"""Names of segments: first position, last position, and SHA-256 of the file. So a name verifies the file's content."""

import re
from typing import NamedTuple, Self

from lanebus.bus.errors import InvalidArchiveName
from lanebus.bus.storage.blobs import plain_name

__all__ = ("SUFFIX", "SegmentName", "Tip", "file_of", "folder_of")

SUFFIX = ".jsonl.gz"

_STEM = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})-([0-9a-f]{64})")


class SegmentName(NamedTuple):
    """The name of a segment, `<first>-<last>-<sha256>`."""

    first: int
    """the first position in the segment"""
    last: int
    """the last position in the segment"""
    sha256: str
    """SHA-256 of the compressed file"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that `str()` returns.

        Raises:
            InvalidArchiveName: the text does not have the form `<first>-<last>-<sha256>`.
        """
        match = _STEM.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise InvalidArchiveName(text)
        return cls(int(match[1]), int(match[2]), match[3])

    def __str__(self) -> str:
        return f"{self.first}-{self.last}-{self.sha256}"


class Tip(NamedTuple):
    """The last segment of a session's chain: its number, counted from 1, and its name."""

    number: int
    name: SegmentName

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that `str()` returns.

        Raises:
            InvalidArchiveName: the text does not have the form `<number> <first>-<last>-<sha256>`.
        """
        number, _, name = text.partition(" ")
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise InvalidArchiveName(text)
        return cls(int(number), SegmentName.parse(name))

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


def folder_of(namespace: str, session: str) -> str:
    """Return the folder of a session's segments in the store."""
    return f"{plain_name(namespace)}/{plain_name(session)}"


def file_of(namespace: str, session: str, name: SegmentName) -> str:
    """Return the name of a segment's file in the store."""
    return f"{folder_of(namespace, session)}/{name}{SUFFIX}"
