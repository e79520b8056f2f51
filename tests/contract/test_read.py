"""The promises of reading, on every server."""

import anyio
import pytest

from lanebus import START, Cursor, Envelope, ExtensionMessage, Lane, Session, SessionHead
from lanebus.errors import LogRolledBack
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.real import AnyServer, RealServer


async def fill(session: Session, count: int) -> None:
    """Publish positions 1 to `count`: one to the LLM lane, two to the other, and so on."""
    for first in range(1, count + 1, 300):
        numbers = range(first, min(first + 300, count + 1))
        await session.publish(*[said(str(n)) if n % 3 == 1 else told(str(n)) for n in numbers])


@pytest.mark.cluster("smoke test of reading in pages")
async def test_pages_are_joined_without_a_seam(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await fill(session, 2_500)
        envelopes = await read(session)
        assert_gap_free(envelopes)
        assert [word(e) for e in envelopes] == [str(n) for n in range(1, 2_501)]
        llm = [e.position async for e in session.read(lanes={Lane.LLM})]
        assert llm == list(range(1, 2_501, 3))
        extension = [e.position async for e in session.read(lanes={Lane.EXTENSION})]
        assert sorted([*llm, *extension]) == list(range(1, 2_501))


@pytest.mark.parametrize(
    ("after", "until"), [(0, 0), (0, 1), (1, 1), (3, 700), (699, 1_300), (1_299, 1_300), (1_300, None)]
)
async def test_a_part_is_read_exactly(shared_valkey: RealServer, after: int, until: int | None) -> None:
    async with shared_valkey.bus() as bus:
        session = bus.session("s")
        await fill(session, 1_300)
        found = [e.position async for e in session.read(after=Cursor(after), until=until)]
        assert found == list(range(after + 1, (1_300 if until is None else until) + 1))


async def test_until_beyond_the_end_is_the_end(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await fill(session, 3)
        assert [e.position async for e in session.read(until=9)] == [1, 2, 3]


async def test_an_empty_session_reads_as_nothing(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        assert await read(session) == []
        assert await session.head() == SessionHead("s", 0, 0.0, 0.0, 0, 0, 0, is_closed=False)


async def test_a_cursor_beyond_the_end_raises(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await fill(session, 3)
        with pytest.raises(LogRolledBack) as caught:
            _ = [e async for e in session.read(after=Cursor(4))]
        assert (caught.value.seen, caught.value.found) == (4, 3)
        with pytest.raises(LogRolledBack):
            _ = [e async for e in session.follow(after=Cursor(4))]


@pytest.mark.cluster("smoke test of reading beside publishing")
@pytest.mark.sentinel("smoke test of reading beside publishing")
async def test_reading_has_no_gap_while_publishing_goes_on(server: AnyServer) -> None:
    async with server.bus() as bus, server.bus() as other, anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def publish() -> None:
            for n in range(250):
                await other.session("s").publish(said(str(n)) if n % 2 else told(str(n)))
            done.set()

        tasks.start_soon(publish)
        while not done.is_set():
            assert_gap_free(await read(bus.session("s")))


@pytest.mark.parametrize("kinds", [None, ["store.*", "told"]])
async def test_what_a_framework_stores_is_read_only_with_the_llm_lane(
    shared_valkey: RealServer, kinds: list[str] | None
) -> None:
    async with shared_valkey.bus() as bus:
        session = bus.session("s")
        await session.publish(ExtensionMessage.of("store.x", "of the model"), told("b"))
        assert [e.position async for e in session.read(lanes={Lane.EXTENSION}, kinds=kinds)] == [2]
        assert [e.position async for e in session.read(kinds=kinds)] == [1, 2]


async def test_an_envelope_has_its_position_time_and_producer(server: AnyServer) -> None:
    async with server.bus() as bus, server.bus() as other:
        await bus.session("s").publish(told("a"))
        await other.session("s").publish(told("b"))
        first, second = await read(bus.session("s"))
        assert first.producer != second.producer
        assert first.time <= second.time
        assert isinstance(first, Envelope)
        assert (first.session, first.lane, first.delta, first.cursor.id) == ("s", Lane.EXTENSION, 0, "1-0")
        assert first.message == ExtensionMessage.of("told", "a")
        assert first.cursor > START
        head = await bus.session("s").head()
        assert (head.created, head.updated) == (first.time, second.time)
        assert head.size_bytes == 2 * len(told("a").to_json())
