"""A log that lost its end and grew again: every outdated cursor raises, on every server."""

import pytest

from lanebus import Bus, Cursor
from lanebus.bus import Incarnation, SessionHead
from lanebus.errors import LogRolledBack
from tests.support.log.said import said
from tests.support.servers.real import AnyServer


def head(position: int, *incarnations: tuple[str, int]) -> SessionHead:
    return SessionHead(
        "s", position, 0.0, 0.0, 0, 0, 0, is_closed=False, incarnations=tuple(Incarnation(*i) for i in incarnations)
    )


@pytest.mark.parametrize(
    ("cursor", "agreed"),
    [
        (Cursor(0), 0),
        (Cursor(5), 5),
        (Cursor(25), 20),
        (Cursor(10, 0, "a"), 10),
        (Cursor(11, 0, "a"), 10),
        (Cursor(15, 0, "b"), 15),
        (Cursor(20, 3, "b"), 20),
        (Cursor(21, 0, "b"), 20),
        (Cursor(3, 0, "lost"), 0),
    ],
)
def test_a_cursor_is_valid_up_to_the_end_of_its_incarnation(cursor: Cursor, agreed: int) -> None:
    assert head(20, ("a", 0), ("b", 10)).common_position(cursor) == agreed


def test_an_entry_is_of_the_incarnation_that_wrote_it() -> None:
    log = head(20, ("a", 0), ("b", 10))
    assert [log.incarnation_of(position) for position in (0, 1, 10, 11, 20)] == ["", "a", "a", "b", "b"]


@pytest.mark.cluster("smoke test of incarnations")
@pytest.mark.sentinel("smoke test of incarnations")
async def test_a_session_that_vanished_and_came_again_is_another_one(server: AnyServer) -> None:
    async with server.bus() as bus:
        await bus.session("s").publish(said("a"))
        cursor = (await bus.session("s").head()).cursor
    server.do("FLUSHALL")
    async with Bus.open(server.url) as bus:
        await bus.session("s").publish(said("b"), said("c"))
        with pytest.raises(LogRolledBack):
            _ = [e async for e in bus.session("s").read(after=cursor)]
