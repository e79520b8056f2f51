"""The bounds of a verification, with their defaults."""

from dataclasses import dataclass

__all__ = ("DEFAULT_VERIFY_BOUNDS", "VerifyBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyBounds:
    """How many problems are kept, and how often values that change meanwhile are read again."""

    kept: int = 1_000
    """problems and notes kept per session; further problems are only counted, which bounds memory"""
    session_looks: int = 3
    """attempts to check a session that is trimmed or rolled back meanwhile"""
    byte_looks: int = 5
    """attempts to read a bucket's byte count while the bucket is published to"""
    state_looks: int = 4
    """attempts to read a projection's checkpoint and its state, which change in one step and are read in two"""


DEFAULT_VERIFY_BOUNDS = VerifyBounds()
