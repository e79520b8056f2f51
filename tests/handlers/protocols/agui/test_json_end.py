"""Any beginning of a JSON text can be made whole: a call that was cut still has arguments that are JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.handlers.protocols.agui.encoder import json_end

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.full
@given(VALUES, st.floats(0, 1), st.booleans(), st.sampled_from([None, 1]))
def test_any_beginning_of_json_has_an_end(value: JsonValue, part: float, ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii, indent=indent)
    start = text[: round(part * len(text))]
    end = json_end(start)
    assert end is not None
    if start.strip():
        json.loads(start + end)


def test_whole_json_needs_no_end() -> None:
    assert json_end('{"a": [1, "}"]}') == ""


@pytest.mark.parametrize("text", ["{]", "{'a'", "nope", '{"a": 1}}'])
def test_what_is_no_json_has_no_end(text: str) -> None:
    assert json_end(text) is None
