"""Given two JSON values, the edits between them lead from the one to the other, and say nothing twice."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.codecs.edits import differences, edited, edits_between
from tests.support.messages.sayings import json_values


@given(json_values, json_values)
def test_edits_lead_from_the_one_value_to_the_other(made: JsonValue, theirs: JsonValue) -> None:
    before = json.dumps(made)
    assert not any(differences(edited(made, edits_between(made, theirs)), theirs))
    assert json.dumps(made) == before


@given(json_values)
def test_a_value_differs_from_itself_in_nothing(value: JsonValue) -> None:
    assert edits_between(value, value) == []


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        (1, True, [()]),
        (1, 1.0, []),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": None}, [("a", 1, "b"), ("c",)]),
        ([1], [1, 2], [()]),
        ({"a": 1}, {}, [("a",)]),
    ],
)
def test_differences_are_told_as_deep_as_can_be(
    one: JsonValue, other: JsonValue, places: list[tuple[str | int, ...]]
) -> None:
    assert list(differences(one, other)) == places


def test_a_long_text_that_moved_is_not_stored_again() -> None:
    data = "A" * 5000
    edits = edits_between({"image": {"data": data}}, {"image": {"more": [{"bytes": data}]}})
    assert len(json.dumps(edits)) < 300
    assert edited({"image": {"data": data}}, edits) == {"image": {"more": [{"bytes": data}]}}


@pytest.mark.parametrize(
    "edits",
    [
        None,
        [1],
        [{}],
        [{"at": 1, "value": 1}],
        [{"at": ["x", "y"], "value": 1}],
        [{"at": ["a", 7], "value": 1}],
        [{"at": ["a", "b"], "value": 1}],
        [{"at": ["b"]}],
        [{"at": ["a"], "from": ["b"]}],
        [{"at": ["a"], "from": ["a", 9]}],
        [{"at": ["a"], "from": 1}],
        [{"at": []}],
    ],
)
def test_edits_of_another_value_are_refused(edits: JsonValue) -> None:
    with pytest.raises(DecodeError):
        edited({"a": [1, 2]}, edits)


@given(json_values, st.lists(st.fixed_dictionaries({"at": st.lists(st.text() | st.integers())})))
def test_no_edits_do_harm(made: JsonValue, edits: list[JsonValue]) -> None:
    with contextlib.suppress(DecodeError):
        edited(made, edits)
