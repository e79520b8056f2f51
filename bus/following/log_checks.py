"""Check whether the log of a followed session still holds what the hub has read."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lanebus.bus.error_text import logged
from lanebus.bus.errors import (
    BusError,
    Closed,
    CursorTrimmed,
    LogRolledBack,
    SessionDamaged,
    SessionErased,
    Unavailable,
    is_of_session,
)
from lanebus.bus.log.batches import batched
from lanebus.bus.log.incarnations import common_position
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lanebus.bus.following.followed_session import FollowedSession
    from lanebus.bus.following.followed_sessions import FollowedSessions
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log

__all__ = ("changed_sessions", "check_logs", "contained", "why_lost")

_log = logging.getLogger(__name__)


async def why_lost(
    log: Log, followed: FollowedSession, head: SessionHead
) -> SessionErased | LogRolledBack | CursorTrimmed | None:
    """Return why the log no longer holds what the hub has read; None if it still holds everything."""
    if head.is_erased:
        return SessionErased(followed.session)
    try:
        found = await common_position(log, head, followed.proof)
    except CursorTrimmed as unproven:
        return unproven
    if found < followed.position:
        return LogRolledBack(followed.session, followed.position, found)
    if followed.precedes_fork(head):  # this error makes followers read the shared entries from the log
        return CursorTrimmed(followed.session, str(Cursor(followed.position)), head.own_start.position + 1)
    return None


async def changed_sessions(log: Log, sessions: Sequence[FollowedSession]) -> list[FollowedSession]:
    """Return the sessions that have changed, or may have changed, since the hub read them."""
    found = await log.fingerprints([followed.session for followed in sessions])
    return [followed for followed in sessions if not followed.is_at(found[followed.session])]


async def check_logs(log: Log, all_followed: FollowedSessions, some: Sequence[FollowedSession]) -> None:
    """Check sessions for changes that a blocking read does not show.

    If a log lost its end or became a fork, the session's subscriptions fail. Sessions with unread entries are marked.

    Args:
        log: the log.
        all_followed: the hub's sessions, in which sessions are marked.
        some: the sessions to check.
    """
    for batch in batched(await changed_sessions(log, some), log.bounds.heads):
        heads = await log.each_head([followed.session for followed in batch])
        for followed, head in zip(batch, heads, strict=True):
            with contained(followed):
                if isinstance(head, BusError):
                    raise head
                if (lost := await why_lost(log, followed, head)) is not None:
                    raise lost
                if followed.note_new_entries(head):
                    all_followed.mark(followed)


@contextmanager
def contained(followed: FollowedSession) -> Generator[None, None, None]:
    """Pass an error of the block to the followers of one session, if it concerns this session alone.

    So the hub goes on with the other sessions.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, BusError):
            if isinstance(error, Closed) or (isinstance(error, Unavailable) and not is_of_session(error)):
                raise
            followed.fail(error)
            return
        _log.error("session %s cannot be followed", followed.session, exc_info=logged(error))
        followed.fail(SessionDamaged(followed.session, "its entries"))
