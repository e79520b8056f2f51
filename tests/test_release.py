"""A release: its files, which work beside a user's own `bus` and `handlers`, and the workflow that publishes them."""

import base64
import csv
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from typing import cast

import pytest

from tests.support.paths import ROOT

VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def make_dist(target: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the release's build in a copy of the tree."""
    copied(target, ignored="static" if arguments else "")
    (target / "clients/ts").mkdir(parents=True)
    (target / "clients/ts/node_modules").symlink_to(ROOT / "clients/ts/node_modules")
    command = (sys.executable, str(target / ".ci" / "dist"), *arguments)
    environment = {**os.environ, "GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "o/r"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.needs("client")
def test_wheel_names_what_it_bundles_and_runs_on_its_own(tmp_path: Path) -> None:
    done = make_dist(tmp_path / "tree")
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "tree" / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    place = f"lanebus-{VERSION}.dist-info"
    bill = json.loads(files[f"{place}/sboms/lanebus.cdx.json"])
    assert bill["metadata"]["component"]["version"] == VERSION
    assert {(each["name"], each["licenses"][0]["expression"]) for each in bill["components"]} == {
        ("preact", "MIT"),
        ("htm", "Apache-2.0"),
        ("marked", "MIT AND BSD-3-Clause"),
        ("@speed-highlight/core", "CC0-1.0"),
        ("uplot", "MIT"),
    }
    bundle = {name for name in files if name.startswith("lanebus/handlers/serve/bundle/")}
    assert any(re.search(r"/app/main-[0-9A-Z]{8}\.js$", name) for name in bundle)
    assert "lanebus/handlers/serve/static/app/main.js" in files
    (sdist,) = (tmp_path / "tree" / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        paths = {name.partition("/")[2] for name in archive.getnames()}
    assert "handlers/serve/static/app/main.js" in paths
    assert not [path for path in paths if path.startswith("handlers/serve/bundle")]
    description = files[f"{place}/METADATA"].decode()
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert f"https://git.example/o/r/raw/v{VERSION}/docs/page.png" in links
    assert f"https://git.example/o/r/blob/v{VERSION}/docs/tutorial.md" in links
    assert all(link.startswith("https://") for link in links)
    recorded = {row[0]: row[1] for row in csv.reader(files[f"{place}/RECORD"].decode().splitlines())}
    assert recorded == {
        name: "" if name.endswith("/RECORD") else f"sha256={_digest(data)}" for name, data in files.items()
    }
    installed = tmp_path / "installed"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", str(installed), str(wheel)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(installed), "LANEBUS_DATA_DIR": str(tmp_path / "data")}
    served = "from lanebus.handlers.serve.page import load_page; print(*load_page().assets)"
    for words, wanted in (
        (["-m", "lanebus", "--version"], f"lanebus {VERSION}"),
        (["-m", "lanebus", "demo", "--once"], "391"),
        (["-c", served], "app/main-"),
    ):
        run = [sys.executable, "-P", *words]
        shown = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert wanted in shown.stdout, shown.stderr


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_tag_of_another_version_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    done = make_dist(tmp_path / "tree", "v9.9.9")
    assert done.returncode == 1
    assert (
        done.stderr
        == f"the tag v9.9.9 does not fit version {VERSION} of pyproject.toml: tag v{VERSION}, or change it\n"
    )
    assert not (tmp_path / "tree" / "dist").exists()


def test_version_is_written_in_one_place() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [name for name in listed.stdout.split("\0") if name.endswith((".py", ".toml", ".yml", ".mjs", ".js"))]
    found = [name for name in names if f'"{VERSION}"' in (ROOT / name).read_text(encoding="utf-8")]
    assert found == ["pyproject.toml"] or not names  # an unpacked archive has no list of tracked files


def test_changelog_tells_this_version_first() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == VERSION


def test_workflow_pins_each_action_and_gives_each_job_no_more_than_it_needs() -> None:
    load = cast("Callable[[str], dict[str, dict[str, dict[str, object]]]]", importlib.import_module("yaml").safe_load)
    workflow = load(WORKFLOW.read_text())
    used = re.findall(r"uses: (\S+)", WORKFLOW.read_text())
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in used)
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "build": {"contents": "read"},
        "publish": {"id-token": "write"},
    }
    assert "secrets." not in WORKFLOW.read_text()


# --- the wheel in a project that has its own directories `bus` and `handlers` ---------------------------------------

AGENT = """
import bus, handlers
from lanebus.agent import AgentLoop, OfflineModel

assert bus.OWN and handlers.OWN
agent = AgentLoop(OfflineModel())
"""
CHECK = """
import bus, handlers, agent
import lanebus, lanebus.agent, lanebus.bus.bus, lanebus.handlers.serve.server, lanebus.handlers.cli
from lanebus.handlers.agent.worker.worker import load_agent

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


def copied(target: Path, *, links: bool = True, ignored: str = "") -> Path:
    """Return a copy of the tree to build from. `links=False` makes text files of symbolic links, as zip archives do."""
    ignore = shutil.ignore_patterns("__pycache__", ignored)
    target.mkdir()
    for name in ("bus", "handlers", "lanebus", ".ci"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, target / name)
    for link in () if links else (each for each in (target / "lanebus").iterdir() if each.is_symlink()):
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
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    run(*pip, *alone, str(target), str(source), cwd=target.parent)
    (wheel,) = target.glob("*.whl")
    return wheel


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
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == in_the_tree()
        archive.extractall(installed)  # noqa: S202  # safe: this test built the archive
    declared, files = licences_of(wheel)
    vendored = (ROOT / "handlers" / "serve" / "static" / "vendor").rglob("LICENSE")
    assert files == {"LICENSE", *(str(path.relative_to(ROOT)) for path in vendored)}
    assert set(declared.split(" AND ")) == {"MIT", "Apache-2.0", "BSD-3-Clause", "CC0-1.0"}
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
from bus.session import Session
from handlers.agent.loop import AgentLoop
import bus.messages.message
import lanebus.agent, lanebus.bus.messages.message
assert Bus is lanebus.Bus and Session is lanebus.Session and AgentLoop is lanebus.agent.AgentLoop
assert bus.messages.message is lanebus.bus.messages.message
assert lanebus.bus.messages.message.__spec__.name == "lanebus.bus.messages.message"
"""
    run(sys.executable, "-c", code, cwd=ROOT)
