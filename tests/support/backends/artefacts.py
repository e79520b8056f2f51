"""Files that referees leave for people, in `build/backends`."""

from pathlib import Path

from tests.support.paths import ROOT

__all__ = ("artefact",)


def artefact(name: str) -> Path:
    """Return the path of a file in `build/backends`, which is created."""
    folder = ROOT / "build" / "backends"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name
