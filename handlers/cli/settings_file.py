"""Find the settings file of the command line. Imports nothing heavy: `--help` needs it too."""

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ("FILE_NAME", "VARIABLE", "find_settings_file", "has_nested_variable")

FILE_NAME = "lanebus.toml"
VARIABLE = "LANEBUS_CONFIG"
"""the environment variable that names a settings file, as `--config` does"""


def find_settings_file(folder: Path) -> Path | None:
    """Return the settings file of a folder, or of the nearest parent that has one; None if there is none."""
    return next((path for each in (folder, *folder.parents) if (path := each / FILE_NAME).is_file()), None)


def has_nested_variable(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable such as `LANEBUS_WORKER__GROUP` sets something that no option reads by itself."""
    return any(name.startswith("LANEBUS_") and "__" in name for name in environment)
