"""The tokens that a server knows, and the principals that they name."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from time import time

from lanebus.handlers.access.bounds import DEFAULT_ACCESS_BOUNDS, AccessBounds
from lanebus.handlers.access.errors import FileExposed, InvalidToken, TokenFileUnreadable, TokensEqual
from lanebus.handlers.access.principal import READ, Principal
from lanebus.handlers.access.signed_tokens import check_key, is_strong, require_tokens, verify_token
from lanebus.handlers.access.watched_file import WatchedFile

__all__ = ("PAGE", "READER", "Credentials", "Identified", "TokenFiles", "check_mode")

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
