"""Find the settings file of the command line. Imports nothing heavy: `--help` needs it too."""

from pathlib import Path

__all__ = ("FILE_NAME", "find_settings_file")

FILE_NAME = "lanebus.toml"


def find_settings_file(folder: Path) -> Path | None:
    """Return the settings file of a folder, or of the nearest parent that has one; None if there is none."""
    return next((path for each in (folder, *folder.parents) if (path := each / FILE_NAME).is_file()), None)
