"""Errors of requests whose query parameters are wrong."""

from collections.abc import Collection

from lanebus.bus.errors import MessageError

__all__ = ("InvalidParameter", "RepeatedParameter", "UnknownParameter")


class UnknownParameter(MessageError):
    """The request has a query parameter that the endpoint does not have."""

    def __init__(self, name: str, allowed: Collection[str]) -> None:
        names = ", ".join(sorted(allowed))
        remedy = f"use only {names}" if names else "leave it out: this endpoint has no parameters"
        super().__init__(f"unknown parameter {name[:100]!r}", remedy)
        self.name, self.allowed = name, tuple(sorted(allowed))


class RepeatedParameter(MessageError):
    """The request has a query parameter twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"parameter {name!r} is given twice", "give it once, with commas between several values")
        self.name = name


class InvalidParameter(MessageError):
    """The value of a query parameter is not allowed."""

    def __init__(self, name: str, text: str, remedy: str) -> None:
        super().__init__(f"parameter {name!r} is {text[:100]!r}", remedy)
        self.name, self.text = name, text
