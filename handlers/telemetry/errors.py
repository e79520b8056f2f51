"""Errors of the set-up of traces."""

from lanebus.bus.errors import SetupError

__all__ = ("TracesFailed", "TracesMissing")


class TracesMissing(SetupError):
    """A package that traces need is not installed."""

    def __init__(self, package: str, install: str) -> None:
        super().__init__(f"{package!r} is not installed", f"run pip install {install}")
        self.package = package


class TracesFailed(SetupError):
    """The exporter of the traces could not be set up."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"traces cannot be sent: {reason}", remedy)
        self.reason = reason
