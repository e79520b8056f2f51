"""Install the packages that run in Node into the environment of this Python.

    python -m tests.support.node.install

Nothing is done if they are installed already. Nothing is run while they are installed: none needs a script.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ("installed", "main")

HERE = Path(__file__).parent
LOCK = "package-lock.json"
TARGET = Path(sys.prefix) / "referees"


def installed() -> Path | None:
    """Return the folder that holds `node_modules`; None if the packages that the lock file names are not installed."""
    stamp = TARGET / "stamp"
    return TARGET if stamp.is_file() and stamp.read_text() == _wanted() else None


def main() -> None:
    """Install the packages. Exit with 1 and a line on stderr if they cannot be had."""
    if installed():
        return
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name in ("package.json", LOCK):
        shutil.copy(HERE / name, TARGET)
    command = [str(Path(sys.prefix) / "bin/npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    try:
        subprocess.run(command, cwd=TARGET, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"npm could not install the clients that the tests of UI protocols run: {error}")
    (TARGET / "stamp").write_text(_wanted())


def _wanted() -> str:
    return hashlib.sha256((HERE / LOCK).read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
