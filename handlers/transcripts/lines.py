"""Read a file line by line. Neither the whole file nor an overlong line is held in memory."""

from collections.abc import AsyncGenerator, Iterator
from functools import partial
from itertools import count
from typing import BinaryIO, NamedTuple

from lanebus.bus.threads import run_in_thread
from lanebus.handlers.transcripts.bounds import DEFAULT_TRANSCRIPT_BOUNDS, TranscriptBounds

__all__ = ("LINE_LIMIT_BYTES", "RawLine", "read_lines", "stream_lines")

LINE_LIMIT_BYTES = 64 * 1024 * 1024
"""Size limit of a line. Longer lines are reported and skipped. The size limit of messages is far lower."""


class RawLine(NamedTuple):
    """One line of a file, not parsed."""

    number: int
    """counts from 1"""
    data: bytes | None
    """the line without its line end and byte order mark; None if the line is over the limit"""
    size_bytes: int
    """size in the file, including the line end"""
    is_ended: bool = True
    """whether the line has a line end. Only the last line of a file may have none"""


def read_lines(
    file: BinaryIO, *, limit_bytes: int = LINE_LIMIT_BYTES, bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS
) -> Iterator[RawLine]:
    """Yield every line, blank lines included. Lines end with LF or CRLF; the last line may have no line end."""
    for number in count(1):
        data = file.readline(limit_bytes + 1)
        if not data:
            return
        size = len(data)
        if size > limit_bytes and not data.endswith(b"\n"):
            while data and not data.endswith(b"\n"):
                data = file.readline(bounds.batch_bytes)
                size += len(data)
            yield RawLine(number, None, size)
            continue
        content = (data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data).rstrip(b"\r\n")
        yield RawLine(number, content, size, data.endswith(b"\n"))


async def stream_lines(
    file: BinaryIO, *, limit_bytes: int = LINE_LIMIT_BYTES, bounds: TranscriptBounds = DEFAULT_TRANSCRIPT_BOUNDS
) -> AsyncGenerator[RawLine, None]:
    """Yield every line like `read_lines`. A worker thread reads batches, so a slow file blocks no other task."""
    lines = read_lines(file, limit_bytes=limit_bytes, bounds=bounds)
    while batch := await run_in_thread(partial(_take, lines, bounds), abandon=True):
        for line in batch:
            yield line


def _take(lines: Iterator[RawLine], bounds: TranscriptBounds) -> list[RawLine]:
    batch: list[RawLine] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += line.size_bytes
        if size >= bounds.batch_bytes or len(batch) >= bounds.batch_lines:
            break
    return batch
