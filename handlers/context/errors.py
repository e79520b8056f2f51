"""Errors of contexts, and of the entries that steer a context."""

from lanebus.bus.errors import MessageError, StreamError


class Misplaced(MessageError):
    """An envelope cannot be the next entry of a context: it is of another session, too old, or a live delta.

    Fields: `session` and `position` of the envelope; `reason`, text for people.
    """

    def __init__(self, session: str, position: int, reason: str) -> None:
        super().__init__(f"entry {position} of session {session!r} does not follow: {reason}")
        self.session, self.position, self.reason = session, position, reason


class UnknownTarget(MessageError):
    """A leaf move, compaction or prune names a position to which it cannot refer, such as one without an earlier entry.

    If the entry is already in the log, the error is recorded in `Context.faults` and not raised. Fields: `target`, the
    position that was named.
    """

    def __init__(self, target: int, fault: str = "", remedy: str = "") -> None:
        super().__init__(fault or f"names entry {target}, which is not there before it", remedy)
        self.target = target


class UnknownLeaf(MessageError):
    """A caller named a position that the session's LLM lane does not have. Nothing was written.

    Fields: `session`; `leaf`, the position that was named.
    """

    def __init__(self, session: str, leaf: int) -> None:
        super().__init__(
            f"session {session!r} has no entry {leaf} in its LLM lane", "name the position of an entry of that lane"
        )
        self.session, self.leaf = session, leaf


class ContextTooLarge(StreamError):
    """The entries of a context take more memory than a cache of contexts has.

    Fields: `session`; `limit_bytes`.
    """

    def __init__(self, session: str, limit_bytes: int) -> None:
        super().__init__(
            f"session {session!r}: the entries of its context take over {limit_bytes} bytes of memory",
            "ask for an earlier position, or read the entries in pages",
        )
        self.session, self.limit_bytes = session, limit_bytes
