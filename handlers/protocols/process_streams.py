"""Keep the stdin and stdout of a process for the protocol, whatever else reads and prints."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import BinaryIO, NamedTuple

from lanebus.bus.errors import SetupError
from lanebus.handlers.protocols.message_lines import MessageLines

__all__ = ("ProtocolFiles", "message_lines", "protocol_files")


class ProtocolFiles(NamedTuple):
    """The files of the protocol."""

    reading: BinaryIO
    writing: BinaryIO


@contextmanager
def protocol_files() -> Generator[ProtocolFiles]:
    """Move stdin and stdout away for the block.

    In the block, the process's stdin is empty, and its stdout is its stderr: also for modules that are imported, for
    `print` in a tool, and for programs that a tool starts.
    """
    sys.stdout.flush()
    saved = (os.dup(0), os.dup(1))
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    reading, writing = (os.dup(number) for number in saved)
    try:
        yield ProtocolFiles(os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0))
    finally:
        sys.stdout.flush()
        for number, file in enumerate(saved):
            os.set_blocking(file, True)  # asyncio's pipes do not block
            os.dup2(file, number)
            os.close(file)


@asynccontextmanager
async def message_lines(files: ProtocolFiles, *, line_bytes: int, end_seconds: float) -> AsyncGenerator[MessageLines]:
    """Return the messages of a client.

    Args:
        files: pipes to and from the client.
        line_bytes: maximum number of bytes of a message of the client.
        end_seconds: longest wait at the end, until the last message has left.

    Raises:
        SetupError: stdin or stdout is a file. A client connects pipes.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=line_bytes)
    try:
        reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), files.reading)
        writing, flow = await loop.connect_write_pipe(_flow, files.writing)
    except ValueError:
        raise SetupError(
            "stdin or stdout is a file", "let an editor or client start this command, or connect both to pipes"
        ) from None
    writer = asyncio.StreamWriter(writing, flow, None, loop)
    lines = MessageLines(reader, writer, end_seconds=end_seconds)
    try:
        yield lines
    finally:
        await lines.close()
        reading.close()


def _flow() -> asyncio.StreamReaderProtocol:
    """Return the protocol of a pipe that is only written to: it knows when the pipe takes no more, and when it ends."""
    return asyncio.StreamReaderProtocol(asyncio.StreamReader())
