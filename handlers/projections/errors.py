"""Errors of a projection's definition, and of the state that the projection returns."""

from lanebus.bus.errors import SetupError

__all__ = ("InvalidProjection", "ProjectionNotFound")


class InvalidProjection(SetupError):
    """The definition of a projection cannot work. The text says what to change.

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
