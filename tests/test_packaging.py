"""The built wheel is complete, and works in a project that has its own directories `bus` and `handlers`."""

import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.support.paths import ROOT

__all__ = ()

BUILT_FROM = ("bus", "handlers", "lanebus", "LICENSE", "README.md", "pyproject.toml")

AGENT = """
import bus, handlers
from lanebus.agent import AgentLoop, OfflineModel

assert bus.OWN and handlers.OWN
agent = AgentLoop(OfflineModel())
"""
CHECK = """
import bus, handlers, agent
import lanebus, lanebus.agent, lanebus.bus.bus, lanebus.handlers.serve.server, lanebus.handlers.cli
from lanebus.handlers.agent.load import load_agent

def test_both_are_there():
    assert bus.OWN and handlers.OWN
    assert lanebus.Bus is lanebus.bus.bus.Bus
    assert load_agent("agent:agent") is agent.agent
    assert type(load_agent("agent.py:agent")) is type(agent.agent)

if __name__ == "__main__":
    test_both_are_there()
    print(lanebus.__file__)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a user's project with an agent, and with packages named like our directories."""
    root = tmp_path / "project"
    for name in ("bus", "handlers"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text("OWN = True\n")
    (root / "agent.py").write_text(AGENT)
    (root / "test_check.py").write_text(CHECK)
    return root


def copied(target: Path, *, links: bool) -> Path:
    """Return a copy of the tree to build from. `links=False` makes text files of symbolic links, as zip archives do."""
    ignore = shutil.ignore_patterns("__pycache__")
    target.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(ROOT / name, target / name)
    if not links:
        for link in (target / "lanebus").iterdir():
            if link.is_symlink():
                text = os.readlink(link)
                link.unlink()
                link.write_text(text)
    return target


def run(*command: str, cwd: Path, path: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, target: Path) -> Path:
    """Build a wheel with the installed packages; no network is needed."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    run(
        *pip,
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(target),
        str(source),
        cwd=target.parent,
    )
    (wheel,) = target.glob("*.whl")
    return wheel


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def licences_of(wheel: Path) -> tuple[str, set[str]]:
    """Return the licence that a wheel declares, and the files of licences that it names."""
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head = message_from_bytes(archive.read(about))
        files = {str(name) for name in head.get_all("License-File", [])}
        assert {f"{about.removesuffix('METADATA')}licenses/{name}" for name in files} <= set(archive.namelist())
        return str(head["License-Expression"]), files


def in_the_tree() -> set[str]:
    """Return the files that a wheel must contain: every module and script, and the files of page and monitor."""
    found = {f"lanebus/{path.name}" for path in (ROOT / "lanebus").iterdir() if path.is_file()}
    for top in ("bus", "handlers"):
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and (path.suffix in {".py", ".lua"} or {"static", "data"} & {*path.parts}):
                found.add(f"lanebus/{path.relative_to(ROOT)}")
    return found - {name for name in found if "__pycache__" in name}


def source_distribution(source: Path, target: Path) -> Path:
    """Build the source distribution and unpack it."""
    target.mkdir()
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(target)!r})"
    run(sys.executable, "-c", code, cwd=source)
    (archive,) = target.glob("*.tar.gz")
    run(sys.executable, "-m", "tarfile", "--extract", str(archive), str(target), cwd=target)
    (unpacked,) = (path for path in target.iterdir() if path.is_dir())
    return unpacked


@pytest.mark.full
@pytest.mark.parametrize("kind", ["checkout", "without links", "source distribution"])
def test_wheel_holds_every_module_under_lanebus_and_works_in_a_project_with_a_bus_of_its_own(
    kind: str, project: Path, tmp_path: Path
) -> None:
    source = copied(tmp_path / "source", links=kind != "without links")
    if kind == "source distribution":
        source = source_distribution(source, tmp_path / "unpacked")
    wheel = build(source, tmp_path / "wheels")
    assert contents(wheel) == in_the_tree()
    declared, files = licences_of(wheel)
    vendored = (ROOT / "handlers" / "serve" / "static" / "vendor").rglob("LICENSE")
    assert files == {"LICENSE", *(str(path.relative_to(ROOT)) for path in vendored)}
    assert set(declared.split(" AND ")) == {"MIT", "Apache-2.0", "BSD-3-Clause", "CC0-1.0"}
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)  # safe: this test built the archive
    assert str(installed) in run(sys.executable, "test_check.py", cwd=project, path=installed)
    run(sys.executable, "-m", "test_check", cwd=project, path=installed)
    run(sys.executable, "-m", "lanebus", "worker", "--help", cwd=project, path=installed)
    assert "alert: LanebusProcessDown" in run(sys.executable, "-m", "lanebus", "alerts", cwd=project, path=installed)


@pytest.mark.full
def test_editable_install_works_in_a_project_with_a_bus_of_its_own(project: Path) -> None:
    run(sys.executable, "test_check.py", cwd=project)
    run(sys.executable, "-m", "test_check", cwd=project)
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", "-p", "no:cacheprovider", cwd=project)


@pytest.mark.full
def test_folders_of_a_checkout_are_the_modules_of_lanebus() -> None:
    code = """
import bus, lanebus
from bus import Bus
from bus.session.session import Session
from handlers.agent.loop import AgentLoop
import bus.messages.message
import lanebus.agent, lanebus.bus.messages.message
assert Bus is lanebus.Bus and Session is lanebus.Session and AgentLoop is lanebus.agent.AgentLoop
assert bus.messages.message is lanebus.bus.messages.message
assert lanebus.bus.messages.message.__spec__.name == "lanebus.bus.messages.message"
"""
    run(sys.executable, "-c", code, cwd=ROOT)
