"""What a session took with all the sessions that its tool calls have begun."""

from collections.abc import Iterator
from dataclasses import dataclass

from lanebus.bus.errors import SessionErased
from lanebus.bus.messages.usage import Usage
from lanebus.bus.session.session import Session
from lanebus.handlers.projections.links import read_links
from lanebus.handlers.projections.projection import look
from lanebus.handlers.projections.usage import USAGE, Totals

__all__ = ("TreeUsage", "tree_usage")


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """A session and those below it."""

    session: str
    agent: str | None
    """that works it, where it was begun for one"""
    own: Totals
    """of the session alone"""
    children: tuple["TreeUsage", ...] = ()
    is_erased: bool = False
    """nobody knows any more what it took, or began"""
    counted_from: int | None = None
    """the first entry that counts, where those before it are gone and were not counted; None: all count"""

    @property
    def usage(self) -> Usage:
        """The sum over the session and all below it; its cost is None as long as no call's cost is known."""
        total = self.own.usage
        for child in self.children:
            total = total.combine(child.usage)
        return total

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "TreeUsage"]]:
        """The session, then those below it, each with how many stand above it."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


async def tree_usage(session: Session) -> TreeUsage:
    """What a session and all below it took. Each session counts once, whatever the links say.

    Of a log whose beginning was trimmed away before it was counted, what is left counts.

    Raises:
        SessionErased: the session itself was.
        BusError: a log could not be read.
    """
    return await _tree(session, None, {session.id})


async def _tree(session: Session, agent: str | None, known: set[str]) -> TreeUsage:
    own = await look(session, USAGE)
    children: list[TreeUsage] = []
    for link in (await read_links(session)).children:
        if link.child in known:
            continue
        known.add(link.child)
        try:
            children.append(await _tree(session.sibling(link.child), link.agent, known))
        except SessionErased:
            children.append(TreeUsage(link.child, link.agent, Totals(), is_erased=True))
    return TreeUsage(session.id, agent, own.state.total, tuple(children), counted_from=own.counted_from)
