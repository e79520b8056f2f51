"""The server's protocol without a client library, so that tests of the server do not depend on one."""

import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

Reply = str | int | None | list["Reply"]


class ResponseError(Exception):
    """The server answered with an error."""


class Resp:
    """One blocking connection to a unix socket, or to a local port: `with Resp(path) as server: server("INCR", "n")`.

    Raises OSError if the server is not there or goes away.
    """

    def __init__(self, place: Path | int) -> None:
        self._socket = socket.socket(socket.AF_UNIX if isinstance(place, Path) else socket.AF_INET)
        self._socket.settimeout(120)
        try:
            self._socket.connect(str(place) if isinstance(place, Path) else ("127.0.0.1", place))
        except OSError:
            self._socket.close()
            raise
        self._file: BinaryIO = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._socket.close()

    def __call__(self, *arguments: str) -> Reply:
        """Send one command and wait for its reply."""
        self._socket.sendall(encode(*arguments))
        return self._read()

    def send(self, *arguments: str) -> None:
        """Send one command and ignore its reply."""
        with suppress(ResponseError):
            self(*arguments)

    def integer(self, *arguments: str) -> int:
        """Send a command whose reply is a number. The server has two forms of it."""
        reply = self(*arguments)
        assert isinstance(reply, int | str)
        return int(reply)

    def info(self) -> dict[str, str]:
        """Return INFO as a dict."""
        reply = self("INFO")
        assert isinstance(reply, str)
        return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)

    def setting(self, name: str) -> str:
        """Return one value of CONFIG GET."""
        reply = self("CONFIG", "GET", name)
        assert isinstance(reply, list)
        value = reply[1]
        assert isinstance(value, str)
        return value

    def _read(self) -> Reply:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server has gone")
        kind, text = line[:1], line[1:-2].decode()
        match kind:
            case b"+":
                return text
            case b"-":
                raise ResponseError(text)
            case b":":
                return int(text)
            case b"$":
                return None if text == "-1" else self._read_bulk(int(text))
            case b"*":
                return None if text == "-1" else [self._read() for _ in range(int(text))]
            case _:
                raise AssertionError(f"unknown kind of reply {kind!r}")

    def _read_bulk(self, length: int) -> str:
        data = self._file.read(length + 2)
        if len(data) < length + 2:
            raise ConnectionResetError("the server has gone")
        return data[:-2].decode()


def encode(*arguments: str) -> bytes:
    """Return a command as the protocol and the log on disk encode it."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        data = argument.encode(errors="surrogateescape")
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)
