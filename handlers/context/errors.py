"""What can be wrong with a context or with a request built from it."""

from bus.errors import MessageError

__all__ = ("ContentRefused", "Misplaced", "NoModel", "UnknownTarget")


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


class NoModel(MessageError):
    """A request needs a model, none was given and the session never named one."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} names no model yet: give one")
        self.session = session


class ContentRefused(MessageError):
    """Strict mode: a provider's wire cannot carry something that stands in the context.

    Fields: `provider`; `losses`, one text for each thing that would have been left out or changed, with its place.
    """

    def __init__(self, provider: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{provider} cannot carry: {'; '.join(losses)}")
        self.provider, self.losses = provider, losses
