"""Readers that fall behind, leave and return in an order drawn from the seed neither miss nor repeat an entry."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random

import anyio
import pytest

from lanebus import ALL_LANES, START, Bus, Cursor, Envelope, Lane, Session
from tests.support.laws.follower import Tally
from tests.support.laws.tiny import is_tiny, shrink
from tests.support.log.said import assert_gap_free, read, said, told
from tests.support.servers.real import RealServer
from tests.support.suite.scale import randomness

ROUNDS = range(6)

READERS, VISITS, ENTRIES = 12, 6, 600

BUFFER_BYTES = 300
"""a few entries, so that a slow reader falls behind all the time"""

LANES = [ALL_LANES, frozenset({Lane.LLM}), frozenset({Lane.EXTENSION})]


@dataclass
class Visitor:
    """A reader that follows for a while, leaves, and returns with the text of its cursor."""

    lanes: frozenset[Lane]
    text: str = str(START)
    found: list[Envelope] = field(default_factory=list[Envelope])

    async def visit(self, session: Session, random: Random, count: int | None) -> None:
        """Follow until `count` entries arrived, or for ever. Sometimes pause, so that many entries arrive meanwhile."""
        following = session.follow(lanes=self.lanes, after=Cursor.parse(self.text), buffer_bytes=BUFFER_BYTES)
        async with aclosing(following) as entries:
            async for envelope in entries:
                self.found.append(envelope)
                self.text = str(envelope.cursor)
                if count is not None:
                    count -= 1
                    if count == 0:
                        return
                if random.random() < 0.02:
                    for _ in range(random.randrange(200)):
                        await asyncio.sleep(0)


async def _come_and_go(visitor: Visitor, buses: list[Bus], random: Random, last: int) -> None:
    for _ in range(VISITS):
        with anyio.move_on_after(None) as scope:
            if random.random() < 0.3:  # cancel at any await, and not only between two entries
                asyncio.get_running_loop().call_later(random.random() / 20, scope.cancel)
            await visitor.visit(random.choice(buses).session("s"), random, random.randrange(1, 40))
    async with aclosing(buses[0].session("s").follow(lanes=visitor.lanes, after=Cursor.parse(visitor.text))) as rest:
        async for envelope in rest:
            visitor.found.append(envelope)
            if envelope.position >= last:
                return


@pytest.mark.parametrize("number", ROUNDS)
async def test_whoever_comes_and_goes_reads_all_once_and_in_order(valkey: RealServer, number: int) -> None:
    random = randomness("chaos", number)
    tally = Tally()

    async def speak(session: Session) -> None:
        while tally.count < ENTRIES:
            batch = [random.choice((said, told))(f"{tally.count}.{index}") for index in range(random.randrange(1, 9))]
            await session.publish(*batch)
            tally.add(len(batch))

    if is_tiny(number):
        shrink(valkey)
    async with valkey.bus() as bus, valkey.bus() as other:
        visitors = [Visitor(LANES[number % len(LANES)]) for number in range(READERS)]
        async with anyio.create_task_group() as tasks:
            for visitor in visitors:
                tasks.start_soon(_come_and_go, visitor, [bus, other], Random(random.random()), ENTRIES)  # noqa: S311
            tasks.start_soon(speak, bus.session("s"))
            await tally.wait(ENTRIES)
            # A last word in each lane tells every reader when to stop.
            await bus.session("s").publish(said("last"), told("last"), told("last"), said("last"))
        entries = await read(bus.session("s"))
        assert_gap_free(entries)
        for visitor in visitors:
            end = visitor.found[-1].position
            assert visitor.found == [e for e in entries if e.lane in visitor.lanes and e.position <= end]
            assert end >= ENTRIES
