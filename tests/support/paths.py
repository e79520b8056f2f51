"""Paths of the repository."""

from pathlib import Path

__all__ = ("CASES", "GOLDEN", "ROOT", "SESSION", "SHARED")

ROOT = Path(__file__).resolve().parents[2]
"""the repository"""

SHARED = ROOT.parent / "shared"
"""an optional directory of sample data next to the repository; a directory of this name may hold anything else"""

SESSION = SHARED / "data" / "pi-session.jsonl"
"""a real session of a coding agent, if it is there"""

CASES = SHARED / "vectors" / "seed_vectors.json"
"""the sample cases of other systems, if they are there"""

GOLDEN = ROOT / "tests" / "golden"
"""the recorded logs and sessions"""
