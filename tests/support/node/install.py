"""Install the packages that run in Node: other projects' clients, and what builds our own.

    python -m tests.support.node.install

Nothing is done if they are installed already. Nothing is run while they are installed: none needs a script.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

LOCK = "package-lock.json"


class Packages(NamedTuple):
    """Packages that a lock file names."""

    what: str
    source: Path
    """folder of `package.json` and the lock file"""
    target: Path
    """folder of `node_modules`"""

    def installed(self) -> Path | None:
        """Return the folder that holds `node_modules`; None if the packages of the lock file are not installed."""
        return self.target if self._stamp.is_file() and self._stamp.read_text() == self._wanted() else None

    def install(self) -> None:
        """Install the packages if they are missing. Exit with 1 and a line on stderr if they cannot be had."""
        if self.installed():
            return
        shutil.rmtree(self.target / "node_modules", ignore_errors=True)
        if self.target != self.source:
            self.target.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", LOCK):
                shutil.copy(self.source / name, self.target)
        command = [str(Path(sys.prefix) / "bin/npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        try:
            subprocess.run(command, cwd=self.target, check=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            sys.exit(f"npm could not install {self.what}: {error}")
        self._stamp.write_text(self._wanted())

    @property
    def _stamp(self) -> Path:
        return self.target / "node_modules" / "stamp"

    def _wanted(self) -> str:
        return hashlib.sha256((self.source / LOCK).read_bytes()).hexdigest()


REFEREES = Packages(
    "the clients that the tests of UI protocols run", Path(__file__).parent, Path(sys.prefix) / "referees"
)
"""clients of other projects, unmodified"""

CLIENT = Packages("what builds the TypeScript client", ROOT / "clients/ts", ROOT / "clients/ts")
"""what builds and tests our own client"""


def main(*names: str) -> None:
    """Install the named packages, `referees` or `client`; without a name, both."""
    known = {"referees": REFEREES, "client": CLIENT}
    for name in names or known:
        known[name].install()


if __name__ == "__main__":
    main(*sys.argv[1:])
