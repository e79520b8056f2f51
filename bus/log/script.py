"""Load and run Lua scripts.

A script is called by its digest. If the server does not know the digest, the script's text is sent.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING

from lanebus.bus.errors import Refused
from lanebus.bus.log.forbidden import name_forbidden
from lanebus.bus.servers.replies import answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.servers.replies import Argument, Calling, Reply

__all__ = ("Script", "run_script", "run_scripts", "send_scripts")


class Script:
    """A Lua script of this package: its text, and its digest."""

    def __init__(self, name: str, *, shares: Sequence[str] = ()) -> None:
        """
        Args:
            name: name of the script's file in `scripts/`, without its extension.
            shares: names of the files with shared code. Their text is put before the script's own text.
        """
        self._names = (*shares, name)

    @cached_property  # read on first use, so that importing the bus does not wait for the files
    def text(self) -> str:
        """The Lua source, including the shared code."""
        folder = files("lanebus.bus.log").joinpath("scripts")
        *shared, own = (folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in self._names)
        flags, newline, rest = own.partition("\n") if own.startswith("#!") else ("", "", own)  # must be the first line
        return "".join((flags, newline, *shared, rest))

    @cached_property
    def digest(self) -> str:
        """The SHA-1 by which the server identifies the script."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def command(self, keys: Sequence[str], arguments: Iterable[Argument]) -> tuple[Argument, ...]:
        """Return the command that runs the script. `keys` are all keys that the script uses."""
        return ("EVALSHA", self.digest, len(keys), *keys, *arguments)


async def run_script(
    server: Calling, script: Script, keys: Sequence[str], arguments: Sequence[Argument], page: FirstPage | None = None
) -> Reply:
    """Run a script that is safe to run twice. Arguments and errors are those of `run_scripts`."""
    (reply,) = await run_scripts(server, script, ((keys, arguments),), page)
    return reply


async def run_scripts(
    server: Calling,
    script: Script,
    calls: Sequence[tuple[Sequence[str], Sequence[Argument]]],
    page: FirstPage | None = None,
) -> list[Reply]:
    """Run a script several times in one round trip. The script must be safe to run twice.

    Args:
        server: a connection or pool.
        script: the script to run.
        calls: keys and arguments of each run.
        page: a page to read in the same round trip, after the scripts. None reads no page.

    Raises:
        Refused: as for `Connection.call`. Some of the runs may have been executed.
        Unavailable: as for `Connection.call`. Some of the runs may have been executed.
    """
    commands = [(script, script.command(keys, arguments)) for keys, arguments in calls]
    return [answered(reply) for reply in await send_scripts(server, commands, page)]


async def send_scripts(
    server: Calling, commands: Sequence[tuple[Script, Sequence[Argument]]], page: FirstPage | None = None
) -> list[Reply | Refused]:
    """Run scripts in one round trip. If the server does not know a script, its text is sent in a second round trip.

    Args:
        server: a connection or pool.
        commands: each script with its command.
        page: a page to read in the same round trip, after the scripts. It stays empty if a second one is needed.

    Returns:
        The replies, in the order of the commands. A refused command has its error as its reply.

    Raises:
        Unavailable: as for `Connection.call_many`.
    """
    sent = [command for _, command in commands]
    answers = await server.call_many(sent if page is None else [*sent, *page.commands])
    replies, others = answers[: len(sent)], answers[len(sent) :]
    unknown = [at for at, reply in enumerate(replies) if isinstance(reply, Refused) and reply.code == "NOSCRIPT"]
    if unknown:
        texts = [("EVAL", commands[at][0].text, *sent[at][2:]) for at in unknown]
        for at, reply in zip(unknown, await server.call_many(texts), strict=True):
            replies[at] = reply
    elif page is not None and not any(isinstance(reply, Refused) for reply in others):
        page.replies = others
    if any(isinstance(reply, Refused) and reply.code == "NOPERM" and not reply.command for reply in replies):
        return await name_forbidden(server, [(script.text, command) for script, command in commands], replies)
    return replies
