"""What can be wrong with a context."""

from lanebus.bus.errors import MessageError

__all__ = ("Misplaced", "UnknownLeaf", "UnknownTarget")


class Misplaced(MessageError):
    """An envelope does not follow what its context has folded: another session's, an old one, or a live delta."""

    def __init__(self, session: str, position: int, reason: str) -> None:
        super().__init__(f"entry {position} of session {session!r} does not follow: {reason}")
        self.session, self.position, self.reason = session, position, reason


class UnknownTarget(MessageError):
    """A leaf move or a compaction names an entry that is not there before it. A context records it and goes on."""

    def __init__(self, target: int) -> None:
        super().__init__(f"names entry {target}, which is not there before it")
        self.target = target


class UnknownLeaf(MessageError):
    """Somebody wants to stand at an entry that the session's LLM lane does not have. Nothing was done.

    Fields: `session`; `leaf`, the position that was named.
    """

    def __init__(self, session: str, leaf: int) -> None:
        super().__init__(
            f"session {session!r} has no entry {leaf} in its LLM lane: name the position of one that it has"
        )
        self.session, self.leaf = session, leaf
