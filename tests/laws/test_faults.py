"""A call under a fault of the network or server ends, with the right answer or an error of the bus, and works again.

Every call of the table runs through a proxy whose connections fail, both alone and while the server refuses commands.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import anyio
import pytest

from lanebus import Bus, BusError, Cursor
from lanebus.archive import DirectoryArchive
from lanebus.bus import Bounds
from lanebus.bus.wire import CLOSED, REOPENED
from tests.support.laws.calls import CALLS, Call, Point
from tests.support.laws.model import TRIMMED
from tests.support.laws.tiny import is_tiny, shrink
from tests.support.log.said import said, told, word
from tests.support.servers.proxy import Proxy, proxy
from tests.support.servers.real import RealServer, one_server


def _impatient(bounds: Bounds) -> Bounds:
    """Return bounds with which a call at a fault ends soon."""
    connection = replace(bounds.connection, answer_seconds=0.3, retrying_seconds=0.3)
    return replace(bounds, connection=connection, publish=replace(bounds.publish, longest_pause_seconds=0.02))


FAULTS: dict[str, Callable[[Proxy], object]] = {
    "none": lambda _: None,
    "cut": Proxy.cut,
    "silent": Proxy.silence,
    "takes nothing": lambda way: way.hole(requests=True),
    "gives nothing": lambda way: way.hole(answers=True),
    "loses answers": lambda way: setattr(way, "lose", 12),
    "late": Proxy.delay,
}

Command = tuple[str, ...]

REFUSALS: dict[str, tuple[Command, Command]] = {
    "none": (("PING",), ("PING",)),
    "OOM": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "NOREPLICAS": (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
    "NOPERM": (("ACL", "SETUSER", "default", "-@write", "-@scripting"), ("ACL", "SETUSER", "default", "+@all")),
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
}
"""error code → the command that makes the server refuse with it, and the command that ends the refusal"""

AT_WORK = frozenset(
    {"work", "ack", "keep", "take", "keep all", "retry", "hand back", "set aside", "leave", "groups", "group status"}
    | {"read dead letters", "show a dead letter", "redrive"}
)
"""calls of a consumer group; each has its own namespace, because they would take each other's work"""

TROUBLES = [
    *(("valkey", fault, "none") for fault in FAULTS if fault != "none"),
    *(
        (kind, fault, refusal)
        for refusal in REFUSALS
        if refusal != "none"
        for kind, fault in (*(("valkey", "none"), ("valkey", "loses answers")), *(("redis", "none"), ("redis", "late")))
    ),
]
"""Servers, faults and refusals. Servers differ in the texts of refusals and in what a script receives."""

TROUBLE_SECONDS = 1.0
"""seconds for which a server refuses and requests are delayed, if calls wait that long"""

END_SECONDS = 60.0
"""seconds after which a call counts as endless, on a machine under load"""


@dataclass
class Ended:
    """The outcome of one call."""

    point: Point
    call: Call
    was_right: bool = False
    error: BaseException | None = None
    kept: set[str] = field(default_factory=set[str])
    """words of the runs that returned; the log must contain them"""

    async def run(self) -> None:
        """Run the call once and keep the error that it raises."""
        first = len(self.point.asked)
        self.was_right, self.error = False, None
        try:
            with anyio.fail_after(END_SECONDS):
                self.was_right = await self.call.run(self.point)
            self.kept.update(self.point.asked[first:])
        except Exception as error:  # noqa: BLE001  which is what is looked at
            self.error = error


@asynccontextmanager
async def _fed(calls: Mapping[str, Ended]) -> AsyncGenerator[None, None]:
    """Publish during the block to the calls that wait for new entries, as far as the server accepts it."""

    async def feed(point: Point) -> None:
        count = 0
        while True:
            count += 1
            with suppress(BusError):
                await point.written.publish(told(f"fed{count}"), seconds=0.2)
            await asyncio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        for each in calls.values():
            if each.call.is_fed:
                tasks.start_soon(feed, each.point)
        yield
        tasks.cancel_scope.cancel()


async def _run_all(calls: Mapping[str, Ended]) -> None:
    async with anyio.create_task_group() as tasks:
        for each in calls.values():
            tasks.start_soon(each.run)


async def _assert_whole(each: Ended) -> None:
    """Check that no acknowledged word is missing, no word is there twice and no position is skipped."""
    written = each.point.written
    head = await written.head()
    if head.is_erased:
        return
    entries = [entry async for entry in written.read(after=Cursor(head.trimmed))]
    assert [entry.position for entry in entries] == list(range(head.trimmed + 1, head.position + 1))
    words = [word(entry) for entry in entries if getattr(entry.message, "kind", "") not in {CLOSED, REOPENED, TRIMMED}]
    mine = [text for text in words if not text.startswith("fed")]
    assert len(set(mine)) == len(mine), "doubled"
    if not head.trimmed:
        assert each.kept <= set(mine), "lost"


@pytest.mark.parametrize(
    ("kind", "fault", "refusal"),
    [
        pytest.param(*trouble, marks=pytest.mark.needs("redis-server") if trouble[0] == "redis" else ())
        for trouble in TROUBLES
    ],
)
async def test_every_call_ends_rightly_or_with_an_error(kind: str, fault: str, refusal: str) -> None:
    with one_server(kind) as server:
        if is_tiny(TROUBLES.index((kind, fault, refusal))):
            shrink(server)
        await _run_through(server, fault, refusal)


async def _run_through(server: RealServer, fault: str, refusal: str) -> None:
    refuse, allow = REFUSALS[refusal]
    bounds = {False: server.bounds, True: _impatient(server.bounds or Bounds())}
    archive = DirectoryArchive(server.directory / "archive")
    async with proxy(server.socket) as way, AsyncExitStack() as stack:

        async def open_buses(namespace: str) -> tuple[Bus, Bus]:
            opened = [
                await stack.enter_async_context(
                    Bus.open(url, namespace=namespace, archive=archive, bounds=bounds[url == way.url])
                )
                for url in (way.url, server.url)
            ]
            await opened[0].session("warm").publish(said("x"))
            return opened[0], opened[1]

        shared = await open_buses("shared")
        calls: dict[str, Ended] = {}
        for number, (name, call) in enumerate(CALLS.items()):
            bus, author = await open_buses(f"n{number}") if name in AT_WORK else shared
            point = Point(server, bus, author, number)
            await point.written.publish(said("a"), told("b"), said("c"), wake=False)
            if call.before is not None:
                await call.before(point)
            calls[name] = Ended(point, call)
        await asyncio.gather(*(each.point.session.head() for each in calls.values()))  # connects, for the fault to hit
        FAULTS[fault](way)
        server.do(*refuse)
        async with _fed(calls), anyio.create_task_group() as tasks:
            tasks.start_soon(_run_all, calls)
            await anyio.sleep(TROUBLE_SECONDS)
            server.do(*allow)
            way.lose = 0
            await way.deliver()
        for name, each in calls.items():
            assert each.error is None or isinstance(each.error, BusError), (name, each.error)
        again = {name: each for name, each in calls.items() if each.error is not None}
        way.fill()
        async with _fed(again):
            await _run_all(again)
        assert {name: each.error for name, each in again.items() if each.error is not None} == {}
        assert [name for name, each in calls.items() if not each.was_right] == []
        for each in calls.values():
            await _assert_whole(each)
