"""Paths of the repository."""

from pathlib import Path

__all__ = ("GOLDEN", "ROOT", "SHARED")

ROOT = Path(__file__).resolve().parents[2]
"""the repository"""

SHARED = ROOT.parent / "shared"
"""an optional directory of sample data next to the repository"""

GOLDEN = ROOT / "tests" / "golden"
"""the recorded logs and sessions"""
