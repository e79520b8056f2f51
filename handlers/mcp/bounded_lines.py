"""A text encoding whose decoder drops lines that are too large, so that a server's message cannot fill the memory.

The SDK keeps all of a line in memory, whatever its length, and decodes the bytes of a server process with the encoding
that its parameters name. An encoding is the only place where the line can be cut before the SDK joins its pieces.
"""

import codecs
import json
import re

from lanebus.bus.errors import DecodeError, InvalidArgument
from lanebus.bus.messages.json_parser import require_few_values

__all__ = ("bounded_encoding",)

_NAME = re.compile(r"lanebus_lines_(\d+)_(.+)")
_ID = re.compile(r'"id"\s{0,3}:\s{0,3}(\d{1,18}|"[^"\\]{1,100}")')


class _BoundedLines(codecs.IncrementalDecoder):
    """Replaces each line of more than `limit` characters, or of too many values, by an error that answers the same
    request."""

    def __init__(self, decoder: codecs.IncrementalDecoder, limit: int, ends: int = 256) -> None:
        """
        Args:
            decoder: decodes the bytes.
            limit: maximum number of characters of a line.
            ends: how many characters of the beginning and the end of a long line are searched for the request's id.
        """
        super().__init__(decoder.errors)
        self._decoder, self._limit, self._ends = decoder, limit, ends
        self._pieces: list[str] = []
        self._size = 0
        self._tail = ""

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        """Return the lines that are complete."""
        text = self._decoder.decode(data, final)
        *complete, rest = text.split("\n")
        lines: list[str] = []
        for line in complete:
            self._add(line)
            lines.append(f"{self._take()}\n")
        self._add(rest)
        return "".join(lines)

    def reset(self) -> None:
        """See `codecs.IncrementalDecoder`."""
        self._decoder.reset()
        self._take()

    def _add(self, piece: str) -> None:
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > self._limit:
            self._tail = (self._tail + piece)[-self._ends :]
            self._pieces = ["".join(self._pieces)[: self._ends]]

    def _take(self) -> str:
        line, text = "".join(self._pieces), None
        if self._size > self._limit:
            text = f"the server's answer is over the limit of {self._limit} bytes"
        else:
            self._tail = line[-self._ends :]
            try:
                require_few_values(line)
            except DecodeError as fault:
                text = f"the server's answer has {fault}"
        if text is not None:
            found = _ID.search(line[: self._ends]) or _ID.search(self._tail)
            error = {"code": -32603, "message": text}  # JSON-RPC: internal error
            line = json.dumps({"jsonrpc": "2.0", "id": json.loads(found[1]) if found else None, "error": error})
        self._pieces, self._size, self._tail = [], 0, ""
        return line


def bounded_encoding(encoding: str, limit: int) -> str:
    """Return the name of an encoding like `encoding`, whose lines have at most `limit` characters.

    Raises:
        InvalidArgument: there is no such encoding.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidArgument("encoding", encoding, "pass the name of an encoding, such as utf-8") from None
    name = f"lanebus_lines_{limit}_{encoding}"
    try:
        codecs.lookup(name)
    except LookupError:
        codecs.register(_find)
    return name


def _find(name: str) -> codecs.CodecInfo | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    limit, inner = int(match[1]), codecs.lookup(match[2])
    make = codecs.getincrementaldecoder(match[2])

    class Decoder(_BoundedLines):
        def __init__(self, errors: str = "strict") -> None:
            super().__init__(make(errors), limit)

    return codecs.CodecInfo(inner.encode, inner.decode, name=name, incrementaldecoder=Decoder)
