"""Errors of tokens."""

import shlex
from pathlib import Path

from lanebus.bus.errors import MessageError, SetupError

__all__ = (
    "FileExposed",
    "HookAnswerInvalid",
    "HookNotFound",
    "InvalidToken",
    "NotRevocations",
    "TokenFileUnreadable",
    "TokensEqual",
    "TokensMissing",
    "WeakKey",
)


class FileExposed(SetupError):
    """Every user of the machine may write a file of tokens, keys or revocations, and so give themselves all rights."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"every user may write {path}", f"check its content, and run `chmod 600 {shlex.quote(str(path))}`"
        )
        self.path = path


class HookAnswerInvalid(SetupError):
    """The hook `identify` or `authorize` returned something else than it must. The request was refused."""

    def __init__(self, hook: str, wanted: str, found: object) -> None:
        super().__init__(f"{hook} returned an object of type {type(found).__name__}", f"return {wanted}")
        self.hook = hook


class HookNotFound(SetupError):
    """`identify` or `authorize` names no async function."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"{target!r}: {reason}", "name an async function as module:attribute")
        self.target, self.reason = target, reason


class TokensMissing(SetupError):
    """The package of the extra `tokens` is not installed."""

    def __init__(self) -> None:
        super().__init__("'jwt' is not installed", "run pip install 'lanebus[tokens]'")


class TokensEqual(SetupError, ValueError):
    """The start token is also a reader's token, so the server cannot know what it allows."""

    def __init__(self) -> None:
        super().__init__("both tokens are the same", "use two different ones")


class WeakKey(SetupError):
    """A key for signing tokens is too short."""

    def __init__(self, size_bytes: int, least_bytes: int) -> None:
        super().__init__(
            f"the key has {size_bytes} bytes, and needs at least {least_bytes}",
            "make one with `lanebus token key FILE`",
        )
        self.size_bytes, self.least_bytes = size_bytes, least_bytes


class TokenFileUnreadable(SetupError):
    """A file of tokens, keys or revocations cannot be read, is too large, or holds nothing."""

    def __init__(self, path: Path, what: str, fault: str) -> None:
        make = "token key FILE" if what in {"key", "token"} else "token revoke --revoked-file FILE"
        super().__init__(f"{path} {fault}", f"name another file, or make one with `lanebus {make}`")
        self.path, self.what = path, what


class NotRevocations(SetupError):
    """A file to which revoked tokens should be added holds something else, such as a key. It was not changed."""

    def __init__(self, path: Path, header: str) -> None:
        super().__init__(
            f"{path} is no list of revoked tokens, and was not changed",
            f"name another file; if it is your list, add the line `{header}` to it",
        )
        self.path = path


class InvalidToken(MessageError):
    """A signed token is not valid. Fields: `reason`."""

    def __init__(self, reason: str, remedy: str = "use a token that was signed with this key") -> None:
        super().__init__(f"the token is not valid: {reason}", remedy)
        self.reason = reason
