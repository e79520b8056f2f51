"""The list of sessions, the most recently changed first."""

from itertools import pairwise

import pytest

from lanebus.bus import Bounds, Bus, CatalogCursor, LogBounds, SessionState
from lanebus.bus.wire import Keys
from lanebus.errors import InvalidCursor
from tests.support.log.said import said
from tests.support.servers.bounded import TINY
from tests.support.servers.real import AnyServer, RealServer
from tests.support.suite.scale import randomness

STATES: tuple[SessionState, ...] = ("any", "open", "closed", "forked", "trimmed", "archived")
FEW = Bounds(log=LogBounds(catalog_notices=3))


async def fill(bus: Bus, seed: str, steps: int = 60) -> None:
    """Publish, fork, close, trim and erase at random, so that sessions change in no order of their names."""
    random = randomness(seed)
    for number in range(steps):
        session = bus.session(f"s{random.randrange(14)}", agent=random.choice(["support", "billing"]))
        head = await session.head()
        if head.is_erased:
            continue
        if not head.position or head.is_closed or number % 3:
            await (session.reopen() if head.is_closed else session.publish(said(str(number))))
        elif number % 4 == 0:
            await session.close()
        elif number % 5 == 0:
            await session.fork(id=f"fork{number}")
        elif number % 7 == 0:
            await session.erase(force=True)
        elif not head.trimmed:
            await session.trim(head.position, force=True)


async def listed(bus: Bus, limit: int, state: SessionState, agent: str | None) -> list[str]:
    """The ids of all pages."""
    found: list[str] = []
    after: CatalogCursor | None = None
    while True:
        page = await bus.catalog.newest(limit, state=state, agent=agent, after=after)
        found += [head.session for head in page.heads]
        if not page.has_more:
            return found
        assert len(page.heads) == limit
        after = CatalogCursor.parse(str(page.cursors[-1]))


@pytest.mark.parametrize("bounds", [None, FEW, TINY], ids=["default", "few notices", "tiny"])
async def test_pages_name_each_session_once_in_the_order_of_changes(server: AnyServer, bounds: Bounds | None) -> None:
    async with server.bus() as bus:
        await fill(bus, "catalog")
    random = randomness("pages")
    async with server.bus(bounds=bounds) as bus:
        everything = [head for head in await bus.catalog.all() if not head.is_erased]
        times = {head.session: head.updated for head in everything}
        for state in STATES:
            for agent in (None, "support"):
                whole = (await bus.catalog.newest(1_000, state=state, agent=agent)).heads
                found = await listed(bus, random.choice([1, 2, 5, 30]), state, agent)
                assert found == [head.session for head in whole]
                assert all(times[one] >= times[other] for one, other in pairwise(found))
        assert await listed(bus, 4, "any", None) == sorted(times, key=lambda name: (-times[name], Keys().head(name)))


@pytest.mark.parametrize("bounds", [None, FEW, TINY], ids=["default", "few notices", "tiny"])
@pytest.mark.parametrize("change", ["publish", "erase"])
async def test_a_change_of_the_last_session_moves_none(server: AnyServer, bounds: Bounds | None, change: str) -> None:
    async with server.bus(bounds=bounds) as bus:
        for number in range(9):
            await bus.session(f"s{number}").publish(said("x"))
        before = [head.session for head in (await bus.catalog.newest(9)).heads]
        first = await bus.catalog.newest(3)
        last = bus.session(first.heads[-1].session)
        await (last.erase() if change == "erase" else last.publish(said("y")))
        found, after = [head.session for head in first.heads], first.cursors[-1]
        while True:
            page = await bus.catalog.newest(2, after=after)
            found += [head.session for head in page.heads]
            if not page.has_more:
                break
            after = page.cursors[-1]
        assert found == before


@pytest.mark.parametrize(
    "text", ["s1", "", "é", "12-0", "W10", "WyJhY3Rpdml0eSIsZmFsc2UsTmFOLCJzMSJd", "WyJhY3Rpdml0eSIsZmFsc2UsLTEsIi4iXQ"]
)
def test_a_text_that_is_no_cursor_of_the_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        CatalogCursor.parse(text)


async def test_the_first_page_is_read_from_the_change_notices_alone(bus: Bus, valkey: RealServer) -> None:
    for number in range(400):  # each bucket has an old notice
        await bus.session(f"s{number}").publish(said("x"))
    await bus.session("s3").fork(id="f")
    for number in range(400):  # the list of sessions, which a whole search would read
        valkey.do("HDEL", Keys().sessions(Keys().bucket(f"s{number}")), f"s{number}")
    valkey.do("XADD", Keys().index(0), "*", "s", "no session", "z", "1")
    valkey.do("XADD", Keys().index(1), "*", "other", "x")
    page = await bus.catalog.newest(3)
    newest, *others = [head.session for head in page.heads]
    assert newest == "f"
    assert {*others} < {"s396", "s397", "s398", "s399"}  # published in one millisecond, perhaps
    assert (page.matching, page.has_more) == (401, True)


async def test_without_notices_all_sessions_are_searched(bus: Bus, valkey: RealServer) -> None:
    for number in range(6):
        await bus.session(f"s{number}").publish(said("x"))
    for bucket in range(bus.buckets):
        valkey.do("DEL", Keys().index(bucket))
    await bus.session("s2").publish(said("y"))
    page = await bus.catalog.newest(2)
    newest, other = [head.session for head in page.heads]
    assert newest == "s2"
    assert other in {"s3", "s4", "s5"}  # published in one millisecond, perhaps
    assert page.matching == 6
