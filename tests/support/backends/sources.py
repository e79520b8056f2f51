"""Unpack the source distributions of other projects, for their own tests and samples.

    python -m tests.support.backends.sources

Versions and hashes are those of .ci/constraints.txt. Nothing is done if all are unpacked already.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.paths import ROOT

__all__ = ("PROJECTS", "main", "source_of")

PROJECTS = ("openai-agents", "mcp", "a2a-sdk")
"""projects whose tests or samples are in no wheel"""

TARGET = Path(sys.prefix) / "sources"


def source_of(project: str) -> Path:
    """Return the folder of a project's source distribution. Raises FileNotFoundError if it was not unpacked."""
    folder = TARGET / _pin(project)[0]
    if not folder.is_dir():
        raise FileNotFoundError(f"{project} is not unpacked: run python -m tests.support.backends.sources")
    return folder


def _pin(project: str) -> tuple[str, str]:
    """Return the name of the folder, and the requirement with its hashes."""
    text = (ROOT / ".ci" / "constraints.txt").read_text()
    found = re.search(rf"^{project}==([^\s;]+)[^\\\n]*(?: \\\n {{4}}--hash=\S+)+\n", text, re.MULTILINE)
    if found is None:
        raise LookupError(f".ci/constraints.txt does not pin {project}")
    return f"{project.replace('-', '_')}-{found[1]}", found[0]


def _unpack(project: str) -> None:
    name, requirement = _pin(project)
    if (TARGET / name).is_dir():
        return
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "asked.txt").write_text(requirement)
        # The metadata are asked of the pinned build backend that is installed, not of one that pip fetches.
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes", "--quiet"]
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
        subprocess.run([*command, "-r", folder / "asked.txt", "-d", folder], check=True, timeout=300)
        shutil.unpack_archive(folder / f"{name}.tar.gz", folder)  # no filter: Python 3.11.2 has none
        TARGET.mkdir(exist_ok=True)
        shutil.move(folder / name, TARGET / name)  # so that a folder that is there is whole


def main() -> None:
    """Unpack what is missing."""
    for project in PROJECTS:
        _unpack(project)


if __name__ == "__main__":
    main()
