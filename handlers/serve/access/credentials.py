"""Principals and their rights; the tokens that name them, signed or listed; and the files of all of these.

Source: RFC 7519, and RFC 8725 for the fixed algorithm and the required claims.
"""

import logging
import os
import re
import secrets
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from time import monotonic, time
from typing import cast

from pydantic import BaseModel, ConfigDict, ValidationError

from lanebus.bus.errors import InvalidArgument, InvalidName, InvalidSessionId, check_bounds, require_text
from lanebus.bus.messages import CONTROLS, Lane
from lanebus.bus.storage import exposure
from lanebus.bus.wire import check_agent, check_session_id
from lanebus.handlers.serve.errors import (
    FileExposed,
    InvalidToken,
    NotRevocations,
    TokenFileUnreadable,
    TokensEqual,
    TokensMissing,
    WeakKey,
)

# Principals: the persons and programs that send requests.

ALL = ("*",)
"""the pattern that matches every session, agent or action"""

BOTH_LANES = frozenset(Lane)

READ = ("read",)
"""the actions that only read"""

NAME_LIMIT = 200
"""maximum number of characters of a principal's name, as of every sender's name in the log"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A person or program that sends requests, with the rights that the built-in rules check.

    A pattern is a text, or a prefix and `*`: `support-*` matches every session whose id starts with `support-`.

    Raises InvalidArgument if a field has another type, or a pattern that can match nothing: a text in place of a tuple,
    a `*` that is not at the end, or a number that is not above 0.
    """

    name: str
    """recorded in the log as the sender of messages and commands; 1 to 200 printable characters"""
    actions: tuple[str, ...] = READ
    """allowed actions. An action includes those below it: `command` allows `command.abort`. `*` allows all."""
    sessions: tuple[str, ...] = ALL
    """patterns of the ids of allowed sessions"""
    agents: tuple[str, ...] = ALL
    """patterns of allowed agents. A session without an agent matches only `*`."""
    lanes: frozenset[Lane] = BOTH_LANES
    """lanes that the principal may read and write. Live deltas are of the LLM lane."""
    token_id: str = ""
    """id of the token, by which it can be revoked; "" if it has none"""
    expires: float | None = None
    """Unix time in seconds after which the principal is unknown; None means never"""
    requests_per_second: float | None = None
    """limit of requests; None means that of the server"""
    body_bytes: int | None = None
    """maximum size of a request's body in bytes; None means that of the server, which is also the highest"""

    def __post_init__(self) -> None:
        require_text("name", self.name)
        if not 0 < len(self.name) <= NAME_LIMIT or not self.name.isprintable():
            raise InvalidArgument("name", self.name, f"must be 1 to {NAME_LIMIT} printable characters")
        require_text("token_id", self.token_id)
        check_actions(self.actions)
        check_sessions(self.sessions)
        check_agents(self.agents)
        check_lanes(self.lanes)
        check_number("expires", self.expires)
        check_number("requests_per_second", self.requests_per_second)
        check_number("body_bytes", self.body_bytes, is_count=True)


def matches(patterns: tuple[str, ...], text: str) -> bool:
    """Return whether a text is one of these patterns, or starts with the part of one before its final `*`."""
    return any(text.startswith(each[:-1]) if each.endswith("*") else text == each for each in patterns)


# The question that the hook `authorize` answers, and the built-in answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """One question: may this principal do this?"""

    principal: Principal
    action: str
    """`read.sessions`, `read.head`, `read.entries`, `read.events`, `read.media`, `read.status`, `read.call`,
    `read.turns`, `read.usage`, `read.timeline`, `read.context`, `read.request`, `read.waiting`, `read.forks`,
    `read.dead_letters`, `read.projections`, `send`, `hand_over`, `fork`, `redrive`, `trim`, `close`, `reopen`, or
    `command.` and the name of the command, such as `command.abort`"""
    session: str | None = None
    """id of the session; None for actions without a session"""
    agent: str | None = None
    """the session's agent. For a new session or a handover, the agent that it will have. None if there is none."""
    lane: Lane | None = None
    """the lane that is read or written; None if neither is"""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an `AccessRequest`."""

    is_allowed: bool
    reason: str = ""
    """why not; sent to the client and logged, so it must hold no secret"""


Authorize = Callable[[AccessRequest], Awaitable[Decision]]
"""The hook. It is called for every request, and again for open streams. Raising an error refuses the request."""

_ALLOWED = Decision(True)


async def authorize_by_rights(request: AccessRequest) -> Decision:
    """Decide by the rights of the principal. This is the default; a hook of your own may call it first."""
    return decide_by_rights(request)


def decide_by_rights(request: AccessRequest) -> Decision:
    """Decide as `authorize_by_rights`, without a wait: a list asks for each of many sessions. Pure."""
    principal = request.principal
    if not _covers(principal.actions, request.action):
        return Decision(False, f"this token does not allow {request.action}")
    if request.session is not None and not matches(principal.sessions, request.session):
        return Decision(False, "this token does not allow this session")
    if request.session is not None and principal.agents != ALL and not matches(principal.agents, request.agent or ""):
        return Decision(False, "this token does not allow sessions of this agent")
    if request.lane is not None and request.lane not in principal.lanes:
        return Decision(False, f"this token does not allow the {request.lane.value} lane")
    return _ALLOWED


def _covers(granted: tuple[str, ...], action: str) -> bool:
    return any(each == "*" or f"{action}.".startswith(f"{each}.") for each in granted)


# Check the rights of a principal: a wrong type or pattern would grant too much, or nothing at all.

ACTIONS = (
    "*",
    "read",
    *(
        f"read.{what}"
        for what in (
            *("sessions", "head", "entries", "events", "media", "status", "call", "turns", "usage"),
            *("timeline", "context", "request", "waiting", "forks", "dead_letters", "projections"),
        )
    ),
    "send",
    "command",
    *(f"command.{name}" for name in CONTROLS),
    "hand_over",
    *("fork", "redrive", "trim", "close", "reopen"),
)
"""the actions that a principal can have; an action includes those below it"""


def check_sessions(value: object) -> None:
    """Raise InvalidArgument unless the value is a tuple of session ids, or of prefixes of ids and `*`."""
    _check_patterns("sessions", value, check_session_id, "use letters, digits, _ and -, at most 64")


def check_agents(value: object) -> None:
    """Raise InvalidArgument unless the value is a tuple of agents' names, or of prefixes of names and `*`."""
    _check_patterns("agents", value, check_agent, "use letters, digits, _, . and -, at most 64")


def check_actions(value: object) -> None:
    """Raise InvalidArgument unless the value is a tuple of texts without `*`, or of `*`. Unknown actions are accepted,
    as a token may be signed for a newer server."""
    for each in _texts("actions", value, "read"):
        if "*" in each and each != "*":
            wide = each.partition("*")[0].rstrip(".")
            advice = f"pass {wide!r}, which includes all below it" if wide in ACTIONS else "write `*` alone"
            raise InvalidArgument("actions", each, advice)


def check_known_actions(actions: tuple[str, ...]) -> None:
    """Raise InvalidArgument, with the nearest action, if one of these is no action of a server."""
    for each in actions:
        if each not in ACTIONS:
            near = get_close_matches(each, ACTIONS, 1, 0.5)
            advice = f"did you mean {near[0]!r}?" if near else f"the actions are {', '.join(ACTIONS)}"
            raise InvalidArgument("actions", each, advice)


def check_lanes(value: object) -> None:
    """Raise InvalidArgument unless the value is a frozenset of lanes."""
    advice = "pass a frozenset of lanes, such as frozenset({Lane.LLM})"
    # A `Lane` is a text, so a text that equals one would pass as a member and fail where its value is read.
    if not isinstance(value, frozenset):
        raise InvalidArgument("lanes", value, advice)
    for each in cast("frozenset[object]", value):
        if not isinstance(each, Lane):
            raise InvalidArgument("lanes", each, advice)


def check_number(name: str, value: object, *, is_count: bool = False) -> None:
    """Raise InvalidArgument unless the value is None or a finite number above 0.

    Args:
        name: the argument's name.
        value: what the caller passed.
        is_count: True also refuses fractions.
    """
    if value is None:
        return
    kinds = int if is_count else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not isfinite(value) or value <= 0:
        what = "an integer of 1 or more" if is_count else "a finite number above 0"
        raise InvalidArgument(name, value, f"pass {what}, or None")


def _check_patterns(name: str, value: object, check: Callable[[str], str], allowed: str) -> None:
    for each in _texts(name, value, "team-*"):
        if each == "*":
            continue
        text = each.removesuffix("*")
        if "*" in text:
            raise InvalidArgument(name, each, "write `*` only at the end, after a prefix, or alone")
        try:
            check(text)
        except (InvalidSessionId, InvalidName):
            raise InvalidArgument(name, each, f"it can match nothing: {allowed}, and `*` at the end") from None


def _texts(name: str, value: object, example: str) -> tuple[str, ...]:
    # A text is a sequence of texts too: its characters would be the patterns, and `*` among them allows everything.
    if isinstance(value, str):
        raise InvalidArgument(name, value, f"pass a tuple, ({value!r},)")
    if not isinstance(value, tuple):
        raise InvalidArgument(name, value, f"pass a tuple of texts, such as ({example!r},)")
    found = list[str]()
    for each in cast("tuple[object, ...]", value):
        if not isinstance(each, str):
            raise InvalidArgument(name, each, f"pass a tuple of texts, such as ({example!r},)")
        found.append(each)
    return tuple(found)


# Sign and verify tokens: JSON Web Tokens with one fixed algorithm, an audience and an expiry.


AUDIENCE = "lanebus"
"""`aud` of tokens, unless a server has its own"""

_ALGORITHM = "HS256"
_KEY_BYTES = 32


class _Claims(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    sub: str
    jti: str
    exp: int
    actions: list[str]
    sessions: list[str]
    lanes: list[str]
    agents: list[str] = ["*"]


def new_key() -> str:
    """Return a new random key."""
    return secrets.token_urlsafe(_KEY_BYTES)


def sign_token(
    principal: Principal,
    key: str,
    *,
    seconds: float,
    audience: str = AUDIENCE,
    most_seconds: float = 315_360_000.0,
    clock: Callable[[], float] = time,
) -> tuple[str, str]:
    """Sign a token that names a principal with its rights.

    Args:
        principal: the name, actions, sessions, agents and lanes. Its limits are not part of the token.
        key: the secret that servers verify the token with; at least 32 bytes.
        seconds: time until the token expires; above 0.
        audience: name of the server or servers that accept the token.
        most_seconds: largest accepted `seconds`; 10 years by default.
        clock: returns the Unix time in seconds.

    Returns:
        The token, and its id for a revocation.

    Raises:
        TokensMissing: the extra `tokens` is not installed.
        WeakKey: the key is too short.
        InvalidArgument: `seconds` is not above 0 or too large, or the principal has an action that no server knows.
    """
    require_tokens()
    import jwt  # noqa: PLC0415  # an extra, and slow to import

    if not 0 < seconds <= most_seconds:  # also refuses NaN
        raise InvalidArgument("seconds", seconds, f"must be above 0 and at most {most_seconds / 31_536_000:g} years")
    check_known_actions(principal.actions)
    now, token_id = int(clock()), principal.token_id or secrets.token_hex(8)
    claims: Mapping[str, object] = {
        "aud": audience,
        "sub": principal.name,
        "jti": token_id,
        "iat": now,
        "exp": now + max(1, int(seconds)),
        "actions": list(principal.actions),
        "sessions": list(principal.sessions),
        "lanes": sorted(lane.value for lane in principal.lanes),
        **({} if principal.agents == ALL else {"agents": list(principal.agents)}),
    }
    return jwt.encode(dict(claims), check_key(key), algorithm=_ALGORITHM), token_id


def verify_token(token: str, keys: Sequence[str], *, audience: str = AUDIENCE) -> Principal:
    """Return the principal that a token names.

    Args:
        token: the token.
        keys: secrets of which one signed the token. Several keys make it possible to replace one.
        audience: name of this server.

    Raises:
        InvalidToken: no key signed the token, it has expired, is for another audience, or lacks a claim.
        TokensMissing: the extra `tokens` is not installed.
        WeakKey: a key is too short.
    """
    require_tokens()
    import jwt  # noqa: PLC0415  # an extra, and slow to import

    refused = InvalidToken("no key is known", "pass the key that signed the token")
    for key in keys:
        try:
            found = cast(
                "object",
                jwt.decode(
                    token,
                    check_key(key),
                    algorithms=[_ALGORITHM],
                    audience=audience,
                    options={"require": ["aud", "exp", "sub", "jti"]},
                ),
            )
            claims = _Claims.model_validate(found)
            return Principal(
                name=claims.sub,
                actions=tuple(claims.actions),
                sessions=tuple(claims.sessions),
                agents=tuple(claims.agents),
                lanes=frozenset(map(Lane, claims.lanes)),
                token_id=claims.jti,
                expires=float(claims.exp),
            )
        # PyJWT checks claims after the signature, so this key signed the token and no other key can accept it.
        except jwt.ExpiredSignatureError:
            raise InvalidToken("it has expired", "sign a new one with `lanebus token sign`") from None
        except jwt.ImmatureSignatureError:
            raise InvalidToken("it is not valid yet", "wait until then, or compare the clocks") from None
        except jwt.InvalidAudienceError:
            raise InvalidToken(
                f"it is for another audience than {audience!r}",
                "sign one for this server with `--audience`, or pass the audience of the token",
            ) from None
        except (
            jwt.MissingRequiredClaimError,
            jwt.exceptions.InvalidSubjectError,
            ValidationError,
            ValueError,
            OverflowError,
            RecursionError,
            InvalidArgument,
        ):
            raise InvalidToken(
                "a claim is missing or has another form", "sign a new one with `lanebus token sign`"
            ) from None
        except jwt.PyJWTError as error:
            refused = InvalidToken(type(error).__name__)
    raise refused


def require_tokens() -> None:
    """Raise TokensMissing if the extra `tokens` is not installed."""
    if "jwt" not in sys.modules and find_spec("jwt") is None:
        raise TokensMissing


def is_strong(key: str) -> bool:
    """Return whether a key has at least 32 bytes."""
    return len(key.encode()) >= _KEY_BYTES


def check_key(key: str) -> bytes:
    """Return a key as bytes. Raises WeakKey if it has fewer than 32."""
    if not is_strong(key):
        raise WeakKey(len(key.encode()), _KEY_BYTES)
    return key.encode()


# The tokens that a server knows, the principals that they name, and the files of tokens, keys and revocations.


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
