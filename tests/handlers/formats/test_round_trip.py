"""The patch between two JSON values turns one into the other, and stores no long text twice."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.formats.round_trip import apply_patch, differences, make_patch
from tests.support.messages.sayings import json_values


@given(json_values, json_values)
def test_a_patch_turns_one_value_into_the_other(made: JsonValue, theirs: JsonValue) -> None:
    before = json.dumps(made)
    assert not any(differences(apply_patch(made, make_patch(made, theirs)), theirs))
    assert json.dumps(made) == before


@given(json_values)
def test_the_patch_of_a_value_to_itself_is_empty(value: JsonValue) -> None:
    assert make_patch(value, value) == []


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
def test_differences_are_named_as_deep_as_possible(
    one: JsonValue, other: JsonValue, places: list[tuple[str | int, ...]]
) -> None:
    assert list(differences(one, other)) == places


def test_a_long_text_that_moved_is_not_stored_again() -> None:
    data = "A" * 5000
    edits = make_patch({"image": {"data": data}}, {"image": {"more": [{"bytes": data}]}})
    assert len(json.dumps(edits)) < 300
    assert apply_patch({"image": {"data": data}}, edits) == {"image": {"more": [{"bytes": data}]}}


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
def test_a_patch_of_another_value_is_refused(edits: JsonValue) -> None:
    with pytest.raises(DecodeError):
        apply_patch({"a": [1, 2]}, edits)


@pytest.mark.full
@given(json_values, st.lists(st.fixed_dictionaries({"at": st.lists(st.text() | st.integers())})))
def test_no_patch_raises_anything_but_a_decode_error(made: JsonValue, edits: list[JsonValue]) -> None:
    with contextlib.suppress(DecodeError):
        apply_patch(made, edits)
