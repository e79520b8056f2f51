"""JSON-RPC messages as lines, over the streams of a process. It is a transport of `acp.connection.Connection`.

Different from the transports of the protocols' packages, a line has a bound, a line that is no message is answered with
an error, and a client that has gone ends the connection without an error.
"""

import asyncio
import json
import logging
from contextlib import suppress
from typing import cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.json_parser import require_depth, require_few_values
from lanebus.handlers.protocols.json_rpc import INVALID_REQUEST, PARSE

__all__ = ("MessageLines",)

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
