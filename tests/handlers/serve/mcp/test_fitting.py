"""An answer is cut to a number of bytes, and stays usable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.handlers.context import cut_text
from lanebus.handlers.serve.mcp import server
from lanebus.handlers.serve.mcp.server import fitted


def test_the_cursor_of_a_page_is_not_cut_with_the_texts() -> None:
    cursor = "W" * 300
    sessions: list[JsonValue] = [{"title": "t" * 400} for _ in range(10)]
    found = fitted({"sessions": sessions, "cursor": cursor}, most_bytes=2_000, shortest=20)
    assert found is not None
    assert isinstance(found.value, dict)
    assert found.value["cursor"] == cursor
    assert found.note


def test_an_answer_that_fits_at_no_length_is_not_written_anew_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[JsonValue] = [{"text": "short" if number % 10 else "long" * 20} for number in range(110)]
    written = list[JsonValue]()

    def counted(value: JsonValue) -> str:
        written.append(value)
        return json.dumps(value)

    monkeypatch.setattr(server, "json_text", counted)
    assert fitted({"entries": entries}, most_bytes=1_000, shortest=20) is None
    assert sum(isinstance(each, dict) for each in written) == 1


@given(
    texts=st.lists(st.text(max_size=200), min_size=1, max_size=20),
    most=st.integers(50, 4_000),
    shortest=st.integers(1, 50),
)
def test_the_longest_texts_that_fit_are_kept(texts: list[str], most: int, shortest: int) -> None:
    value: JsonValue = {"texts": [*texts]}
    found, length = fitted(value, most_bytes=most, shortest=shortest), most
    wanted: JsonValue = value
    while len(server.json_text(wanted).encode()) > most:
        if length <= shortest:
            assert found is None
            return
        length = max(length // 2, shortest)
        cut = [each if len(each) <= length else f"{cut_text(each, length)}… [{len(each)} characters]" for each in texts]
        wanted = {"texts": [*cut]}
    assert found is not None
    assert found.value == wanted
