"""`Session`: publish to a session, read and follow it, store checkpoints, and manage its retention."""

from secrets import token_hex
from typing import Protocol

from lanebus.bus.errors import require_count
from lanebus.bus.log.lineage import begin_fork
from lanebus.bus.session import checkpoints, handover, leases, publishing, reading, retention
from lanebus.bus.session.resources import SessionResources
from lanebus.bus.wire.keys import check_agent, check_session_id


class OpenSession(Protocol):
    """A function that returns a session of the bus by its id, such as `Bus.session`."""

    def __call__(self, session_id: str, *, agent: str | None = None) -> "Session": ...


class Session:
    """One session of the bus. `Bus.session` returns a `Session` without I/O; the first publish creates the session on
    the server.

    The methods are defined in the modules of this package, by topic. Every method that waits raises `Unavailable` if
    the server cannot be reached, and `OpenedElsewhere` in a forked child and in another event loop than that of the
    bus.
    """

    def __init__(self, resources: SessionResources, open_session: "OpenSession") -> None:
        """Use `Bus.session` instead.

        Args:
            resources: the id, and the parts of the bus that serve the session.
            open_session: returns the session of the same bus with the given id. That session may be on another server.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        self.id = check_session_id(resources.id)
        self.media = resources.media
        """the bus's media store; `resolve_media` loads the media that messages refer to"""
        self._resources = resources
        self._open_session = open_session

    @property
    def resources(self) -> SessionResources:
        """internal: the parts of the bus that the methods use. This attribute may change.

        Raises:
            OpenedElsewhere: this is another process or event loop than that of the bus.
        """
        self._resources.origin.check()
        return self._resources

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    publish = publishing.publish
    try_publish = publishing.try_publish
    close = publishing.close
    reopen = publishing.reopen
    preview = publishing.preview
    hand_over = handover.hand_over

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

    lease = leases.lease
    acquire_lease = leases.acquire_lease
    renew_lease = leases.renew_lease
    release_lease = leases.release_lease
    wait_for_wake_up = leases.wait_for_wake_up

    async def fork(
        self,
        at: int | None = None,
        *,
        id: str | None = None,
        agent: str | None = None,
        belongs_to: str | None = None,
    ) -> "Session":
        """Create a session that shares this session's entries up to a position, and has its own entries after that.

        No entry is copied, so a fork takes the same time for any length. A reader sees the fork as one session from
        position 1 on; shared entries carry the fork's id. The fork has its own producers, publish keys, lease,
        projections and size. It starts open and wakes no worker.

        While the fork exists, trimming the shared entries or erasing this session needs `force`. After a cancelled or
        failed call the fork may exist, or have only this effect: call again with the same `id` and `at`.

        Args:
            at: last position to share. 0 shares nothing; None means this session's last position.
            id: id of the fork. None generates an id. A call with the `id` and `at` of a complete fork changes nothing.
            agent: the agent that the fork belongs to; None means this session's agent.
            belongs_to: fork only if this session belongs to this agent. None means any agent.

        Raises:
            SessionExists: the id belongs to a session that is not this fork.
            SessionErased: this session, or the session with that id, was erased.
            NoSuchPosition: `at` is after this session's last position.
            CursorTrimmed: the entries up to `at` were trimmed.
            HeadMissing: this session has no head, but entries.
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            WrongAgent: this session belongs to another agent than `belongs_to`. Nothing was forked.
            InvalidName: `agent` or `belongs_to` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached. The fork may exist.
        """
        require_count("at", at, is_optional=True)
        named = None if agent is None else check_agent(agent)
        owner = None if belongs_to is None else check_agent(belongs_to)
        fork = self.sibling(new_session_id() if id is None else check_session_id(id, "id"))
        log, archive = self.resources.log, self.resources.archive
        await begin_fork(log, self.id, fork.id, at, archive, agent=named, belongs_to=owner)
        return fork

    def sibling(self, session_id: str, *, agent: str | None = None) -> "Session":
        """Return another session of the same bus, like `Bus.session`.

        Args:
            session_id: id of the other session.
            agent: the agent that the session belongs to if it is new; None means the bus's default agent.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        return self._open_session(session_id, agent=agent)


def new_session_id() -> str:
    """Return a random session id: 16 hexadecimal digits."""
    return token_hex(8)
