"""The first page of a read, requested in the same round trip as another command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.replies import Argument, Reply

__all__ = ("FirstPage",)


class FirstPage:
    """The first page of a read, requested in the same round trip as another command.

    The server reads the page after the other command, so the page includes the command's effect.
    """

    def __init__(self, session: str, after: int, commands: Sequence[Sequence[Argument]]) -> None:
        self.session, self.after, self.commands = session, after, commands
        self.replies: list[Reply | Refused] = []
        """the replies to `commands`. Empty until they arrive, and if the server refused one of the commands"""

    def take(self, after: int) -> list[Reply | Refused]:
        """Return the replies and forget them. Return an empty list on later calls, or if the page was requested for
        another position than `after`."""
        replies, self.replies = self.replies, []
        return replies if after == self.after else []
