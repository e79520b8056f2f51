"""List an agent's sessions for an editor, a page at a time."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from acp.schema import ListSessionsResponse, SessionInfo

from lanebus.bus.errors import StreamError
from lanebus.bus.log.catalog import CatalogCursor
from lanebus.handlers.projections.sessions import SESSIONS, session_lines
from lanebus.handlers.projections.views import Views
from lanebus.handlers.protocols.acp.folder import folder_of

if TYPE_CHECKING:
    from lanebus.bus.bus import Bus
    from lanebus.bus.log.head import SessionHead

__all__ = ("SessionPages",)


class SessionPages:
    """Lists the sessions of one agent, the most recently changed first."""

    def __init__(self, bus: Bus, agent: str, *, limit: int) -> None:
        """
        Args:
            bus: the bus.
            agent: name of the agent.
            limit: maximum number of sessions of a page.
        """
        self._bus, self._agent, self._limit = bus, agent, limit
        self._views = Views()

    async def page(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """Return one page. With a folder, a page may have fewer sessions, and others follow.

        A session without a known folder counts as one of this process's folder.

        Args:
            cwd: only sessions of this folder; None means all.
            cursor: the cursor of the page before; None begins.

        Raises:
            InvalidCursor: the cursor is not one of this list.
            Unavailable: the server cannot be reached.
        """
        after = None if cursor is None else CatalogCursor.parse(cursor)
        page = await self._bus.catalog.newest(self._limit, agent=self._agent, after=after)
        lines = await session_lines(self._bus, self._views, heads=page.heads)
        here, found = str(Path.cwd()), list[SessionInfo]()
        for head in page.heads:
            folder = await folder_of(self._bus.session(head.session), head) or here
            if head.session in lines and cwd in {None, folder}:
                found.append(
                    SessionInfo(
                        session_id=head.session,
                        cwd=folder,
                        title=lines[head.session].state.title or await self._title_of_parent(head),
                        updated_at=datetime.fromtimestamp(head.updated, UTC).isoformat(timespec="seconds"),
                    )
                )
        return ListSessionsResponse(sessions=found, next_cursor=None if page.end is None else str(page.end))

    async def _title_of_parent(self, head: SessionHead) -> str | None:
        """Return the title that a fork has from its parent: the summary of a fork covers its own entries only."""
        if head.origin is None:
            return None
        with suppress(StreamError):
            return (await self._views.look(self._bus.session(head.origin.session), SESSIONS)).state.title
        return None
