"""The file of revoked tokens, as `lanebus token revoke` writes it."""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from lanebus.handlers.access.bounds import DEFAULT_ACCESS_BOUNDS, AccessBounds
from lanebus.handlers.access.errors import NotRevocations

__all__ = ("add_revocations",)

_HEADER = "# lanebus: revoked tokens"

# An id of `sign_token`, or a name. Ids of other issuers have other forms, which a key or a start token can have too.
_LINE = re.compile(r"#.*|name:.*|[0-9a-f]{16}|")


def add_revocations(path: Path, lines: Sequence[str], bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS) -> None:
    """Add lines to a file of revoked tokens, which is created if it does not exist.

    Args:
        path: the file.
        lines: ids of tokens, and `name:` with the name of a principal.
        bounds: the largest file.

    Raises:
        NotRevocations: the file holds something else, such as a key. It was not changed.
        OSError: the file cannot be read or written.
    """
    # Each command writes once, at the end of the file, so that two commands at a time keep the lines of both.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0), 0o600)
    with os.fdopen(handle, "r+b", buffering=0) as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):  # a pipe would be waited for
            raise NotRevocations(path, _HEADER)
        found = stream.read(bounds.file_bytes + 1) or b""
        kept = _lines(found) if len(found) <= bounds.file_bytes else None
        if kept is None or not (_HEADER in kept or all(_LINE.fullmatch(line) for line in kept)):
            raise NotRevocations(path, _HEADER)
        start = "" if not found or found.endswith(b"\n") else "\n"
        added = lines if _HEADER in kept else (_HEADER, *lines)
        stream.write((start + "".join(f"{line}\n" for line in added)).encode())


def _lines(content: bytes) -> list[str] | None:
    try:
        return [line.strip() for line in content.decode().splitlines()]
    except UnicodeDecodeError:
        return None
