"""Where settings come from: environment variables and a settings file. Imports nothing heavy: `--help` needs it too."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

# The environment variables of the command line: which exist, and which settings they set. Imports nothing heavy.
#
# A setting's variable is `LANEBUS_` and its key in capitals, with `__` for each dot: `worker.group` is
# `LANEBUS_WORKER__GROUP`. Some settings have a short variable too.

PREFIX = "LANEBUS_"

CONFIG = "LANEBUS_CONFIG"
"""variable that names the settings file, as `--config` does"""

SHORT: Mapping[str, tuple[str, ...]] = {
    "LANEBUS_TOKEN": ("serve.token",),
    "LANEBUS_READER_TOKEN": ("serve.reader_token",),
    "LANEBUS_MONITOR": ("worker.monitor", "serve.monitor"),
    "LANEBUS_LOG_LEVEL": ("worker.log_level", "serve.log_level"),
    "LANEBUS_LOG_FORMAT": ("worker.log_format", "serve.log_format"),
}
"""keys of the settings that each short variable sets. A long variable, such as LANEBUS_SERVE__TOKEN, has precedence
over the short variable for the same key."""

_BUS = (
    "LANEBUS_URL",
    "LANEBUS_DATA_DIR",
    "LANEBUS_STATE_DIR",
    "LANEBUS_NAMESPACE",
    "LANEBUS_MEDIA",
    "LANEBUS_ARCHIVE",
    "LANEBUS_REDACT",
    "LANEBUS_TRACES",
)

_OTHERS = ("LANEBUS_AGENT", "LANEBUS_SEED", "LANEBUS_SCALE", "LANEBUS_LOOP", "LANEBUS_PAGE", "LANEBUS_PICTURE")
"""variables of docker-compose.yml and of the tests: no settings, and no mistakes"""

_KNOWN = frozenset({CONFIG, *SHORT, *_BUS, *_OTHERS})

_TESTS = "LANEBUS_TEST_"

_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")


def variable_of(key: str) -> str:
    """Return the variable of a setting, such as `LANEBUS_WORKER__GROUP` of `worker.group`."""
    return PREFIX + key.replace(".", "__").upper()


def is_foreign(name: str, value: str) -> bool:
    """Return whether the tests or Kubernetes set a variable. Kubernetes sets variables for a Service named
    `lanebus`."""
    service = _SERVICE.search(name)
    is_of_service = service is not None and service.end() == len(name)
    return name.startswith(_TESTS) or is_of_service or (name.endswith("_PORT") and bool(_SERVICE_URL.match(value)))


def unexplained_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the `LANEBUS_…` variables that are either settings or mistakes. The caller must check which they are.

    Usually the list is empty. Then the caller need not import the settings, which is slow.
    """
    return [
        name
        for name in environment
        if name.startswith(PREFIX) and name not in _KNOWN and not is_foreign(name, environment[name])
    ]


def gives_settings(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable sets a setting of the settings file. Ignores variables that only options read, such as
    LANEBUS_URL."""
    return any(name in SHORT or "__" in name for name in environment if name.startswith(PREFIX))


def short_settings(environment: Mapping[str, str] = os.environ) -> dict[str, dict[str, object]]:
    """Return the settings that short variables set, by table and key as in a settings file. Ignores empty variables."""
    found = dict[str, dict[str, object]]()
    for name, keys in SHORT.items():
        if value := environment.get(name):
            for key in keys:
                section, _, field = key.partition(".")
                found.setdefault(section, {})[field] = value
    return found


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
    """Return the home directory; None if there is none. The root directory is not taken for a home."""
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
