"""The paths and names in ARCHITECTURE.md and docs/contributing.md exist."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

__all__ = ()

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
CONTRIBUTING = ROOT / "docs" / "contributing.md"
TEXT = CONTRIBUTING.read_text()
_PATH = re.compile(r"`((?:bench|bus|clients|docs|examples|handlers|lanebus|tests|\.ci)/(?:[\w./-]*\w)?/?)`")


def paths_in(page: Path) -> list[str]:
    """Return the paths of files and folders that a page names."""
    return sorted({*_PATH.findall(page.read_text())})


PATHS = paths_in(CONTRIBUTING)


@pytest.mark.parametrize(("page", "least"), [(ARCHITECTURE, 50), (CONTRIBUTING, 30)])
def test_paths_are_found_in_the_text(page: Path, least: int) -> None:
    assert len(paths_in(page)) > least


@pytest.mark.parametrize("path", sorted({*paths_in(ARCHITECTURE), *PATHS}))
def test_each_path_of_the_text_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_each_file_is_named_with_its_folder() -> None:
    """Otherwise the test above does not check it."""
    names = re.findall(r"`([\w./-]+\.(?:py|lua|js))`", ARCHITECTURE.read_text() + TEXT)
    assert [name for name in names if "/" not in name and name != "__init__.py"] == []


def test_the_architecture_is_one_page_that_names_every_package() -> None:
    text = ARCHITECTURE.read_text()
    packages = [path.parent for top in ("bus", "handlers") for path in (ROOT / top).glob("*/__init__.py")]
    assert [f"{path.relative_to(ROOT)}/" for path in packages if f"`{path.relative_to(ROOT)}/`" not in text] == []
    assert len(text.splitlines()) <= 110


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(_?[A-Z][A-Z_]+)`", TEXT))))
def test_each_table_of_the_text_is_there(name: str) -> None:
    files = [path for path in map(ROOT.joinpath, PATHS) if path.suffix == ".py"]
    assert any(re.search(rf"^{name}\b", path.read_text(), re.MULTILINE) for path in files)
