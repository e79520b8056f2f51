"""Nodes of an author's tree, and the parts of a loop's id."""

import pytest

from lanebus import UserMessage
from lanebus.bus.messages import NodeTag
from lanebus.bus.wire import encode
from lanebus.handlers.formats.two_lane_agent.codec import TAG_OF, node_text, parse_node_id
from lanebus.messages import TurnId, read_message

__all__ = ()


@pytest.mark.parametrize(
    ("text", "node"),
    [("n7", 7), ("7", 7), ("n0", 0), (f"n{2**64 - 1}", 2**64 - 1), (f"n{2**64}", None)]
    + [(text, None) for text in ("", "n", "nn7", "n-7", "n7 ", "n７", "N7", "7n", "n" + "9" * 5_000)],
)
def test_a_node_id_is_read_with_and_without_its_prefix(text: str, node: int | None) -> None:
    assert parse_node_id(text) == node
    assert node is None or parse_node_id(node_text(node)) == node


def test_a_message_keeps_its_node_and_its_tags() -> None:
    tag = NodeTag(kind=TAG_OF["failure"], text="do not", created_at_turn=2, abandoned_node_ids=(3, 4))
    message = UserMessage.text("x").with_node(5, 2).model_copy(update={"tags": (tag,)})
    assert read_message(encode(message)) == message
    assert b'"nodeId":5,"parentId":2,"tags":[{"kind":"lesson","text":"do not","created_at_turn":2,' in encode(message)
    assert tag.is_decaying
    assert b"node" not in encode(UserMessage.text("x"))
    assert b"tags" not in encode(UserMessage.text("x"))


@pytest.mark.parametrize(
    ("loop", "session", "config"),
    [("s.main.1", "s", "main"), ("s.a.b.2", "s", "a.b"), ("s.1", "s", None), ("s", "s", None), ("", "", None)],
)
def test_a_loop_id_contains_its_session_and_configuration(loop: str, session: str, config: str | None) -> None:
    turn = TurnId(loop_id=loop, turn_index=0)
    assert (turn.session, turn.config_segment) == (session, config)
