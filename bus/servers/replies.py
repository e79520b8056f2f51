"""Types of command arguments and replies, and the handling of error replies."""

import re
from collections.abc import Sequence
from typing import Protocol

from lanebus.bus.errors import Redirected, Refused, SessionDamaged

__all__ = ("Argument", "Calling", "Reply", "answered", "call_all", "is_ask", "refusal_of")

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
