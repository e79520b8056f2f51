"""A server that is killed repeatedly: its readers see every acknowledged entry once and in order."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.to_thread import run_sync

from lanebus import ALL_LANES, START, Bounds, Bus, Cursor, Envelope, Lane, Session, Unavailable
from tests.support.laws.follower import Follower, Tally
from tests.support.laws.tiny import LAW_TINY, is_tiny, shrink
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.real import RealServer
from tests.support.suite.scale import count

KILLS = count(20)

BETWEEN = 15
"""least number of acknowledged publishes between two kills of the server"""

PUBLISHERS = 3


class Speaker:
    """Publishes without pause, and notes each word with its acknowledged position."""

    def __init__(self, name: str, tally: Tally) -> None:
        self.name, self._tally = name, tally
        self.places: dict[str, int] = {}

    async def speak(self, session: Session) -> None:
        """Publish until cancelled. One publish is a message in each lane."""
        while True:
            count = len(self.places)
            words = [f"{self.name}.{count}", f"{self.name}.{count + 1}"]
            receipt = await session.publish(said(words[0]), told(words[1]), seconds=60)
            self.places.update(zip(words, receipt.positions, strict=True))
            self._tally.add()


def _check(entries: Sequence[Envelope], speakers: Sequence[Speaker], lanes: frozenset[Lane]) -> None:
    """Check that each acknowledged word is at its position, once, and that each speaker's words are in order."""
    words = [word(entry) for entry in entries]
    assert len(set(words)) == len(words), "doubled"
    places = {word(entry): entry.position for entry in entries}
    assert [entry.position for entry in entries] == sorted(places.values()), "out of order"
    for speaker in speakers:
        for text, position in speaker.places.items():
            is_wanted = (Lane.LLM if int(text.split(".")[1]) % 2 == 0 else Lane.EXTENSION) in lanes
            assert places.get(text) == (position if is_wanted else None), text
        own = [int(text.split(".")[1]) for text in words if text.startswith(speaker.name + ".")]
        assert own == sorted(own)


@asynccontextmanager
async def _dying(server: RealServer, buses: Sequence[Bus]) -> AsyncGenerator[list[Speaker], None]:
    """Run publishers on a server that is killed `KILLS` times. The block starts after their last publish."""
    tally = Tally()
    speakers = [Speaker(f"p{number}", tally) for number in range(PUBLISHERS)]
    async with anyio.create_task_group() as tasks:
        for number, speaker in enumerate(speakers):
            tasks.start_soon(speaker.speak, buses[number % len(buses)].session("s"))
        for _ in range(KILLS):
            await tally.wait(tally.count + BETWEEN)
            server.kill()
            await run_sync(server.start)  # meanwhile all clients here find the server gone
        await tally.wait(tally.count + BETWEEN)
        tasks.cancel_scope.cancel()
    for bus in buses:  # earlier publishes of a bus are in the log before its next one returns
        await bus.session("s").publish(told(f"end{id(bus)}"))
    yield speakers


@pytest.mark.parametrize("lanes", [ALL_LANES, frozenset({Lane.EXTENSION})], ids=["both lanes", "one lane"])
async def test_a_follower_sees_all_of_a_server_that_is_killed_again_and_again(
    valkey: RealServer, lanes: frozenset[Lane]
) -> None:
    if is_tiny(len(lanes)):
        shrink(valkey)
    bounds = valkey.bounds or Bounds()
    async with valkey.bus() as bus, valkey.bus() as other:
        followers = [Follower(each.session("s"), lanes, START) for each in (bus, other)]
        async with _dying(valkey, (bus, other)) as speakers:
            entries = await read(bus.session("s"))
            assert_gap_free(entries)
            _check(entries, speakers, ALL_LANES)
            wanted = [entry for entry in entries if entry.lane in lanes]
            for follower in followers:
                with anyio.fail_after(120):
                    await follower.wait_count(len(wanted))
                assert follower.found == wanted
                _check(follower.found, speakers, lanes)
                await follower.leave()
            head = await bus.session("s").head()
        assert len(head.incarnations) == min(KILLS + 1, bounds.log.incarnations)
        assert len({entry.cursor.incarnation for entry in entries}) >= KILLS


async def test_a_reader_that_comes_back_after_each_death_goes_on_where_it_was(valkey: RealServer) -> None:
    """Each reader continues from the text of its cursor on a new bus, as a reconnecting page does."""
    found, tally, text, visits = list[Envelope](), Tally(), str(START), 0

    async def read_on() -> None:
        nonlocal text, visits
        while True:
            visits += 1
            try:
                async with valkey.bus(bounds=LAW_TINY if is_tiny(visits) else None) as bus:
                    async for envelope in bus.session("s").follow(after=Cursor.parse(text)):
                        found.append(envelope)
                        text = str(envelope.cursor)
                        tally.add()
                        if len(found) % 40 == 0:
                            break
            except Unavailable:
                await asyncio.sleep(0)  # its server is just starting

    async with valkey.bus() as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(read_on)
        async with _dying(valkey, (bus,)) as speakers:
            entries = await read(bus.session("s"))
            await tally.wait(len(entries))
            tasks.cancel_scope.cancel()
        _check(entries, speakers, ALL_LANES)
        assert found == entries
