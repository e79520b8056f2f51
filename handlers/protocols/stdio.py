"""Serve JSON-RPC over the stdin and stdout of a process, whatever else reads and prints.

`protocol_files` keeps the two streams for the protocol. `MessageLines` reads and writes messages as lines; it is a
transport of `acp.connection.Connection`.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import BinaryIO, NamedTuple, cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, SetupError
from lanebus.bus.messages import require_depth, require_few_values

# JSON-RPC messages as lines. Unlike in the transports of the protocols' packages, a line has a bound, a line that is no
# message is answered with an error, and a client that has gone ends the connection without an error.

_log = logging.getLogger(__name__)


class MessageLines:
    """Reads and writes one message a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, end_seconds: float) -> None:
        """
        Args:
            reader: from the client. Its limit is the maximum number of bytes of a line.
            writer: to the client.
            end_seconds: longest wait for the last messages to leave, in `close`.
        """
        self._reader, self._writer, self._end_seconds = reader, writer, end_seconds
        self._is_gone = self._is_closed = False

    async def send(self, message: dict[str, JsonValue]) -> None:
        """Write a message. If the client has gone, it is dropped: the log has what it says.

        A message is written whole or not at all, also if the call is cancelled.
        """
        if self._is_gone or self._is_closed:
            return
        self._writer.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        try:
            await self._writer.drain()
        except OSError:
            self._is_gone = True

    async def receive(self) -> dict[str, JsonValue] | None:
        """Return the next message; None at the end of the stream."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            try:
                require_few_values(line)
                message: JsonValue = json.loads(line)
                require_depth(message)
            except DecodeError as error:
                await self._refuse(INVALID_REQUEST, f"the line was not read: {error}")
                continue
            except (ValueError, RecursionError):
                await self._refuse(PARSE, "the line is not JSON: write one message in JSON on each line")
                continue
            if isinstance(message, dict) and isinstance(message.get("method", ""), str):
                return message
            await self._refuse(INVALID_REQUEST, "the line is no message: write an object with a method or a result")
        return None

    async def close(self) -> None:
        """Wait until what was written has left, and end the stream."""
        if not self._is_closed:
            self._is_closed = True
            self._writer.close()
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._writer.wait_closed(), self._end_seconds)

    async def _line(self) -> bytes | None:
        """Return the next line, b"" for a line that is too long, or None at the end."""
        is_skipped = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
                if not line or is_skipped:
                    return None
            except asyncio.LimitOverrunError as long:
                await self._reader.readexactly(long.consumed)
                is_skipped = True
                continue
            except OSError:
                return None
            if not is_skipped:
                return line
            _log.warning("a line of the client was longer than its bound and was not read")
            await self._refuse(INVALID_REQUEST, "the line is too long: send large resources as links")
            return b""

    async def _refuse(self, code: int, text: str) -> None:
        error: JsonValue = {"code": code, "message": text}
        await self.send(cast("dict[str, JsonValue]", {"jsonrpc": "2.0", "id": None, "error": error}))


# Keep the stdin and stdout of a process for the protocol, whatever else reads and prints.


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


PARSE, INVALID_REQUEST, INVALID_PARAMS, INTERNAL, NOT_FOUND = -32700, -32600, -32602, -32603, -32002
