"""Lua scripts, and the one way to run them.

A script is sent by its digest. A server that does not know it, or has forgotten it, is sent its text.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING

from lanebus.bus.errors import Refused
from lanebus.bus.servers.replies import answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.servers.replies import Calling
    from lanebus.bus.servers.topology import Argument, Reply

__all__ = ("Script", "run_script", "run_scripts", "send_scripts")


class Script:
    """A Lua script of this package: its text and the digest the server knows it by."""

    def __init__(self, name: str, *, shares: Sequence[str] = ()) -> None:
        """`shares`: the texts that stand before its own, which other scripts have too."""
        self._names = (*shares, name)

    @cached_property  # read when it is first needed: importing the bus does not wait for the files
    def text(self) -> str:
        """In Lua."""
        folder = files("lanebus.bus.log").joinpath("scripts")
        *shared, own = (folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in self._names)
        flags, mark, rest = own.partition("\n") if own.startswith("#!") else ("", "", own)  # have to be the first line
        return "".join((flags, mark, *shared, rest))

    @cached_property
    def digest(self) -> str:
        """What the server knows it by."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Iterable[Argument]) -> tuple[Argument, ...]:
        """The command that runs it, all keys declared."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)


async def run_script(
    link: Calling, script: Script, keys: Sequence[str], arguments: Sequence[Argument], page: FirstPage | None = None
) -> Reply:
    """Run a script that may run twice. Arguments and errors are those of `run_scripts`."""
    (reply,) = await run_scripts(link, script, ((keys, arguments),), page)
    return reply


async def run_scripts(
    link: Calling,
    script: Script,
    calls: Sequence[tuple[Sequence[str], Sequence[Argument]]],
    page: FirstPage | None = None,
) -> list[Reply]:
    """Run a script several times in one round trip, each time with other keys and arguments. It may run twice.

    Args:
        page: read behind the scripts, in the same round trip.

    Raises:
        Refused, Unavailable: as for `Connection.call`; some of them may have been carried out.
    """
    commands = [(script, script.command(keys, arguments)) for keys, arguments in calls]
    return [answered(reply) for reply in await send_scripts(link, commands, page)]


async def send_scripts(
    link: Calling, commands: Sequence[tuple[Script, Sequence[Argument]]], page: FirstPage | None = None
) -> list[Reply | Refused]:
    """Send scripts in one round trip, and in a second one the text of those that the server does not know.

    Args:
        commands: each script with its command.
        page: read behind the scripts, in the same round trip. It stays empty if a script needed the second one.

    Returns:
        The replies, in the order of the commands.

    Raises:
        Unavailable: as for `Connection.call_many`.
    """
    sent = [command for _, command in commands]
    answers = await link.call_many(sent if page is None else [*sent, *page.commands])
    replies, others = answers[: len(sent)], answers[len(sent) :]
    unknown = [at for at, reply in enumerate(replies) if isinstance(reply, Refused) and reply.code == "NOSCRIPT"]
    if unknown:
        texts = [("EVAL", commands[at][0].text, *sent[at][2:]) for at in unknown]
        for at, reply in zip(unknown, await link.call_many(texts), strict=True):
            replies[at] = reply
    elif page is not None and not any(isinstance(reply, Refused) for reply in others):
        page.replies = others
    return replies
