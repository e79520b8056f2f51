"""The first page of a reading that another command asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.servers.topology import Argument, Reply

__all__ = ("FirstPage",)


class FirstPage:
    """The first page of a reading, asked for with another command, in one write and behind it: whatever that did, the
    page has seen."""

    def __init__(self, session: str, after: int, commands: Sequence[Sequence[Argument]]) -> None:
        self.session, self.after, self.commands = session, after, commands
        self.replies: list[Reply | Refused] = []
        """empty until they are there, and where the server refused one of the commands"""

    def take(self, after: int) -> list[Reply | Refused]:
        """Return the replies, once; empty if there are none, or if they do not begin behind that position."""
        replies, self.replies = self.replies, []
        return replies if after == self.after else []
