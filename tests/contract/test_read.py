"""The promises of reading, on every server."""

import anyio
import pytest

from lanebus import START, Bus, Envelope, ExtensionMessage, Lane, Session, SessionHead
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.real import RealServer


async def fill(session: Session, count: int) -> None:
    """Publish positions 1 to `count`: one to the LLM lane, two to the other, and so on."""
    for first in range(1, count + 1, 300):
        numbers = range(first, min(first + 300, count + 1))
        await session.publish(*[said(str(n)) if n % 3 == 1 else told(str(n)) for n in numbers])


@pytest.mark.cluster("smoke test of reading in pages")
async def test_pages_are_joined_without_a_seam(session: Session) -> None:
    await fill(session, 2_500)
    envelopes = await read(session)
    assert_gap_free(envelopes)
    assert [word(e) for e in envelopes] == [str(n) for n in range(1, 2_501)]
    llm = [e.position async for e in session.read(lanes={Lane.LLM})]
    assert llm == list(range(1, 2_501, 3))
    extension = [e.position async for e in session.read(lanes={Lane.EXTENSION})]
    assert sorted([*llm, *extension]) == list(range(1, 2_501))


async def test_an_empty_session_reads_as_nothing(session: Session) -> None:
    assert await read(session) == []
    assert await session.head() == SessionHead("s", 0, 0.0, 0.0, 0, 0, 0, is_closed=False)


@pytest.mark.cluster("smoke test of reading beside publishing")
@pytest.mark.sentinel("smoke test of reading beside publishing")
async def test_reading_has_no_gap_while_publishing_goes_on(bus: Bus, other: Bus) -> None:
    async with anyio.create_task_group() as tasks:
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


async def test_an_envelope_has_its_position_time_and_producer(bus: Bus, other: Bus) -> None:
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
