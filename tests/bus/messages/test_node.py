"""Ids of the nodes of an author's tree."""

import pytest

from lanebus.handlers.formats.two_lane_agent.codec import node_text, parse_node_id


@pytest.mark.parametrize(
    ("text", "node"),
    [("n7", 7), ("7", 7), ("n0", 0), (f"n{2**64 - 1}", 2**64 - 1), (f"n{2**64}", None)]
    + [(text, None) for text in ("", "n", "nn7", "n-7", "n7 ", "n７", "N7", "7n", "n" + "9" * 5_000)],
)
def test_a_node_id_is_read_with_and_without_its_prefix(text: str, node: int | None) -> None:
    assert parse_node_id(text) == node
    assert node is None or parse_node_id(node_text(node)) == node
