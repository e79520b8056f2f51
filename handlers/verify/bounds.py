"""The bounds of a verification, with their defaults."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_VERIFY_BOUNDS", "VerifyBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyBounds:
    """Limits on the problems in a report, and on the attempts to read values that change during the check."""

    problems: int = 1_000
    """maximum number of problems in a session's report, and of notes. Further problems are only counted"""
    session_attempts: int = 3
    """attempts to check a session that is trimmed, rolled back or handed over during the check"""
    byte_attempts: int = 5
    """attempts to read a bucket's counts while the bucket is published to"""
    state_attempts: int = 4
    """attempts to read a projection's checkpoint and state. They are written in one step but read in two steps"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("problems", "byte_attempts"))


DEFAULT_VERIFY_BOUNDS = VerifyBounds()
