"""Errors of a projection's definition, and of the state that the projection returns."""

from typing import Never

from lanebus.bus.error_text import describe_error
from lanebus.bus.errors import BusError, SetupError
from lanebus.bus.wire.envelope import Envelope

__all__ = ("FoldFailed", "InvalidProjection", "ProjectionNotFound", "raise_fold_failed")


class FoldFailed(BusError):
    """The function of a projection raised an error. Nothing was stored. `__cause__` is the function's error.

    Fields: `projection`, the projection's name; `session` and `position` of the entry; `kind` of its message, or the
    class of a message without a kind.
    """

    def __init__(self, projection: str, envelope: Envelope, error: Exception) -> None:
        message: object = envelope.message
        kind = str(getattr(message, "kind", None) or getattr(message, "role", None) or type(message).__name__)
        super().__init__(
            f"projection {projection!r} failed at position {envelope.position} of session {envelope.session!r}, "
            f"a message {kind!r}: {describe_error(error, 200)}",
            "correct its function, and raise its version if the states change",
        )
        self.projection, self.kind = projection, kind
        self.session, self.position = envelope.session, envelope.position


def raise_fold_failed(projection: str, envelope: Envelope, error: Exception) -> Never:
    """Raise an error of lanebus unchanged, and any other error of a projection's function as FoldFailed."""
    if isinstance(error, BusError):
        raise error
    raise FoldFailed(projection, envelope, error) from error


class InvalidProjection(SetupError):
    """A projection is defined wrongly, or its state cannot be stored. The error's text says what to change.

    Fields: `projection`, the projection's name; and the fields of `BusError`.
    """

    def __init__(self, projection: str, fault: str, remedy: str) -> None:
        super().__init__(f"projection {projection[:80]!r}: {fault}", remedy)
        self.projection = projection


class ProjectionNotFound(SetupError):
    """No projection was found at the text `module:attribute`.

    Fields: `target`, the text; `reason`, what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(
            f"no projection at {target!r}: {reason}",
            "write module:attribute or path/to/file.py:attribute of a projection",
        )
        self.target, self.reason = target, reason
