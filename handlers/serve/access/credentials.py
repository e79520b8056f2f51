"""The tokens that a server knows, the principals that they name, and the files of tokens, keys and revocations."""

import logging
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from time import monotonic, time

from lanebus.bus.errors import check_bounds
from lanebus.bus.storage import exposure
from lanebus.handlers.serve.access.principal import READ, Principal
from lanebus.handlers.serve.access.signed_tokens import check_key, is_strong, require_tokens, verify_token
from lanebus.handlers.serve.errors import FileExposed, InvalidToken, NotRevocations, TokenFileUnreadable, TokensEqual


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessBounds:
    """Bounds of one server."""

    requests_per_second: float = 100.0
    """requests of one principal, averaged; a principal may have a limit of its own"""
    burst: int = 500
    """maximum number of requests of one principal at once, and of messages that one request appends"""
    append_bytes: int = 65_536
    """A message counts as a request for each of these bytes that it has as JSON, or a part of them."""
    streams: int = 300
    """maximum number of open event streams of one token; a further one is refused with 429"""
    followed: int = 1_000
    """Maximum number of sessions that the open event streams of one token follow together. A stream of `/api/events`
    counts once for each of its sessions. A stream that would follow more is refused with 429."""
    principals: int = 1_024
    """maximum number of principals whose requests are counted; the least recent is forgotten"""
    wrong_per_second: float = 0.2
    """unknown tokens that one address may send, averaged. The addresses of an IPv6 network /64 count as one"""
    wrong_burst: int = 20
    """maximum number of unknown tokens that one address may send at once"""
    addresses: int = 1_024
    """maximum number of addresses whose unknown tokens are counted; the least recent is forgotten"""
    accepted: int = 1_024
    """maximum number of accepted tokens that are remembered. These still work if their address is throttled."""
    refresh_seconds: float = 0.25
    """longest time until a changed file of tokens, keys or revocations is read, and until streams are checked again"""
    decision_seconds: float = 5.0
    """longest wait for the hooks `identify` and `authorize`; without an answer the request is refused"""
    token_bytes: int = 8_192
    """maximum size of a token"""
    file_bytes: int = 4_000_000
    """maximum size of a file of tokens, keys or revocations. A larger file counts as unreadable."""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_ACCESS_BOUNDS = AccessBounds()


class WatchedFile:
    """The lines of a file. Empty lines, and lines that begin with `#`, are left out."""

    def __init__(self, path: Path, bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS) -> None:
        """
        Args:
            path: the file.
            bounds: its size, and how often it is looked at.
        """
        self.path, self._bounds = path, bounds
        self._facts: os.stat_result | None = None
        self._seen: tuple[int, int, int] | None = None
        self._fault = ""
        self._lines: tuple[str, ...] | None = None
        self._next = 0.0

    def lines(self) -> tuple[str, ...] | None:
        """Return the lines; None if the file cannot be read.

        A change shows within `refresh_seconds`.
        """
        if monotonic() >= self._next:
            # Not in a thread: a look at a local file takes microseconds, and a change must show before the next frame.
            self._read()
            self._next = monotonic() + self._bounds.refresh_seconds
        return self._lines

    def fault(self, what: str) -> str:
        """Return why the file has no lines: "does not exist".

        Args:
            what: name of what the file should hold.
        """
        return self._fault or f"holds no {what}"

    def exposure(self) -> str:
        """Return who else may read or change the file that was read last, as `ownership.exposure` does."""
        return "" if self._facts is None else exposure(self._facts)

    @property
    def is_writable_by_all(self) -> bool:
        """Whether every user may write the file that was read last."""
        return os.name == "posix" and self._facts is not None and bool(self._facts.st_mode & stat.S_IWOTH)

    def _read(self) -> None:
        """Read the file if it has changed. One descriptor is judged and read, because the name may change meanwhile."""
        self._fault, text, seen = "", "", None
        try:
            # Without waiting at a pipe, which is refused: it can be read only once.
            with os.fdopen(os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
                self._facts = found = os.fstat(file.fileno())
                seen = (found.st_mtime_ns, found.st_size, found.st_ino)
                if seen == self._seen:
                    return
                data = file.read(self._bounds.file_bytes + 1) if stat.S_ISREG(found.st_mode) else b""
            if not stat.S_ISREG(found.st_mode):
                self._fault = "is no regular file"
            elif len(data) > self._bounds.file_bytes:
                self._fault = f"is larger than {self._bounds.file_bytes} bytes"
            else:
                text = data.decode()
        except FileNotFoundError:
            self._fault = "does not exist"
        except UnicodeDecodeError:
            self._fault = "cannot be read: it is no UTF-8 text"
        except OSError as error:
            self._fault = f"cannot be read: {error.strerror}"
        self._seen = None if self._fault else seen
        lines = [line.strip() for line in text.splitlines()]
        self._lines = None if self._fault else tuple(line for line in lines if line and not line.startswith("#"))


# The tokens that a server knows, and the principals that they name.

_log = logging.getLogger(__name__)

PAGE = Principal(name="page", actions=("*",))
"""the holder of the start token, who may do everything"""

READER = Principal(name="reader", actions=READ)
"""the holder of the reader's token"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFiles:
    """Files of tokens. Each line is one value, and a change is noticed while the server runs."""

    token: Path | None = None
    """start tokens, which allow everything. Several lines make it possible to replace one."""
    reader_token: Path | None = None
    """tokens that allow only reading"""
    key: Path | None = None
    """keys that verify signed tokens; the first one signs. None means that signed tokens are unknown."""
    revoked: Path | None = None
    """ids of revoked tokens, and `name:` with the name of a principal whose tokens are all revoked. While the file
    cannot be read, every signed token is refused."""
    audience: str = "lanebus"
    """`aud` that signed tokens must have"""


@dataclass(frozen=True, slots=True)
class Identified:
    """A principal, and whether what named it still holds."""

    principal: Principal
    is_current: Callable[[], bool] = lambda: True

    def is_valid(self) -> bool:
        """Return whether the token is neither revoked, expired nor replaced."""
        expires = self.principal.expires
        return (expires is None or time() < expires) and self.is_current()


class Credentials:
    """Finds the principal of a token."""

    def __init__(
        self,
        token: str | None = None,
        reader_token: str | None = None,
        files: TokenFiles | None = None,
        bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS,
    ) -> None:
        """
        Args:
            token: start token.
            reader_token: token that allows only reading.
            files: files with more of them, and with keys.
            bounds: the largest token.

        Raises:
            TokenFileUnreadable: a file cannot be read, or holds no token or key.
            FileExposed: every user may write a file.
            TokensMissing: the file of keys is given, and the extra `tokens` is not installed.
            WeakKey: a key is too short.
            TokensEqual: the start token is also the reader's.
            ValueError: a token is empty.
        """
        self._bounds, files = bounds, files or TokenFiles()
        if token == "" or reader_token == "":
            raise ValueError("a token is empty: pass a random text")
        self._start = _KnownTokens(token, _watched(files.token, "token", bounds))
        self._reader = _KnownTokens(reader_token, _watched(files.reader_token, "token", bounds))
        if {*self._start.known()} & {*self._reader.known()}:
            raise TokensEqual
        self._keys = _watched(files.key, "key", bounds)
        self._checked: tuple[str, ...] | None = None
        self._usable: tuple[str, ...] = ()
        self._revoked = None if files.revoked is None else WatchedFile(files.revoked, bounds)
        if self._revoked is not None and self._revoked.lines() is None:
            what = "list of revoked tokens"
            raise TokenFileUnreadable(self._revoked.path, what, self._revoked.fault(what))
        if self._revoked is not None:
            check_mode(self._revoked)
        self._secrets = tuple(each for each in (self._start.file, self._reader.file, self._keys) if each is not None)
        self._audience = files.audience
        if self._keys is not None:
            require_tokens()
            for key in self._keys.lines() or ():
                check_key(key)
            self._checked = self._keys.lines()
            self._usable = self._checked or ()

    def log_weaknesses(self, least_characters: int = 16) -> None:
        """Log a warning for each file of secrets that others may read, and for tokens that can be guessed.

        Args:
            least_characters: length of a token below which it is reported.
        """
        for file in self._secrets:
            # No error: the files of container secrets can be read by everyone in the container.
            if fault := file.exposure():
                _log.warning("%s %s: run `chmod 600 %s`, and own it", file.path, fault, file.path)
        if any(len(token) < least_characters for token in (*self._start.known(), *self._reader.known())):
            _log.warning(
                "a token has fewer than %d characters and may be guessed: make one with `lanebus token key FILE`",
                least_characters,
            )

    def find(self, token: str) -> Identified | None:
        """Return the principal of a token; None if the token is unknown."""
        if not token or len(token) > self._bounds.token_bytes:
            return None
        for tokens, principal in ((self._start, PAGE), (self._reader, READER)):
            if tokens.has(token):
                return Identified(principal, partial(tokens.has, token))
        return self._signed(token)

    def is_revoked(self, principal: Principal) -> bool:
        """Return whether a principal's token, or all tokens of its name, are revoked."""
        if self._revoked is None:
            return False
        revoked = self._revoked.lines()
        name = principal.name.strip()  # as the lines of the file are read
        return revoked is None or principal.token_id in revoked or f"name:{name}" in revoked

    def _signed(self, token: str) -> Identified | None:
        if self._keys is None or token.count(".") != 2:
            return None
        keys = self._usable_keys(self._keys)
        try:
            principal = verify_token(token, keys, audience=self._audience)
        except (InvalidToken, UnicodeEncodeError):
            return None
        found = Identified(principal, lambda: self._keys_hold(keys) and not self.is_revoked(principal))
        return found if found.is_valid() else None

    def _usable_keys(self, file: WatchedFile) -> tuple[str, ...]:
        """Return the keys that are long enough. A fault is logged once for each change of the file."""
        lines = file.lines()
        if lines is not self._checked:
            self._checked = lines
            self._usable = tuple(key for key in lines or () if is_strong(key))
            if not lines:
                _log.error("no signed token is accepted: %s", TokenFileUnreadable(file.path, "key", file.fault("key")))
            elif weak := len(lines) - len(self._usable):
                _log.error("%d keys in %s are too short and not used: run `lanebus token key FILE`", weak, file.path)
        return self._usable

    def _keys_hold(self, keys: tuple[str, ...]) -> bool:
        """Return whether no key was removed since. A stream then connects again, and its token is verified anew."""
        return self._keys is not None and {*keys} <= {*(self._keys.lines() or ())}


class _KnownTokens:
    """A token, and a file of more."""

    def __init__(self, token: str | None, file: WatchedFile | None) -> None:
        self._token, self.file = token, file

    def known(self) -> tuple[str, ...]:
        more = (self.file.lines() or ()) if self.file is not None else ()
        return ((self._token,) if self._token is not None else ()) + more

    def has(self, token: str) -> bool:
        digest = _digest(token)  # of equal length, so that the comparison takes the same time for each token
        return any(compare_digest(digest, _digest(known)) for known in self.known())


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _watched(path: Path | None, what: str, bounds: AccessBounds) -> WatchedFile | None:
    if path is None:
        return None
    file = WatchedFile(path, bounds)
    if not file.lines():
        raise TokenFileUnreadable(path, what, file.fault(what))
    check_mode(file)
    return file


def check_mode(file: WatchedFile) -> None:
    """Raise FileExposed if every user may write a file."""
    if file.is_writable_by_all:
        raise FileExposed(file.path)


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
