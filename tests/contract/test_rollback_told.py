"""A log restored from an older copy: its producers get the error, however late their next call."""

import anyio
import pytest

from lanebus import Bus, Session
from lanebus.bounds import ConnectionBounds
from lanebus.bus import Bounds
from lanebus.errors import LogRolledBack, OutcomeUnknown
from tests.support.laws.cancelling import Moment, cut
from tests.support.log.said import said, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import RealServer, copied, eventually


async def fill(session: Session, texts: str) -> None:
    for text in texts:
        await session.publish(said(text), seconds=60)


async def test_rollback_found_by_an_expired_publish_is_raised_by_the_next(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url) as bus:
        session = bus.session("s")
        await fill(session, "abcde")
        with copied(process) as restore:
            await fill(session, "fghij")
            way.silence()  # so that it is on its way until its caller gives up
            with pytest.raises(OutcomeUnknown):
                await session.publish(said("k"), seconds=0.5)
            restore()
            way.cut()
        with pytest.raises(LogRolledBack) as caught:
            await session.publish(said("l"), seconds=60)
        assert (caught.value.seen, caught.value.found) == (10, 5)
        assert (await session.publish(said("m"))).position == 6
        assert await words(session) == list("abcdem")


async def test_rollback_whose_caller_is_cancelled_is_raised_by_the_next(process: RealServer) -> None:
    async with process.bus() as bus:
        session = bus.session("s")
        await fill(session, "a")
        process.do("FLUSHALL")
        trial = await cut(lambda: session.publish(said("b"), seconds=60), at=1, moment=Moment.LATE)
        assert trial.is_cancelled
        with pytest.raises(LogRolledBack):
            await session.publish(said("c"), seconds=60)
        assert (await session.publish(said("d"))).position == 1
        assert await words(session) == ["d"]


async def test_rollback_is_raised_once_and_no_later_publish_is_lost(process: RealServer) -> None:
    async with process.bus() as bus:
        session = bus.session("s")
        await fill(session, "abc")
        process.do("FLUSHALL")
        outcomes: dict[str, str] = {}

        async def publish(text: str) -> None:
            try:
                outcomes[text] = str((await session.publish(said(text), seconds=60)).position)
            except LogRolledBack:
                outcomes[text] = "told"

        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(publish, str(number))
        told = [text for text, outcome in outcomes.items() if outcome == "told"]
        assert 1 <= len(told) < 60  # those that shared the append that found it
        assert await words(session) == [str(number) for number in range(60) if str(number) not in told]


async def test_publishes_after_a_rollback_are_not_mistaken_for_late_copies_of_lost_ones(process: RealServer) -> None:
    """Numbers are not reused, though the log has forgotten them."""
    bounds = Bounds(connection=ConnectionBounds(answer_seconds=3.0))  # far longer than the publish waits
    async with proxy(process.socket) as way, Bus.open(way.url, bounds=bounds) as bus:
        session = bus.session("s")
        await fill(session, "abc")
        way.delay()
        with pytest.raises(OutcomeUnknown):
            await session.publish(said("late"), seconds=0.3)
        process.do("FLUSHALL")
        with pytest.raises(LogRolledBack):
            await session.publish(said("d"), seconds=60)
        await fill(session, "efg")
        await way.deliver()
        await fill(session, "hi")
        await eventually(lambda: way.delayed_bytes == 0)
        assert await words(session) == list("efghi")
