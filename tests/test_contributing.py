"""The paths and names in docs/contributing.md exist."""

import re

import pytest

from tests.support.paths import ROOT

__all__ = ()

TEXT = (ROOT / "docs" / "contributing.md").read_text()
PATHS = sorted(set(re.findall(r"`((?:bus|handlers|lanebus|tests)/[\w/]+(?:\.\w+|/))`", TEXT)))


def test_paths_are_found_in_the_text() -> None:
    assert len(PATHS) > 15


@pytest.mark.parametrize("path", PATHS)
def test_each_path_of_the_text_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(_?[A-Z][A-Z_]+)`", TEXT))))
def test_each_table_of_the_text_is_there(name: str) -> None:
    files = [path for path in map(ROOT.joinpath, PATHS) if path.suffix == ".py"]
    assert any(re.search(rf"^{name}\b", path.read_text(), re.MULTILINE) for path in files)
