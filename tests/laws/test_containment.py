"""One session's damage stays in it: each field of each key is damaged, and the other sessions go on.

A trial has a damaged session for each of `VALUES`, all in one bucket with a healthy session. In each of them the same
place is damaged, with another value. A call about a damaged session succeeds or raises a `BusError`. A call about the
healthy session, or about all sessions, succeeds, and a worker answers the healthy session.
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import pytest

from lanebus import Bounds, Bus, BusError, ExtensionMessage, Lane, Limits, UserMessage
from lanebus.archive import DirectoryArchive
from lanebus.bounds import HubBounds, WorkBounds
from lanebus.bus.messages import Delta
from lanebus.bus.wire import Keys
from lanebus.handlers.agent import Worker, demo_agent
from lanebus.handlers.projections import projection
from lanebus.handlers.serve import Watcher
from lanebus.handlers.serve.session_index import SessionIndex
from lanebus.projections import project, project_all
from tests.support.servers.real import DEADLINE, RealServer, eventually
from tests.support.servers.resp import Resp

VALUES = {
    "missing": None,
    "empty": "",
    "bytes": "\udcff\udcfe",
    "inf": "inf",
    "float": "1.5",
    "huge": "9" * 30,
    "endless": "9" * 5_000,
    "answers": "1 1 x|2 y",
}
"""what a damaged place holds, by name; None deletes the place"""

HEALTHY, DAMAGED = "healthy", {f"d-{name}": value for name, value in VALUES.items()}
KEYS, AGENT, GROUP = Keys(buckets=1), "agent", "agents"

HEAD = (
    *("position", "bytes", "created", "updated", "state", "run", "incarnation", "incarnations", "trimmed"),
    *("last_llm", "last_ext", "lost", "ends", "trimmed_proof", "trimmed_llm", "trimmed_ext", "trimmed_by"),
    *("trim", "archived", "archive", "parent", "fork", "owner", "epoch", "lease_until", "lease_ms", "wanted"),
    *("rests_until", "rest_ms", "agent", "assigned", "g:agents", "p:", "producers", "floor", "live", "live_by"),
)
"""fields of a head; "p:" stands for those of all producers"""

SHARED = (
    *((KEYS.sessions(0), name) for name in (":bytes", ":agents")),
    *((KEYS.woken(0), name) for name in (":last", ":run", ":hinted")),
    *((KEYS.groups(0), name) for name in (f"{AGENT}:{GROUP}", f"{AGENT}:{GROUP}:clock", f":dropped:{GROUP}")),
    *((KEYS.media_sizes(), ":bytes"), (KEYS.consumers(GROUP), ":seen")),
)
"""fields that all sessions of a bucket share"""

Damage = Callable[[Resp, str, str | None], None]
"""damages a place of one session"""


@projection("texts", version=1, initial=0, forked=0)
def texts(count: int, _: UserMessage) -> int:
    return count + 1


def _hash(key: Callable[[str], str], name: Callable[[str], str]) -> Damage:
    """Damage a field of a hash."""

    def damage(say: Resp, session: str, value: str | None) -> None:
        fields = [name(session)]
        if fields == ["p:"]:
            stored = say("HKEYS", key(session))
            assert isinstance(stored, list)
            fields = [str(each) for each in stored if str(each).startswith("p:")]
        for each in fields:
            if value is None:
                say("HDEL", key(session), each)
            else:
                say("HSET", key(session), each, value)

    return damage


def _fields(key: Callable[[str], str], *names: str) -> Damage:
    """Add fields with damaged names or values to a hash that many sessions share."""

    def damage(say: Resp, session: str, value: str | None) -> None:
        if value is not None:
            for each in (value, session, *(f"{name}:{session}" for name in names), *(f"{value}:{x}" for x in names)):
                say("HSET", key(session), each, value)

    return damage


def _scores(key: Callable[[str], str]) -> Damage:
    """Damage a score of a sorted set, and add members with damaged names."""

    def damage(say: Resp, session: str, value: str | None) -> None:
        if value is None:
            say("ZREM", key(session), session)
            return
        for score, member in ((value, session), ("5", value), (value, value)):
            say.send("ZADD", key(session), score, member)

    return damage


def _entries(key: Callable[[str], str], *names: str) -> Damage:
    """Add damaged entries to a stream; delete it if the value is None."""

    def damage(say: Resp, session: str, value: str | None) -> None:
        if value is None:
            say("DEL", key(session))
            return
        own = [word for name in names for word in (name, session if name == "s" else value)]
        for fields in (own, [value, value], [word for name in names for word in (name, value)]):
            say.send("XADD", key(session), "*", *fields)

    return damage


def _key(key: Callable[[str], str]) -> Damage:
    """Replace a key by one of another type; delete it if the value is None."""

    def damage(say: Resp, session: str, value: str | None) -> None:
        say("DEL", key(session))
        if value is not None:
            say("SET", key(session), value)

    return damage


OWN: Mapping[str, Callable[[str], str]] = {
    "head": KEYS.head,
    "llm": partial(KEYS.lane, lane=Lane.LLM),
    "ext": partial(KEYS.lane, lane=Lane.EXTENSION),
    "live": KEYS.live,
    "keys": KEYS.caller_keys,
    "projection": partial(KEYS.projection, name="texts", version=1),
    "checkpoints": KEYS.checkpoints,
    "archive": KEYS.archive,
}
"""the keys of one session"""


def _named(name: str, _: str) -> str:
    return name


PLACES: Mapping[str, Damage] = {
    **{f"head {name}": _hash(KEYS.head, partial(_named, name)) for name in HEAD},
    **{f"key {name}": _key(key) for name, key in OWN.items()},
    "keys": _hash(KEYS.caller_keys, lambda _: "k"),
    **{
        f"projection {name}": _hash(OWN["projection"], partial(_named, name))
        for name in ("state", "position", "incarnation", "proof")
    },
    "checkpoint of a reader": _hash(KEYS.checkpoints, lambda _: "r:reader"),
    "checkpoint of a projection": _hash(KEYS.checkpoints, lambda _: "p:texts@1"),
    "checkpoint of a fork": _hash(KEYS.checkpoints, lambda session: f"f:{session}-fork"),
    "archive": _scores(KEYS.archive),
    "sessions": _hash(lambda _: KEYS.sessions(0), lambda session: session),
    "woken": _hash(lambda _: KEYS.woken(0), lambda session: session),
    "open": _hash(lambda _: KEYS.open(0, AGENT, GROUP), lambda session: session),
    "order": _scores(lambda _: KEYS.order(0, AGENT)),
    "due": _scores(lambda _: KEYS.due(0, AGENT, GROUP)),
    "llm": _entries(OWN["llm"], "h", "m"),
    "ext": _entries(OWN["ext"], "h", "m"),
    "live": _entries(KEYS.live, "h", "m"),
    "index": _entries(lambda _: KEYS.index(0), "s", "z"),
    "wake-ups": _entries(lambda _: KEYS.wake_ups(0), "s", "z", "n", "a"),
    "dead": _entries(lambda _: KEYS.dead(0, GROUP), "s", "z", "n", "r", "t", "w", "b", "l"),
    "forged": _entries(lambda _: KEYS.forged(0), "s", "lane", "id"),
    "live index": _entries(lambda _: KEYS.live_index(0), "s"),
    "consumers": _fields(lambda _: KEYS.consumers(GROUP)),
    "groups": _fields(lambda _: KEYS.groups(0), AGENT),
    "names of sessions": _fields(lambda _: KEYS.sessions(0)),
}

BOUNDS = Bounds(hub=HubBounds(block_seconds=0.2), work=WorkBounds(sweep_seconds=0.2))


@dataclass
class Trial:
    """Uses the sessions of a bus, and notes what must not happen."""

    bus: Bus
    faults: list[str] = field(default_factory=list[str])
    answers: int = 0
    """how many loops of the healthy session have ended"""

    def __post_init__(self) -> None:
        self._index, self._watcher = SessionIndex(self.bus), Watcher(self.bus)

    async def attempt(
        self, what: str, call: Awaitable[object], *allowed: type[Exception], seconds: float = DEADLINE
    ) -> None:
        try:
            with anyio.fail_after(seconds):
                await call
        except allowed:
            pass
        except Exception as error:  # noqa: BLE001  # all faults of a trial are reported together
            self.faults.append(f"{what}: {type(error).__name__}: {error}")

    async def follow(self, name: str) -> None:
        async for envelope in self.bus.session(name).follow(live=True):
            if name == HEALTHY and isinstance(envelope.message, ExtensionMessage):
                self.answers += envelope.message.kind == "agent.ended"

    async def talk(self) -> None:
        """Publish to all sessions at the same time, and wait until the healthy one is answered."""
        before = self.answers
        async with anyio.create_task_group() as tasks:
            for name in DAMAGED:
                publish = self.bus.session(name).publish(UserMessage.text("?"), seconds=5)
                tasks.start_soon(self.attempt, f"publish {name}", publish, BusError)
            tasks.start_soon(
                self.attempt, "publish", self.bus.session(HEALTHY).publish(UserMessage.text("?"), seconds=DEADLINE)
            )
        await self.attempt("answer", eventually(lambda: self.answers > before))

    async def use_bus(self) -> None:
        """Read about all sessions."""
        bus, named = self.bus, [HEALTHY, *DAMAGED]
        await self.attempt("sessions", bus.sessions())
        for state in ("any", "open", "closed", "forked", "trimmed", "archived"):
            await self.attempt(f"newest {state}", bus.catalog.newest(3, state=state))
        await self.attempt("names", bus.catalog.names("d", 5))
        for call in (bus.activity, bus.agents, bus.groups, bus.live_workers, bus.unfetched_work):
            await self.attempt(call.__name__, call())
        await self.attempt("group_status", bus.group_status(GROUP))
        await self.attempt("lease_status", bus.lease_status(named))
        await self.attempt("dead letters", bus.dead_letters(GROUP).count())
        await self.attempt("dropped letters", bus.dead_letters(GROUP).dropped())
        await self.attempt("size", bus.log.size_bytes())
        await self.attempt("index", self._index.refresh())
        await self.attempt("look", self._watcher.look())
        await self.attempt("project_all", project_all(bus, texts, int.__add__))

    async def use_damaged(self, name: str) -> None:
        """Call all methods of a damaged session."""
        session = self.bus.session(name)
        cursor = (await self.bus.session(HEALTHY).head()).cursor

        async def read(**options: object) -> None:
            async for _ in session.read(**options):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
                pass

        async def check() -> None:
            async for _ in session.check_archive():
                pass

        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "head": session.head,
            "read": read,
            "read llm": partial(read, lanes={Lane.LLM}),
            "read after": partial(read, after=cursor),
            "open messages": session.open_messages,
            "preview": lambda: session.preview(Delta(kind="text", message_id="m", delta="lo")),
            "checkpoints": session.checkpoints,
            "load checkpoint": lambda: session.load_checkpoint("reader"),
            "save checkpoint": lambda: session.save_checkpoint("reader", "3"),
            "project": lambda: project(session, texts),
            "lease": lambda: session.acquire_lease("somebody", 0.001),
            "fork": session.fork,
            "fork again": lambda: session.fork(id=f"{name}-fork"),
            "archive": session.archive,
            "check archive": check,
            "trim": lambda: session.trim(3),
            "close": session.close,
            "reopen": session.reopen,
            "publish with a key": lambda: session.publish(UserMessage.text("first"), key="k"),
            "publish expecting": lambda: session.publish(UserMessage.text("first"), expected=3),
            "publish under a lease": lambda: session.publish(UserMessage.text("first"), epoch=1),
            "hand over": lambda: session.hand_over("other"),
            "erase": lambda: session.erase(force=True),
        }
        for what, call in calls.items():
            await self.attempt(f"{what} {name}", call(), BusError)


async def prepare(bus: Bus, name: str) -> None:
    """Fill all keys of a session, except those that a worker fills."""
    session = bus.session(name)
    await session.publish(UserMessage.text("first"), key="k", wake=False)
    await session.publish(ExtensionMessage.of("told", "x"), wake=False)
    await session.archive(before=2)
    await session.trim(2)
    await session.save_checkpoint("reader", (await session.head()).cursor)
    await project(session, texts)
    await session.fork(id=f"{name}-fork")
    await session.preview(Delta(kind="text", message_id="m", delta="hel"))


@asynccontextmanager
async def trial(server: RealServer, files: Path) -> AsyncGenerator[Trial]:
    """Open a bus with followers of all sessions and a worker."""
    limits = Limits(namespace_bytes=10**9)
    async with Bus.open(server.url, archive=DirectoryArchive(files), bounds=BOUNDS, limits=limits) as bus:
        found, worker = Trial(bus), Worker(bus, demo_agent(delay=0), name="w")
        async with anyio.create_task_group() as tasks:
            endless = partial(found.attempt, seconds=math.inf)
            tasks.start_soon(endless, "worker", worker.run())
            for name in (HEALTHY, *DAMAGED):
                tasks.start_soon(endless, f"follow {name}", found.follow(name), BusError)
            yield found
            tasks.cancel_scope.cancel()


async def faults_of(server: RealServer, files: Path, damage: Damage) -> list[str]:
    """Damage the sessions while a process works on them, and open another bus on them."""
    server.do("HSET", "lanebus:config", "buckets", "1", "schema", "3")
    async with trial(server, files) as found:
        async with anyio.create_task_group() as tasks:
            for name in (HEALTHY, *DAMAGED):
                tasks.start_soon(prepare, found.bus, name)
        await found.talk()
        with server.talk() as say:
            for name, value in DAMAGED.items():
                damage(say, name, value)
        await found.talk()
        await found.use_bus()
        async with Bus.open(server.url) as bus:
            other = Trial(bus)
            for name in DAMAGED:
                publish = bus.session(name).publish(UserMessage.text("?"), seconds=5)
                await other.attempt(f"publish anew {name}", publish, BusError)
            await other.use_bus()
        for name in DAMAGED:
            await found.use_damaged(name)
        await found.talk()
    return found.faults + other.faults


@pytest.mark.full
@pytest.mark.parametrize("place", PLACES)
async def test_damage_of_a_sessions_values_stays_in_the_session(
    place: str, shared_valkey: RealServer, tmp_path: Path
) -> None:
    assert not await faults_of(shared_valkey, tmp_path, PLACES[place])


@pytest.mark.full
@pytest.mark.parametrize("value", VALUES)
async def test_damaged_counts_of_a_bucket_stop_no_session(
    value: str, shared_valkey: RealServer, tmp_path: Path
) -> None:
    def damage(say: Resp, session: str, given: str | None) -> None:
        for key, name in SHARED if session == f"d-{value}" else ():
            if given is None:
                say("HDEL", key, name)
            else:
                say("HSET", key, name, given)

    assert not await faults_of(shared_valkey, tmp_path, damage)
