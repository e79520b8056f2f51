"""Where things are on disk."""

from pathlib import Path

__all__ = ("GOLDEN", "ROOT", "SHARED")

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""

SHARED = ROOT.parent / "shared"
"""An optional folder of sample data next to the repository."""

GOLDEN = ROOT / "tests" / "golden"
"""The recorded logs and sessions."""
