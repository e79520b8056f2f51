"""What goes to a server and what it answers: arguments of commands, replies, and errors among the replies."""

from collections.abc import Sequence
from typing import Protocol

from lanebus.bus.errors import Redirected, Refused

__all__ = ("Argument", "Calling", "Reply", "answered", "call_all", "is_ask", "refusal_of")

Argument = str | bytes | int
Reply = bytes | int | None | Sequence["Reply"]


class Calling(Protocol):
    """What sends several commands at once: a link, a pool of them, or a log."""

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Return their replies, in their order."""
        ...


async def call_all(link: Calling, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
    """Send several commands in one round trip, and return their answers.

    Raises:
        Refused: the server refused one of them. The others may have been carried out.
        Unavailable: as for `Connection.call_many`.
    """
    return [answered(reply) for reply in await link.call_many(commands)]


def answered(reply: Reply | Refused) -> Reply:
    """Return the reply, if it is no error.

    Raises:
        Refused: the server answered with an error.
    """
    if isinstance(reply, Refused):
        raise reply
    return reply


def is_ask(reply: Reply | Refused) -> bool:
    """Whether a server of a cluster sends this one command elsewhere, as it is giving the slot away."""
    return isinstance(reply, Redirected) and reply.code == "ASK"


def refusal_of(text: str) -> Refused:
    """Return the error that a server answered with these words.

    Only the first word is kept: the rest may quote arguments, and so messages. Where to go instead is no message.
    """
    code, _, rest = text.partition(" ")
    if code in {"ASK", "MOVED"}:
        slot, _, address = rest.partition(" ")
        host, _, port = address.rpartition(":")
        return Redirected(code, int(slot), host.strip("[]?"), int(port))
    if code == "ERR" and "unauthenticated" in rest:  # said of a long request before a login
        code = "NOAUTH"
    return Refused(code if code.isupper() and code.isalpha() else "ERR")
