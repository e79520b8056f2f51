"""Sum the usage of a session and of the sessions that its tool calls created."""

from collections.abc import Iterator
from dataclasses import dataclass

from lanebus.bus.errors import BusError, SessionErased, is_of_session
from lanebus.bus.messages.usage import Usage
from lanebus.bus.session.session import Session, require_session
from lanebus.handlers.projections.links import read_links
from lanebus.handlers.projections.projection import look
from lanebus.handlers.projections.usage import USAGE, Totals

__all__ = ("TreeUsage", "tree_usage")


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """The usage of a session and of its descendants."""

    session: str
    """session id"""
    agent: str | None
    """name of the agent for which the parent created the session; None for the root of the tree"""
    own: Totals
    """totals of this session alone"""
    children: tuple["TreeUsage", ...] = ()
    """usage of each session that this session's tool calls created"""
    is_erased: bool = False
    """True if the session was erased. Its usage and children are then unknown, and `own` and `children` are empty"""
    counted_from: int | None = None
    """position of the first counted entry, if earlier entries were trimmed before they were counted; otherwise None"""
    error: str | None = None
    """why the log of this descendant cannot be read, so that its usage is not counted; None if it is counted"""

    @property
    def usage(self) -> Usage:
        """The sum over the session and its descendants. The cost is None until the cost of one call is known."""
        total = self.own.usage
        for child in self.children:
            total = total.combine(child.usage)
        return total

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "TreeUsage"]]:
        """Yield the session and its descendants, each with its depth, parents before children.

        Args:
            depth: depth of this session.
        """
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


async def tree_usage(session: Session) -> TreeUsage:
    """Return the usage of a session and its descendants. A session that several links name is counted once.

    If the first entries of a log were trimmed before they were counted, only the remaining entries are counted. See
    `TreeUsage.counted_from`.

    Args:
        session: the root of the tree.

    Raises:
        SessionErased: `session` was erased.
        BusError: the session's own log could not be read. A descendant that cannot be read has an `error`.
    """
    require_session(session)
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
        except BusError as error:
            if not is_of_session(error):
                raise
            children.append(TreeUsage(link.child, link.agent, Totals(), error=str(error)))
    return TreeUsage(session.id, agent, own.state.total, tuple(children), counted_from=own.counted_from)
