"""No case of the folder is passed over."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.support.vectors.cases import CLAIMED, all_cases


@pytest.mark.needs("cases")
def test_every_area_has_its_test() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"tests.vectors.{path.stem}")
    assert {case.area for case in all_cases()} - CLAIMED == set()
    assert len(all_cases()) == len({case.id for case in all_cases()})
