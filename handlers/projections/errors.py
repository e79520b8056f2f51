"""What can be wrong with a projection before it is folded, or with the state that its fold returns."""

from lanebus.bus.errors import SetupError

__all__ = ("InvalidProjection", "ProjectionNotFound")


class InvalidProjection(SetupError):
    """The definition of a projection cannot work. The text says what to change.

    Fields: `projection`, its name; `fault`, what is wrong; `remedy`, what to do.
    """

    def __init__(self, projection: str, fault: str, remedy: str) -> None:
        super().__init__(f"projection {projection[:80]!r}: {fault}. {remedy}.")
        self.projection, self.fault, self.remedy = projection, fault, remedy


class ProjectionNotFound(SetupError):
    """The text `module:attribute` leads to no projection.

    Fields: `target`, the text; `reason`, what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"no projection at {target!r}: {reason}")
        self.target, self.reason = target, reason
