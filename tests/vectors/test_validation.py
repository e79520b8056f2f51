"""Seed 004's parts that lack what their kind needs."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.codecs import UNIVERSAL_CLIENT
from tests.support.vectors.cases import Case, cases


def _part(case: Case) -> JsonValue:
    given = cast("dict[str, JsonValue]", case.given)
    match given:
        case {"part": part}:
            return part
        case {"image": image}:
            return {"kind": "image", "image": image}
        case _:
            pytest.fail("no such case")


@cases("validation")
def test_a_part_without_what_its_kind_needs_is_refused(case: Case) -> None:
    assert case.expect == {"error": True}
    with pytest.raises(DecodeError) as caught:
        UNIVERSAL_CLIENT.read({"role": "assistant", "content": [_part(case)]})
    assert caught.value.path.startswith("content.0.")
