"""Find the settings file of the command line. Imports nothing heavy: `--help` needs it too."""

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ("FILE_NAME", "find_settings_file")

FILE_NAME = "lanebus.toml"


def find_settings_file(folder: Path) -> Path | None:
    """Return the settings file of a folder, or of the nearest parent that has one; None if there is none.

    The search ends at the root of the repository or at the home directory. Outside of both, only the folder itself is
    looked into: other users can write to some parents, such as /tmp.
    """
    return next((path for each in _searched(folder) if os.path.lexists(path := each / FILE_NAME)), None)


def _searched(folder: Path) -> Sequence[Path]:
    within, home = (folder, *folder.parents), _home()
    end = next((index for index, each in enumerate(within) if each == home or _is_repository(each)), 0)
    return within[: end + 1]


def _home() -> Path | None:
    """Return the home directory; None if there is none. The root directory is nobody's home."""
    try:
        home = Path("~").expanduser().resolve()
    except (OSError, RuntimeError):
        return None
    return None if home == home.parent else home


def _is_repository(folder: Path) -> bool:
    """Return whether a folder is the root of a repository that this user or root made."""
    try:
        owner = (folder / ".git").lstat().st_uid
    except OSError:
        return False
    return os.name != "posix" or owner in {os.geteuid(), 0}
