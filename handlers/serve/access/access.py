"""Identify principals, decide their requests, limit failed attempts, and log each decision."""

import asyncio
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from hashlib import sha256
from inspect import iscoroutinefunction
from math import ceil
from time import monotonic
from typing import cast

import anyio

from lanebus.bus.text import logged
from lanebus.handlers.agent import AccessAllowed, AccessEnded, AccessRead, AccessRefused, LogContext, write_event
from lanebus.handlers.projections import TargetNotFound, load_object
from lanebus.handlers.serve.access.credentials import (
    ALL,
    DEFAULT_ACCESS_BOUNDS,
    AccessBounds,
    AccessRequest,
    Authorize,
    Credentials,
    Decision,
    Identified,
    Principal,
    authorize_by_rights,
    decide_by_rights,
)
from lanebus.handlers.serve.errors import HookAnswerInvalid, HookNotFound

_audit, _log = logging.getLogger("lanebus.audit"), logging.getLogger(__name__)

Identify = Callable[[Mapping[str, str], str], Awaitable[Principal | None]]
"""A hook that names the principal of a request from its headers, with names in lower case, and the address of the
connection, which is a proxy's if the client comes through one. None means that the hook does not know it; then the
tokens of the server are tried. Raising an error refuses the request."""

_MISSING = (
    "the token is missing: open the URL that the server printed, or send what follows #token= there in the header "
    "Authorization: Bearer TOKEN"
)
_UNKNOWN = (
    "the token is unknown: it is wrong, revoked, replaced or expired, or the server was restarted. "
    "Open the URL that the server printed, or get a new token"
)

_HOOK_FAILED = "hook_failed"
_UNDECIDED = Decision(False, "the server could not decide: see its log")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused before a route handles it."""

    status: int
    error: str
    message: str
    retry_after: int | None = None
    """seconds after which the client may try again"""


class Access:
    """The access rules of one server."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        identify: Identify | None = None,
        authorize: Authorize | None = None,
        bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS,
    ) -> None:
        """
        Args:
            credentials: the tokens.
            identify: names principals by other means than tokens; asked first. None means only tokens.
            authorize: decides requests; None means by the rights of the principal.
            bounds: limits and periods.
        """
        self._credentials, self._identify, self._bounds = credentials, identify, bounds
        self._authorize, self._is_custom = authorize or authorize_by_rights, authorize is not None
        self._requests = RateLimit(bounds.requests_per_second, bounds.burst, bounds.principals)
        self._wrong = RateLimit(bounds.wrong_per_second, bounds.wrong_burst, bounds.addresses)
        self._accepted: OrderedDict[bytes, None] = OrderedDict()

    @property
    def refresh_seconds(self) -> float:
        """The pause between two checks of an open stream."""
        return self._bounds.refresh_seconds

    def tables(self) -> tuple[Sized, Sized, Sized]:
        """Return the tables that requests fill: principals, addresses, and accepted tokens. Each has a bound."""
        return self._requests, self._wrong, self._accepted

    async def identify(
        self, headers: Mapping[str, str], address: str, *, peer: str | None = None
    ) -> Identified | Refusal:
        """Return the principal of a request, or why it is refused: it is unknown, or sends too much.

        Args:
            headers: of the request, with names in lower case.
            address: of the client. Unknown tokens are counted by `address_key`.
            peer: address of the connection, for the hook, which decides by it whether to believe a header. None means
                that the client made the connection.
        """
        found = await self._identified(headers, address, address if peer is None else peer)
        if isinstance(found, Refusal):
            self.log_refusal(found.error, address)
            return found
        principal = found.principal
        if seconds := self._requests.take(_key(principal), principal.requests_per_second):
            self.log_refusal("too_many_requests", address, principal.name)
            return Refusal(429, "too_many_requests", "this token sends too many requests: wait", max(1, ceil(seconds)))
        return found

    def count_appended(self, principal: Principal, sizes: Sequence[int], address: str = "") -> Refusal | None:
        """Count the messages that a request appends like further requests, or return why they are refused.

        Args:
            principal: who sends them.
            sizes: the bytes of each message. The first `AccessBounds.append_bytes` were counted with the request.
            address: of the client, for the log.
        """
        events, most = sum(max(1, ceil(size / self._bounds.append_bytes)) for size in sizes) - 1, self._bounds.burst
        if events >= most:
            self.log_refusal("too_much_at_once", address, principal.name)
            return Refusal(413, "too_much_at_once", f"a request appends at most {most} messages: send fewer at once")
        return self._counted(principal, events, "this token appends too much: wait", address)

    def count_followed(self, principal: Principal, sessions: int, address: str = "") -> Refusal | None:
        """Count the sessions of an event stream like further requests, or return why it is refused.

        Args:
            principal: who follows them.
            sessions: their number. The first was counted with the request.
            address: of the client, for the log.
        """
        return self._counted(principal, sessions - 1, "this token follows too many sessions at once: wait", address)

    def _counted(self, principal: Principal, events: int, message: str, address: str) -> Refusal | None:
        if events > 0 and (
            seconds := self._requests.take(_key(principal), principal.requests_per_second, events=events)
        ):
            self.log_refusal("too_many_requests", address, principal.name)
            return Refusal(429, "too_many_requests", message, max(1, ceil(seconds)))
        return None

    async def _identified(self, headers: Mapping[str, str], address: str, peer: str) -> Identified | Refusal:
        if self._identify is not None:
            named = await self._named(self._identify, headers, peer)
            if isinstance(named, Refusal):
                return named
            if named is not None:
                found = Identified(named, lambda: not self._credentials.is_revoked(named))
                return found if found.is_valid() else Refusal(401, "token_unknown", _UNKNOWN)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Refusal(401, "token_missing", _MISSING)
        digest, key = sha256(token.encode("utf-8", "surrogatepass")).digest(), address_key(address)
        is_accepted = digest in self._accepted
        # Also a right token waits, as its answer would tell a guesser that it is right. Those in use go on.
        if not is_accepted and (seconds := self._wrong.wait(key)):
            return _throttled(seconds)
        known = self._credentials.find(token)
        if known is None:
            self._accepted.pop(digest, None)
            if seconds := self._wrong.take(key):
                return _throttled(seconds)
            return Refusal(401, "token_unknown", _UNKNOWN)
        self._accepted[digest] = None
        self._accepted.move_to_end(digest)
        if len(self._accepted) > self._bounds.accepted:
            self._accepted.popitem(last=False)
        return known

    async def _named(self, hook: Identify, headers: Mapping[str, str], peer: str) -> Principal | Refusal | None:
        try:
            with anyio.move_on_after(self._bounds.decision_seconds):
                found = cast("object", await hook(headers, peer))
                if found is None or isinstance(found, Principal):
                    return found
                raise HookAnswerInvalid("identify", "a Principal or None", found)
            _log.error("the hook identify did not answer in %s s", self._bounds.decision_seconds)
        except BaseException as error:  # noqa: BLE001  # code of the user
            _pass_on_end(error)
            _log.error("the hook identify failed", exc_info=logged(error))
        return Refusal(401, _HOOK_FAILED, "the server could not identify you: see its log")

    @property
    def has_hook(self) -> bool:
        """Whether a hook decides, whose answer may change. The built-in rules give a principal the same one."""
        return self._is_custom

    def needs_agent(self, principal: Principal) -> bool:
        """Return whether a decision depends on the session's agent. If not, it need not be read."""
        return self._is_custom or principal.agents != ALL

    async def decide(self, request: AccessRequest, address: str = "") -> Decision:
        """Decide one request, and log the decision.

        Args:
            request: the question.
            address: of the client, for the log.
        """
        decision = await self.ask(request)
        self.record(request, decision, address)
        return decision

    def record(self, request: AccessRequest, decision: Decision, address: str) -> None:
        """Log a decision of `ask`."""
        context = LogContext(session=request.session or "", agent=request.agent or "")
        principal, action = request.principal.name, request.action
        lane = "" if request.lane is None else request.lane.value
        if not decision.is_allowed:
            refusal = _HOOK_FAILED if decision is _UNDECIDED else decision.reason
            refused = AccessRefused(principal=principal, action=action, lane=lane, client=address, refusal=refusal)
            write_event(_audit, refused, context)
            return
        made = AccessRead if action.startswith("read.") else AccessAllowed
        write_event(_audit, made(principal=principal, action=action, lane=lane, client=address), context)

    async def ask(self, request: AccessRequest) -> Decision:
        """Decide one request without an audit line. A hook that fails, or does not answer in time, refuses it."""
        if not self._is_custom:
            return decide_by_rights(request)
        try:
            with anyio.move_on_after(self._bounds.decision_seconds):
                found = cast("object", await self._authorize(request))
                # The fields too: any text in place of False would allow the request.
                if isinstance(found, Decision) and _is_whole(found):
                    return found
                raise HookAnswerInvalid("authorize", "a Decision(bool, str)", found)
        except BaseException as error:  # noqa: BLE001  # code of the user
            _pass_on_end(error)
            _log.error("the hook authorize failed", exc_info=logged(error))
            return _UNDECIDED
        return Decision(False, "no decision in time: try again")

    def log_refusal(self, error: str, address: str, principal: str = "", *, origin: str = "") -> None:
        """Log a request that was refused before its action was decided.

        Args:
            error: name of the HTTP error.
            address: of the client.
            principal: name of the principal, if it is known.
            origin: the origin that was refused, of bounded length; "" if the request was refused for another reason.
        """
        refused = AccessRefused(principal=principal, action="", lane="", client=address, refusal=error, origin=origin)
        write_event(_audit, refused, LogContext())

    def log_end(self, request: AccessRequest) -> None:
        """Log that an open stream ended because its principal lost the right to it."""
        context = LogContext(session=request.session or "", agent=request.agent or "")
        write_event(_audit, AccessEnded(principal=request.principal.name, action=request.action), context)


def _pass_on_end(error: BaseException) -> None:
    """Raise what ends this task. A hook that exits, or awaits work that others cancelled, has failed like any other."""
    if isinstance(error, GeneratorExit):
        raise error
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    if task is not None and task.cancelling():
        raise error


def _key(principal: Principal) -> str:
    return f"{principal.name} {principal.token_id}"


def _is_whole(decision: Decision) -> bool:
    is_allowed, reason = cast("object", decision.is_allowed), cast("object", decision.reason)
    return isinstance(is_allowed, bool) and isinstance(reason, str)


def _throttled(seconds: float) -> Refusal:
    message = "too many wrong tokens came from this address: wait"
    return Refusal(429, "too_many_wrong_tokens", message, max(1, ceil(seconds)))


# Count requests, and say how long to wait: a token bucket for each key, in a table of bounded size.


def address_key(address: str) -> str:
    """Return what a client's address is counted as: an IPv4 address, or the /64 network of an IPv6 address.

    A client of IPv6 has a whole /64, so it could use another address for each request. A socket for both versions
    shows IPv4 addresses as IPv6 addresses. Other texts are returned as they are.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
    return str(found)


class RateLimit:
    """Limits the rate of events by key. Beyond `most` keys, the least recently used is forgotten."""

    def __init__(self, per_second: float, burst: int, most: int, clock: Callable[[], float] = monotonic) -> None:
        """
        Args:
            per_second: average rate of a key.
            burst: maximum number of events at once.
            most: maximum number of keys.
            clock: returns the time in seconds.
        """
        self._per_second, self._burst, self._most, self._clock = per_second, burst, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # events left, and when that was true

    def __len__(self) -> int:
        """Return the number of keys in the table."""
        return len(self._left)

    def wait(self, key: str, per_second: float | None = None, *, events: int = 1) -> float:
        """Return the seconds until events of a key are allowed; 0 if they are allowed now. Counts nothing."""
        left = self._now(key, per_second)[0]
        return 0.0 if left >= events else (events - left) / (per_second or self._per_second)

    def take(self, key: str, per_second: float | None = None, *, events: int = 1) -> float:
        """Count events and return 0. If they are not allowed, count nothing and return the seconds to wait."""
        if seconds := self.wait(key, per_second, events=events):
            return seconds
        left, now = self._now(key, per_second)
        self._left[key] = left - events, now
        self._left.move_to_end(key)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return 0.0

    def _now(self, key: str, per_second: float | None) -> tuple[float, float]:
        now = self._clock()
        left, then = self._left.get(key, (float(self._burst), now))
        return min(self._burst, left + (now - then) * (per_second or self._per_second)), now


# Find the hooks `identify` and `authorize` by name, for the command line.


def load_identify(target: str) -> Identify:
    """Return the hook at `module:attribute` or `path/to/file.py:attribute`.

    Raises:
        HookNotFound: there is no such module, file or attribute, or the object is no async function.
        Exception: any error that the module raises while it is imported.
    """
    return cast("Identify", _function(target))


def load_authorize(target: str) -> Authorize:
    """Return the hook at `module:attribute` or `path/to/file.py:attribute`.

    Raises:
        HookNotFound: there is no such module, file or attribute, or the object is no async function.
        Exception: any error that the module raises while it is imported.
    """
    return cast("Authorize", _function(target))


def _function(target: str) -> object:
    try:
        found = load_object(target, example="my_package.access:authorize")
    except TargetNotFound as error:
        raise HookNotFound(target, error.reason) from None
    # Refused here: a hook that cannot be awaited would refuse every request.
    if not iscoroutinefunction(found) and not iscoroutinefunction(getattr(type(found), "__call__", None)):  # noqa: B004
        raise HookNotFound(target, "it is no async function")
    return found
