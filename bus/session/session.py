"""A session as its user holds it: publish, read, follow, keep and remove."""

from collections.abc import Callable
from secrets import token_hex

from lanebus.bus.log.fork import begin_fork
from lanebus.bus.session import checkpoints, leases, publishing, reading, retention
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.session.resources import SessionResources
from lanebus.bus.wire.keys import check_session_id
from lanebus.bus.wire.notice import CLOSED, REOPENED

__all__ = ("ALL_LANES", "CLOSED", "REOPENED", "Session", "new_session_id")


class Session:
    """One session of the bus. Making it does no I/O. A session exists once something was published to it.

    Its methods are functions of the modules that stand beside them. Each method that waits raises `Unavailable` if the
    server cannot be reached; its docstring names the other errors.
    """

    def __init__(self, resources: SessionResources, open_session: "Callable[[str], Session]") -> None:
        """Check the id.

        Args:
            open_session: returns a session of the same bus by its id; it may be on another server.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        self.id = check_session_id(resources.id)
        self.media = resources.media
        """the media store of all sessions; `resolve_media` looks up what messages refer to"""
        self.resources = resources
        """what the methods use"""
        self._open_session = open_session

    publish = publishing.publish
    try_publish = publishing.try_publish
    close = publishing.close
    reopen = publishing.reopen
    preview = publishing.preview

    head = reading.head
    read = reading.read
    pages = reading.pages
    first_page = reading.first_page
    follow = reading.follow
    subscribe = reading.subscribe
    open_messages = reading.open_messages

    load_projection = checkpoints.load_projection
    save_projection = checkpoints.save_projection
    drop_projection = checkpoints.drop_projection
    load_checkpoint = checkpoints.load_checkpoint
    save_checkpoint = checkpoints.save_checkpoint
    drop_checkpoint = checkpoints.drop_checkpoint
    checkpoints = checkpoints.checkpoints

    archive = retention.archive
    check_archive = retention.check_archive
    trim = retention.trim
    erase = retention.erase

    acquire_lease = leases.acquire_lease
    renew_lease = leases.renew_lease
    release_lease = leases.release_lease
    wait_for_wake_up = leases.wait_for_wake_up

    async def fork(self, at: int | None = None, *, id: str | None = None) -> "Session":
        """Begin a session that shares this one's entries up to a position and continues by itself after it.

        No entry is copied, so it takes the same time for any length. The fork reads as one session from position 1 on,
        and what both share is read as the fork's. It has its own producers, callers' keys, lease, projections and size.
        It is open, and wakes no worker. While it exists, this session's entries are only trimmed by force, and this
        session is only erased by force.

        Args:
            at: the last position that is shared; 0 shares nothing, None is the last one there is.
            id: of the fork; None makes one. With an id and a position, a repeat changes nothing.

        Raises:
            SessionExists: there is a session of that id, and it is not this fork.
            SessionErased: this session was erased, or the one that had the id.
            NoSuchPosition: this session does not reach so far.
            CursorTrimmed: what is up to there was trimmed away.
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            Unavailable: the server cannot be reached; the fork may be there.
        """
        fork = self.sibling(new_session_id() if id is None else id)
        await begin_fork(self.resources.log, self.id, fork.id, at, self.resources.archive)
        return fork

    def sibling(self, session_id: str) -> "Session":
        """Return another session of the same bus, as `Bus.session` does.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        return self._open_session(session_id)


def new_session_id() -> str:
    """Return a random session id."""
    return token_hex(8)
