"""The bounds of a proof, each with its default.

Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from dataclasses import dataclass

__all__ = ("DEFAULT_VERIFY_BOUNDS", "VerifyBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyBounds:
    """How much a proof keeps, and how often it looks again at what changes meanwhile."""

    kept: int = 1_000
    """problems and notes that are kept of one session, so that one which is all wrong does not fill the memory"""
    session_looks: int = 3
    """at a session that is trimmed or goes back meanwhile"""
    byte_looks: int = 5
    """at a bucket's count of bytes while it is published to"""
    state_looks: int = 4
    """at the checkpoint of a projection and at its state, which change in one step and are read in two"""


DEFAULT_VERIFY_BOUNDS = VerifyBounds()
