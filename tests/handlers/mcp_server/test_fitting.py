"""An answer is cut to a number of bytes, and stays usable."""

from pydantic import JsonValue

from lanebus.handlers.mcp_server.fitting import fitted

__all__ = ()


def test_the_cursor_of_a_page_is_not_cut_with_the_texts() -> None:
    cursor = "W" * 300
    sessions: list[JsonValue] = [{"title": "t" * 400} for _ in range(10)]
    found = fitted({"sessions": sessions, "cursor": cursor}, most_bytes=2_000, shortest=20)
    assert found is not None
    assert isinstance(found.value, dict)
    assert found.value["cursor"] == cursor
    assert found.note
