"""The sample cases of the directory next to the repository, by area. Each is one test, with its own id."""

import json
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, cast

import pytest

from lanebus.bus.errors import BusError
from tests.support.paths import CASES

__all__ = ("CLAIMED", "Case", "Object", "all_cases", "cases")
Object = dict[str, object]
CLAIMED: set[str] = set()
"""the areas that have a test, as far as their modules were imported"""


class Case(NamedTuple):
    """The input and the expected output."""

    id: str
    area: str
    given: Object
    expect: Object


@cache
def all_cases() -> tuple[Case, ...]:
    """Return every case of the directory; empty if it has none."""
    if not CASES.is_file():
        return ()
    found = cast("dict[str, list[Object]]", json.loads(CASES.read_bytes()))["vectors"]
    return tuple(
        Case(str(case["id"]), str(case["area"]), cast("Object", case["input"]), cast("Object", case["expect"]))
        for case in found
    )


def cases(*areas: str, contradicted: Mapping[str, str] | None = None) -> pytest.MarkDecorator:
    """Run the test for each case of these areas, as its argument `case`. It is skipped if there are none.

    Args:
        areas: the areas.
        contradicted: id → why lanebus answers differently. Such a test must fail by a different answer or by an error
            of lanebus. It is broken if it passes or fails in another way.
    """
    CLAIMED.update(areas)
    against = contradicted or {}
    needs = pytest.mark.needs("cases")
    found = [case for case in all_cases() if case.area in areas]
    assert not found or against.keys() <= {case.id for case in found}, "a contradicted case is not there"
    parameters = [
        pytest.param(case, id=case.id, marks=[needs, _contradicts(against[case.id])] if case.id in against else [needs])
        for case in found
    ]
    absent = pytest.param(Case("absent", areas[0], {}, {}), id="-".join(areas), marks=[needs])
    return pytest.mark.parametrize("case", parameters or [absent])


def _contradicts(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=reason, strict=True, raises=(AssertionError, BusError))
