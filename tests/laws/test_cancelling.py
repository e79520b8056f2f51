"""A call that is cancelled at any suspension ends as cancelled and leaves no resource open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lanebus import Bounds, Bus, Cursor, Envelope, ExtensionMessage
from lanebus.bus import server_status
from lanebus.bus.wire import CLOSED, REOPENED
from tests.support.laws.calls import BUSES, CALLS, KEPT, MUTANTS, Call, Point, open_bus
from tests.support.laws.cancelling import Moment, Trial, cut
from tests.support.laws.model import TRIMMED
from tests.support.laws.rest import Watch, watching
from tests.support.laws.tiny import LAW_TINY, is_tiny, shrink
from tests.support.log.said import assert_gap_free, read, said, told, word
from tests.support.servers.real import RealServer, eventually, shortly
from tests.support.suite.scale import SCALE, SEED

MOST = 400
"""Largest number of suspensions of one call; a call with more counts as endless."""


EVERY = 1 if SCALE >= 1 else len(Moment)
"""One in `EVERY` suspensions is cut at each moment, so every suspension is cut at one moment or at all of them."""


def _places(moment: Moment, every: int = EVERY) -> range:
    """Return the suspensions at which a call is cut with this moment."""
    return range(1 + (list(Moment).index(moment) + SEED) % every, MOST, every)


class Bench:
    """Creates points on a server, and cuts a call at each of its suspensions there."""

    def __init__(self, server: RealServer, author: Bus, watch: Watch) -> None:
        self.server, self.author, self.watch = server, author, watch
        self.points = 0
        """number of points that a call was cut at"""
        self._number = self._fed_count = 0

    async def point(self, bus: Bus, call: Call) -> Point:
        if call.is_of_all:
            await self.author.session(f"p{self._number}").erase()
        self._number += 1
        point = Point(self.server, bus, self.author, self._number)
        await point.written.publish(said("a"), told("b"), said("c"), wake=False)
        if call.before is not None:
            await call.before(point)
        self.watch.begin()
        return point

    async def trial(self, point: Point, call: Call, at: int, moment: Moment) -> Trial[bool]:
        async with self._fed(point) if call.is_fed else AsyncExitStack():
            trial = await cut(lambda: call.run(point), at=at, moment=moment)
        assert trial.is_honest, trial
        assert all(trial.results), "a wrong answer"
        self.points += trial.is_cut
        return trial

    @asynccontextmanager
    async def _fed(self, point: Point) -> AsyncGenerator[None, None]:
        """Publish to the point's session during the block."""

        async def feed() -> None:
            while True:
                self._fed_count += 1
                await point.written.publish(told(f"fed{self._fed_count}"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed)
            yield
            tasks.cancel_scope.cancel()

    async def check(self, point: Point, call: Call, bus: Bus) -> None:
        """Check that the cut call left nothing open, and that the next calls get their own answers."""
        await eventually(lambda: self.watch.leaks == [])
        first = len(point.asked)
        async with shortly(), self._fed(point) if call.is_fed else AsyncExitStack():
            assert await call.run(point), "a wrong answer after a cut"
        landmarks = [bus.session(f"landmark{size}") for size in (1, 2, 3)]
        async with shortly():
            heads = await asyncio.gather(*(session.head() for session in landmarks))
            found = await asyncio.gather(*(read(session) for session in landmarks))
        assert [head.position for head in heads] == [1, 2, 3]
        assert [[word(entry) for entry in entries] for entries in found] == [["1"], ["1", "2"], ["1", "2", "3"]]
        head = await point.written.head()
        if head.is_erased:
            return
        entries = [entry async for entry in point.written.read(after=Cursor(head.trimmed))]
        assert [entry.position for entry in entries] == list(range(head.first_kept, head.position + 1))
        words = [_note_kind(entry) or word(entry) for entry in entries]
        assert len(set(words)) == len(words), "doubled"
        assert set(point.asked[first:]) <= set(words), "lost"


def _note_kind(entry: Envelope) -> str | None:
    """Return the kind of a note that the bus itself appends."""
    kind = entry.message.kind if isinstance(entry.message, ExtensionMessage) else None
    return kind if kind in {CLOSED, REOPENED, TRIMMED} else None


@asynccontextmanager
async def _bench(server: RealServer) -> AsyncGenerator[Bench, None]:
    with watching(server) as watch:
        async with open_bus(server) as author:
            for size in (1, 2, 3):
                for text in range(size):
                    await author.session(f"landmark{size}").publish(told(str(text + 1)))
            yield Bench(server, author, watch)
        await eventually(lambda: watch.connections == 0)


async def _cut_everywhere(bench: Bench, call: Call, moment: Moment, bus: Bus | None, every: int = EVERY) -> None:
    """Cut a call at each suspension, or at one in `every`. With `bus=None`, each cut is on a new bus."""
    most = bench.watch.unclaimed  # connections of the hubs that exist now
    for at in _places(moment, every):
        async with AsyncExitStack() as stack:
            used = await stack.enter_async_context(open_bus(bench.server)) if bus is None else bus
            point = await bench.point(used, call)
            trial = await bench.trial(point, call, at, moment)
            await bench.check(point, call, used)
        await eventually(lambda: bench.watch.unclaimed <= most)
        if not trial.is_cut:
            return
    raise AssertionError(f"more than {MOST} suspensions")


async def _cut_warm(server: RealServer, call: Call, every: int = EVERY) -> None:
    async with _bench(server) as bench, open_bus(server) as bus:
        await bench.check(await bench.point(bus, call), call, bus)
        for moment in Moment:
            await _cut_everywhere(bench, call, moment, bus, every)
        assert bench.points >= len(Moment) // every


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_cut_on_a_warm_bus_leaves_nothing_behind(valkey: RealServer, name: str) -> None:
    if is_tiny(list(CALLS).index(name)):
        shrink(valkey)
    await _cut_warm(valkey, CALLS[name])


@pytest.mark.parametrize("name", CALLS)
async def test_the_first_call_of_a_bus_that_is_cut_leaves_nothing_behind(valkey: RealServer, name: str) -> None:
    if not is_tiny(list(CALLS).index(name)):
        shrink(valkey)
    call = CALLS[name]
    async with _bench(valkey) as bench:
        for moment in Moment:
            await _cut_everywhere(bench, call, moment, None)
        assert bench.points >= len(Moment) // EVERY


@pytest.mark.parametrize("call", BUSES.values(), ids=BUSES.keys())
async def test_a_bus_that_is_cut_while_it_opens_works_or_closes_leaves_nothing_behind(
    valkey: RealServer, call: Call
) -> None:
    async with _bench(valkey) as bench:
        for number, moment in enumerate(Moment):
            valkey.bounds = LAW_TINY if is_tiny(number) else None
            await _cut_everywhere(bench, call, moment, bench.author)
        assert bench.points >= 10 * len(Moment) // EVERY


@pytest.mark.full
@pytest.mark.parametrize("call", MUTANTS.values(), ids=MUTANTS.keys())
async def test_a_call_with_a_fault_is_found(valkey: RealServer, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _bench(valkey) as bench, open_bus(valkey) as bus:
        await bench.check(await bench.point(bus, call), call, bus)  # a call that is not cut leaves nothing open
    monkeypatch.setattr("tests.support.servers.real.DEADLINE", 0.5)
    with pytest.raises((AssertionError, TimeoutError)):
        await _cut_warm(valkey, call, every=1)
    while KEPT:
        await KEPT.pop().close()


async def test_an_embedded_server_that_is_cut_while_it_starts_or_ends_leaves_nothing_behind(short_dir: Path) -> None:
    said_words: list[str] = []
    bounds: Bounds | None = None

    async def call() -> bool:
        async with Bus.open(data_dir=short_dir, bounds=bounds) as bus:
            said_words.append(str(len(said_words)))
            receipt = await bus.session("s").publish(told(said_words[-1]))
            return (await bus.session("s").head()).position == receipt.position

    points = 0
    for number, moment in enumerate(Moment):
        bounds = LAW_TINY if is_tiny(number) else None
        for at in _places(moment):
            trial = await cut(call, at=at, moment=moment)
            assert trial.is_honest, trial
            async with shortly():
                while (await server_status(short_dir)).running:  # noqa: ASYNC110  another process
                    await anyio.sleep(0.005)
            if not trial.is_cut:
                break
            points += 1
    assert points >= 20 * len(Moment) // EVERY
    assert asyncio.all_tasks() == {asyncio.current_task()}
    async with Bus.open(data_dir=short_dir) as bus:
        entries = await read(bus.session("s"))
    assert_gap_free(entries)
    assert len({word(entry) for entry in entries}) == len(entries)
