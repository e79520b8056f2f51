"""A finding of `lanebus doctor`. Pure."""

from typing import Literal, NamedTuple

__all__ = ("Finding", "Level", "error", "ok", "warning")

Level = Literal["ok", "warning", "error"]
"""`error`: messages are lost, or commands fail. `warning`: this can happen, and the finding's text says when."""


class Finding(NamedTuple):
    """The result of one check."""

    level: Level
    check: str
    """the name of the check"""
    text: str
    """what the check found"""
    remedy: str = ""
    """what to do; "" if nothing is wrong"""
    node: str = ""
    """the server that was looked at, as `host:port` or as the path of its socket; "" if the finding is of none"""


def ok(check: str, text: str) -> Finding:
    """Return a finding of level `ok`: the check found no problem."""
    return Finding("ok", check, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    """Return a finding of level `warning`: messages can be lost, or commands can fail."""
    return Finding("warning", check, text, remedy)


def error(check: str, text: str, remedy: str) -> Finding:
    """Return a finding of level `error`: messages are lost, or commands fail."""
    return Finding("error", check, text, remedy)
