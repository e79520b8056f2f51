"""Seed 001's events come back as they were, by value."""

from typing import cast

import pytest

from tests.support.messages.events_001 import through
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json

__all__ = ()


@cases("event_json")
def test_an_event_comes_back_as_it_was(case: Case) -> None:
    match cast("Json", case.given), case.expect:
        case {"json": dict() as event}, {"variant": variant}:
            found = through([event])
            assert found.written == [event]
            assert event["type"] == variant
            assert found.log or found.live
        case _:
            pytest.fail("no such case")
