"""The page as a wheel has it: bundled.

LANEBUS_PAGE=bundle pytest tests/handlers/serve/page/test_page_opening.py  each server of the process serves the bundle
async def test_x(bundled_page: Path): ...                              those of one test
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def make_bundle(target: Path) -> Path:
    """Bundle the page into a new folder. Return the folder."""
    command = (sys.executable, str(ROOT / ".ci" / "bundle"), str(target))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="session")
def built_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("page") / "bundle")


@pytest.fixture
def bundled_page(built_page: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the bundle, which the servers of this process serve during the test."""
    monkeypatch.setattr("lanebus.handlers.serve.page.page_folder", lambda: built_page)
    return built_page


@pytest.fixture(autouse=True)
def _page_of_the_run(request: pytest.FixtureRequest) -> None:
    if os.environ.get("LANEBUS_PAGE") == "bundle":
        request.getfixturevalue("bundled_page")
