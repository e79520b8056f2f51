"""What all calls to servers share: commands and replies, bounds of connections, and the pauses between attempts.

This can be imported without the client library, whose import takes long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import uniform
from typing import Protocol

import anyio

from lanebus.bus.errors import Redirected, Refused, SessionDamaged, check_bounds

# Types of command arguments and replies, and the handling of error replies.

Argument = str | bytes | int
Reply = bytes | int | None | Sequence["Reply"]


class Calling(Protocol):
    """Sends several commands at once: a connection, a pool, or a log."""

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Send commands and return their replies, in order."""
        ...


async def call_all(connection: Calling, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
    """Send several commands in one round trip and return their replies.

    Raises:
        Refused: the server refused one of the commands. The other commands may have been executed.
        Unavailable: as for `Connection.call_many`.
    """
    return [answered(reply) for reply in await connection.call_many(commands)]


def answered(reply: Reply | Refused) -> Reply:
    """Return the reply, unless it is an error.

    Raises:
        SessionDamaged: a script found a damaged value of a session.
        Refused: the reply is this error.
    """
    if isinstance(reply, Refused):
        if reply.code == _DAMAGED:
            session, _, place = reply.command.partition(" ")
            raise SessionDamaged(session, place)
        raise reply
    return reply


def is_ask(reply: Reply | Refused) -> bool:
    """Return whether a cluster server redirects only this command (ASK), because the slot is being migrated."""
    return isinstance(reply, Redirected) and reply.code == "ASK"


def refusal_of(text: str) -> Refused:
    """Return the error for a server's error text.

    Only the first word is kept, because the rest may quote arguments and thus messages. For a redirect, the slot and
    the address are kept too.
    """
    code, _, rest = text.partition(" ")
    if code in {"ASK", "MOVED"}:
        slot, _, address = rest.partition(" ")
        host, _, port = address.rpartition(":")
        return Redirected(code, int(slot), host.strip("[]?"), int(port))
    if code == "ERR" and "unauthenticated" in rest:  # the reply to a long request before the login
        code = "NOAUTH"
    if code == "NOPERM" or _SCRIPT_FORBIDDEN.search(rest):
        command = _FORBIDDEN.search(rest)
        return Refused("NOPERM", command[1] if command else "")
    if code == _DAMAGED:
        return Refused(code, rest)
    return Refused(code if code.isupper() and code.isalpha() else "ERR")


_DAMAGED = "DAMAGED"
"""The code of the error that scripts/damage.lua returns, before the session and the damaged place."""

_SCRIPT_FORBIDDEN = re.compile("ACL failure in script|The user executing the script can't")
"""Servers report a forbidden command of a script with the code ERR."""

_FORBIDDEN = re.compile(r"run the '([a-z|_-]+)' command")
"""The name in the error NOPERM. It is the server's word, never data of the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """Timeouts, pauses and counts of connections to servers. Times are in seconds."""

    connect_seconds: float = 5.0
    """longest time to connect and log in"""
    answer_seconds: float = 10.0
    """a connection is dead if an answer is due and no byte moves in either direction for this time. A blocking read
    adds its own time. TCP connections also get this value as TCP_USER_TIMEOUT"""
    retrying_seconds: float = 10.0
    """how long a short call is retried while servers start or change roles"""
    first_pause_seconds: float = 0.01
    """first pause between two attempts of a short call. Each further pause is twice as long"""
    longest_pause_seconds: float = 0.5
    """longest pause between two attempts of a short call"""
    lookup_seconds: float = 2.0
    """longest time that a Sentinel or cluster server may take to answer a look-up, before another server is asked"""
    watch_seconds: float = 1.0
    """time between two questions to each Sentinel whether the primary has changed"""
    lookup_pause_seconds: float = 0.05
    """shortest time between two reads of a cluster's slot map, by all connections together"""
    loading_pause_seconds: float = 0.1
    """when a bus is opened: pause between two checks whether a server has loaded its files"""
    pool_connections: int = 8
    """maximum number of connections for short calls to one server; further callers wait"""
    media_connections: int = 4
    """maximum number of connections for media to each server of the bus; further callers wait"""
    scan_count: int = 1_000
    """COUNT of each SCAN command: about how many keys one step examines"""
    groups_in_flight: int = 2
    """maximum number of groups of calls in flight. While the server works on one group, the process handles replies to
    another"""
    group_commands: int = 128
    """approximate maximum number of commands in a group. The commands of one call are always in the same group"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.connection")


class Backoff:
    """Growing pauses between the attempts of one loop. The loop calls `reset` after a success."""

    def __init__(
        self, first: float, longest: float = inf, *, factor: float = 2.0, jitter: float = 0.0, patience: float = inf
    ) -> None:
        """
        Args:
            first: seconds before the second attempt.
            longest: maximum number of seconds before any later attempt.
            factor: number by which a pause is multiplied to get the next pause.
            jitter: random part of a pause. With 0.5, a pause takes 0.5 to 1.5 times its length.
            patience: seconds after the first `wait` until `wait` returns False. A pause is not shortened for it.
        """
        self.next_pause = first
        """seconds that the next `advance` returns, before jitter"""
        self._first, self._longest, self._factor, self._jitter = first, longest, factor, jitter
        self._patience, self._end = patience, inf

    def advance(self) -> float:
        """Return the seconds to pause now, and lengthen the next pause."""
        pause, self.next_pause = self.next_pause, min(self.next_pause * self._factor, self._longest)
        return pause * uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else pause  # noqa: S311  # no secret

    async def wait(self) -> bool:
        """Sleep for the next pause.

        Returns:
            True after the pause; False at once if `patience` is over.
        """
        now = anyio.current_time()
        if self._end == inf:
            self._end = now + self._patience
        if now >= self._end:
            return False
        await anyio.sleep(self.advance())
        return True

    def reset(self) -> None:
        """Start again with the first pause."""
        self.next_pause = self._first
