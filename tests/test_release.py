"""A release: its files, the components that they bundle, and the workflow that publishes them."""

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
from pathlib import Path
from typing import cast

import pytest

from tests.support.paths import ROOT

__all__ = ()

VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def make_dist(target: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the release's build in a copy of the tree."""
    ignore = shutil.ignore_patterns("__pycache__", "static" if arguments else "")
    target.mkdir()
    for name in ("bus", "handlers", "lanebus", ".ci"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, target / name)
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
