"""An erased session leaves a tombstone, and calls to it raise, on every server."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lanebus import START, AssistantMessage, Bounds, Bus, Cursor, Delta, Envelope, ImageBlock, Lane, MediaRef, Session
from lanebus.bus import Log, LogBounds
from lanebus.bus.errors import EraseRefused, MediaMissing, RewriteUnfinished, SessionErased, Unavailable
from lanebus.bus.messages import UserMessage
from lanebus.bus.wire import Keys
from lanebus.media import DirectoryMedia
from tests.support.log.groups import held_lease, take_one
from tests.support.log.said import read, said, told, words
from tests.support.servers.bounded import bound_hub
from tests.support.servers.clusters import RealCluster
from tests.support.servers.real import AnyServer, RealServer, background, eventually, shortly

CANARY = "canary-5e1f"


def everything(server: AnyServer) -> dict[str, str]:
    """Return every key with its whole value as text."""
    found: dict[str, str] = {}
    for node in server.nodes if isinstance(server, RealCluster) else (server,):
        with node.talk() as say:
            for key in cast("list[str]", say("KEYS", "*")):
                match say("TYPE", key):
                    case "string":
                        found[key] = str(say("GET", key))
                    case "hash":
                        found[key] = str(say("HGETALL", key))
                    case "stream":
                        found[key] = str(say("XRANGE", key, "-", "+"))
                    case "zset":
                        found[key] = str(say("ZRANGE", key, "0", "-1"))
                    case kind:
                        raise AssertionError(kind)
    return found


def traces(server: AnyServer) -> list[str]:
    """Return the keys that contain the canary."""
    return [key for key, value in everything(server).items() if CANARY in key or CANARY in value]


def owned(server: AnyServer, session: str) -> list[str]:
    """Return the keys of a session."""
    return sorted(key.partition(f":s:{session}:")[2] for key in everything(server) if f":s:{session}:" in key)


async def leave_traces(bus: Bus, server: AnyServer, name: str = "s") -> None:
    """Make a session that has data under every kind of key."""
    session, keys = bus.session(name), Keys()
    await session.publish(said(CANARY), told(CANARY), key=CANARY)
    await session.publish(said("b"))
    await session.preview(Delta(kind="text", message_id=CANARY, delta=CANARY))
    assert await session.acquire_lease(CANARY, 60)
    await session.save_projection(CANARY, 1, CANARY.encode(), cursor=Cursor(2), expected=0)
    await session.save_projection(CANARY, 12, CANARY.encode(), cursor=Cursor(2), expected=0)
    await session.save_checkpoint(CANARY, Cursor(1))
    server.do("XADD", keys.lane(name, Lane.LLM), "9-0", CANARY, CANARY)  # is set aside by the next
    await session.publish(said(CANARY))
    assert CANARY in str(server.do("XRANGE", keys.forged(keys.bucket(name)), "-", "+"))
    server.do("XADD", keys.rebuilt(keys.lane(name, Lane.LLM)), "9-0", CANARY, CANARY)  # as a crash might leave it
    async with bus.consumer("workers", "w") as consumer:
        await take_one(consumer)


@pytest.mark.cluster("smoke test of erasing")
@pytest.mark.sentinel("smoke test of erasing")
async def test_nothing_of_an_erased_session_is_left_on_the_server(bus: Bus, server: AnyServer) -> None:
    others = ("t", next(f"o{n}" for n in range(10_000) if Keys().bucket(f"o{n}") == Keys().bucket("s")))
    for other in others:
        await bus.session(other).publish(said("x"), told("y"))
    before = {key: value for key, value in everything(server).items() if any(f":s:{o}:" in key for o in others)}
    await leave_traces(bus, server)
    assert len(traces(server)) >= 8
    await bus.session("s").erase()
    assert traces(server) == []
    assert owned(server, "s") == ["head"]
    assert server.do("HGETALL", Keys().head("s")) == ["state", "erased"]
    keys, bucket = Keys(), Keys().bucket("s")
    for name in (keys.index(bucket), keys.wake_ups(bucket), keys.live_index(bucket)):
        assert "'s', 's'" not in str(server.do("XRANGE", name, "-", "+"))
    for name in (keys.order(bucket, "agent"), keys.due(bucket, "agent", "workers")):
        assert server.do("ZSCORE", name, "s") is None
    for name in (keys.woken(bucket), keys.open(bucket, "agent", "workers"), keys.sessions(bucket)):
        assert server.do("HEXISTS", name, "s") == 0
    # What others have is as it was.
    after = everything(server)
    assert {key: after[key] for key in before} == before
    assert sorted(head.session for head in await bus.sessions()) == sorted(others)
    assert await words(bus.session(others[1])) == ["x", "y"]
    counted = sum(head.size_bytes for head in await bus.sessions())
    fields = [server.do("HGET", Keys().sessions(bucket), ":bytes") for bucket in range(Keys().buckets)]
    assert sum(int(str(field or 0)) for field in fields) == counted


def is_in_file(server: RealServer) -> bool:
    """Return whether a file of the server contains the canary. Call `slow_rewrites` first, or files are compressed."""
    return any(CANARY.encode() in path.read_bytes() for path in server.directory.rglob("*") if path.is_file())


def slow_rewrites(server: RealServer, seconds: float) -> None:
    """Make the server take this long for each key when it rewrites its file, and write the file as text."""
    server.do("CONFIG", "SET", "aof-use-rdb-preamble", "no")
    server.do("CONFIG", "SET", "rdb-key-save-delay", str(int(seconds * 1e6)))


def rewrites(server: RealServer) -> int:
    """Return the number of rewrites that the server has started."""
    with server.talk() as say:
        return int(say.info()["aof_rewrites"])


async def test_the_servers_file_has_forgotten_it_when_erase_with_rewrite_returns(process: RealServer) -> None:
    slow_rewrites(process, 0.02)
    async with process.bus() as bus:
        await leave_traces(bus, process)
        await bus.session("t").publish(said("x"))
        await bus.session("s").erase()
        assert is_in_file(process)
        await bus.session("s").erase(rewrite=True)
        assert not is_in_file(process)


async def test_the_servers_file_names_an_erased_session_in_its_tombstone_only(process: RealServer) -> None:
    process.do("CONFIG", "SET", "rdbcompression", "no")
    name, bucket = "jane_doe_1980", Keys().bucket("jane_doe_1980")
    others = [id for n in range(1_000) if Keys().bucket(id := f"o{n}") == bucket]
    async with process.bus() as bus:
        for other in others[::2]:
            await bus.session(other).publish(said("x"))
        await leave_traces(bus, process, name)
        async with bus.consumer("workers", "v") as consumer:
            await bus.session(name).publish(said("fails"))
            while (work := await take_one(consumer)).session != name:
                await consumer.ack(work)
            await consumer.dead_letter(work, reason=name)
        for other in others[1::2]:
            await bus.session(other).publish(said("x"))
            await bus.session(other).preview(Delta(kind="text", message_id="m", delta="x"))
        notices = [
            key for key in everything(process) if key.endswith((":index", ":wakeups", ":live")) and ":s:" not in key
        ]
        before = {key: last_id(process, key) for key in notices}
        await bus.session(name).erase(rewrite=True)
        files = b"".join(path.read_bytes() for path in process.directory.rglob("*") if path.is_file())
        found = re.findall(rb"[^\0-\x1f]{0,3}jane_doe_1980.{0,5}", files, re.DOTALL)
        assert found
        assert {each[-18:] for each in found} == {b"jane_doe_1980:head"}
        for key, last in before.items():  # readers that wait after the last id miss nothing
            assert last_id(process, key) >= last
        for other in others:
            assert await words(bus.session(other)) == ["x"]
            assert other in str(process.do("XRANGE", Keys().index(bucket), "-", "+"))
        await bus.session(others[0]).publish(said("y"))


def last_id(server: RealServer, stream: str) -> tuple[int, ...]:
    """Return the highest id that a stream has ever had."""
    reply = cast("list[object]", server.do("XINFO", "STREAM", stream))
    return tuple(map(int, str(reply[reply.index("last-generated-id") + 1]).split("-")))


async def test_erase_waits_for_a_rewrite_that_began_before_it_and_starts_another(process: RealServer) -> None:
    slow_rewrites(process, 0.02)
    async with process.bus() as bus:
        await leave_traces(bus, process)
        before = rewrites(process)
        process.do("BGREWRITEAOF")  # it copies the session
        await bus.session("s").erase(rewrite=True)
        assert rewrites(process) == before + 2
        assert not is_in_file(process)


async def test_erasures_at_the_same_time_all_return_after_a_rewrite(process: RealServer) -> None:
    slow_rewrites(process, 0.01)
    async with process.bus() as bus, shortly():
        await leave_traces(bus, process)
        for number in range(5):
            await bus.session(f"t{number}").publish(said(CANARY))
        async with anyio.create_task_group() as tasks:
            for name in ("s", *(f"t{number}" for number in range(5))):
                tasks.start_soon(partial(bus.session(name).erase, rewrite=True))
        assert not is_in_file(process)


async def test_a_rewrite_that_takes_too_long_raises_and_a_repeat_finishes_it(process: RealServer) -> None:
    bounds = Bounds(log=LogBounds(rewrite_seconds=0.02, rewrite_pause_seconds=0.01))
    async with process.bus(bounds=bounds) as bus, process.bus() as patient:
        await leave_traces(bus, process)
        slow_rewrites(process, 0.03)
        with pytest.raises(RewriteUnfinished, match=r"longer than 0\.02 s: erase the session again"):
            await bus.session("s").erase(rewrite=True)
        assert traces(process) == []
        slow_rewrites(process, 0)
        await patient.session("s").erase(rewrite=True)
        assert not is_in_file(process)


async def test_a_rewrite_that_fails_raises(bus: Bus, process: RealServer) -> None:
    await leave_traces(bus, process)
    (process.directory / "appendonlydir").rename(process.directory / "moved")
    (process.directory / "appendonlydir").touch()
    with pytest.raises(RewriteUnfinished, match="it failed, see the server's log"):
        await bus.session("s").erase(rewrite=True)
    assert traces(process) == []


async def test_rewrite_leaves_a_server_without_a_file_alone(bus: Bus, valkey: RealServer) -> None:
    await bus.session("s").publish(said("x"))
    valkey.do("CONFIG", "SET", "appendonly", "no")
    before = rewrites(valkey)
    for name in ("s", "never"):  # an unused id can be erased for good, too
        await bus.session(name).erase(rewrite=True)
        with pytest.raises(SessionErased):
            await bus.session(name).publish(said("a"))
    assert rewrites(valkey) == before
    assert await bus.sessions() == []


@pytest.mark.cluster("each server has a file of its own")
@pytest.mark.sentinel("the primary has the file")
async def test_every_primary_has_rewritten_its_file_when_erase_returns(server: AnyServer) -> None:
    nodes = server.nodes if isinstance(server, RealCluster) else [server]
    async with server.bus() as bus:
        await bus.session("s").publish(said(CANARY))

        def started() -> list[object]:
            return [re.findall(r"aof_rewrites:(\d+)", str(node.do("INFO", "persistence"))) for node in nodes]

        before = started()
        await bus.session("s").erase(rewrite=True)
        assert all(now != then for now, then in zip(started(), before, strict=True))
        assert all("aof_rewrite_in_progress:0" in str(node.do("INFO", "persistence")) for node in nodes)


@pytest.fixture
def patient_hub(request: pytest.FixtureRequest) -> None:
    """Make the hub check quiet sessions so rarely that these tests end before."""
    for name in {"server", "process"} & {*request.fixturenames}:
        bound_hub(request.getfixturevalue(name), block_seconds=60)


@pytest.mark.usefixtures("patient_hub")
async def test_calls_to_an_erased_session_raise(bus: Bus, other: Bus, server: AnyServer) -> None:
    session, late = bus.session("s"), other.session("s")
    await session.publish(said("a"), key="k")
    await late.publish(said("b"))
    lease = await held_lease(session, "w", 60)
    cursor = (await session.head()).cursor
    await session.erase()
    steps: list[Callable[[], Awaitable[object]]] = []
    for who in (session, late):
        steps += [
            partial(who.publish, said("c")),
            partial(who.publish, said("a"), key="k"),
            partial(who.publish, said("c"), epoch=1, expected=2),
            partial(who.trim, 2, force=True),
            partial(who.trim, 2, dry_run=True),
            partial(bus.leases.take, "s", "w", 60),
            who.close,
            who.reopen,
            partial(who.preview, Delta(kind="text", message_id="m", delta="x")),
            partial(who.acquire_lease, "w", 60),
            partial(who.save_projection, "p", 1, b"", cursor=START, expected=0),
            partial(who.save_checkpoint, "r", START),
            *(
                partial(anext, ask(after=after))
                for ask in (who.read, who.follow)
                for after in (START, Cursor(1), cursor, Cursor(99))
            ),
        ]
    for step in steps:
        async with shortly():
            with pytest.raises(SessionErased) as caught:
                await step()
        assert caught.value.session == "s"
    assert isinstance(await late.try_publish(said("c")), SessionErased)
    assert not await late.renew_lease(lease, 60)  # lost, as any other that is gone
    await late.release_lease(lease)
    assert (await late.head()).is_erased
    assert await late.load_projection("p", 1) is None
    assert await late.open_messages() == []
    assert owned(server, "s") == ["head"]
    assert await bus.sessions() == []
    await bus.session("t").publish(said("others go on"))


@pytest.mark.usefixtures("patient_hub")
@pytest.mark.parametrize("others", [0, 40], ids=["by their own streams", "by the index"])
async def test_erasing_a_session_ends_its_followers(bus: Bus, other: Bus, one: RealServer, others: int) -> None:
    told_of: list[str] = []
    seen: list[Envelope] = []

    async def follow(session: Session, *, live: bool) -> None:
        try:
            async for envelope in session.follow(live=live):
                seen.append(envelope)  # noqa: PERF401  seen while it grows
        except SessionErased as error:
            told_of.append(error.session)

    async with background() as tasks:
        await other.session("s").publish(said("a"))
        for live in (True, False):
            tasks.start_soon(partial(follow, bus.session("s"), live=live))
        for number in range(others):
            await bus.session(f"o{number}").publish(said("a"))
            tasks.start_soon(partial(follow, bus.session(f"o{number}"), live=False))
        await eventually(lambda: len(seen) == 2 + others)
        await eventually(lambda: "blocked_clients:1" in str(one.do("INFO", "clients")))  # the hub waits for more
        await other.session("s").erase()
        await eventually(lambda: told_of == ["s", "s"])
        for number in range(others):
            await other.session(f"o{number}").publish(said("b"))
        await eventually(lambda: len(seen) == 2 + 2 * others)  # the others go on, and nothing came of the erased one


# --- forks ----------------------------------------------------------------------------------------------------------


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_entries_that_forks_share_are_kept_unless_it_is_forced(session: Session, server: AnyServer) -> None:
    keys = Keys()
    await session.publish(said("a"))
    server.do("HSET", keys.checkpoints("s"), "f:child", "0", "f:another", "0", "r:reader", "0")
    with pytest.raises(EraseRefused) as caught:
        await session.erase()
    assert sorted(caught.value.forks) == ["another", "child"]
    assert await words(session) == ["a"]
    await session.erase(force=True)
    assert owned(server, "s") == ["head"]


# --- media ----------------------------------------------------------------------------------------------------------


def picture(number: int) -> tuple[UserMessage, str]:
    """Return a message with a picture, and the key of the picture."""
    data = b"\x89PNG\r\n\x1a\n" + bytes([number]) * 60_000
    image = ImageBlock(media=MediaRef.from_bytes(data))
    return UserMessage(content=(image,)), hashlib.sha256(data).hexdigest()


@pytest.fixture(params=["server", "directory"])
def media_at(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "media" if request.param == "directory" else None


@pytest.mark.cluster("media and sessions are on different nodes")
async def test_media_go_that_no_other_session_names(server: AnyServer, media_at: Path | None) -> None:
    media = DirectoryMedia(media_at) if media_at else None
    pictures = [picture(number) for number in range(4)]
    async with Bus.open(server.url, media=media) as bus:
        session, other = bus.session("s"), bus.session("t")
        for message, _ in pictures[:3]:
            await session.publish(message)
        await other.publish(pictures[1][0], pictures[3][0])
        await other.publish(told(f"see {pictures[2][1]}"))  # named is named, however
        own, shared, named, foreign = (sha256 for _, sha256 in pictures)
        assert (await bus.session("u").erase(media=True)).media == ()
        assert (await session.erase(media=True)).media == (own,)
        with pytest.raises(MediaMissing):
            await bus.media.get(own)
        for sha256 in (shared, named, foreign):
            await bus.media.get(sha256)
        assert (await session.erase(media=True)).media == ()
        assert (await other.erase()).media == ()
        await bus.media.get(foreign)


# --- faults ---------------------------------------------------------------------------------------------------------


def on_each_call(patch: pytest.MonkeyPatch, note: Callable[[], None], *, one_by_one: bool) -> None:
    """Call `note` before each script and call of every log. With `one_by_one`, the commands of one call count each."""

    def noted(name: str) -> None:
        method = cast("Callable[..., Awaitable[object]]", getattr(Log, name))

        async def noting(log: Log, *arguments: Sequence[object]) -> object:
            if name != "call_many" or not one_by_one:
                note()
                return await method(log, *arguments)
            replies: list[object] = []
            for command in arguments[0]:  # a connection may be lost between any two of them
                note()
                replies += cast("list[object]", await method(log, (command,)))
            return replies

        patch.setattr(Log, name, noting)

    for name in ("call", "run", "call_many"):
        noted(name)


async def test_erase_looks_at_no_notices_from_before_or_after_its_session(
    bus: Bus, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, trips = Keys().index(Keys().bucket("s")), list[None]()
    with shared_valkey.talk() as say:
        for number in range(2_500):
            say("XADD", index, f"{number + 1}-0", "s", "before", "z", "1")
        for _ in range(3):
            await bus.session("s").publish(said("a"))
        for number in range(2_500):
            say("XADD", index, f"{2**42 + number}-0", "s", "behind", "z", "1")
    await bus.session("warm").erase()  # the server knows the scripts from here on
    on_each_call(monkeypatch, lambda: trips.append(None), one_by_one=False)
    await bus.session("s").erase()
    assert len(trips) == 2  # the tombstone, then the rest with one page of what names it
    assert int(str(shared_valkey.do("XLEN", index))) == 5_000
    assert "'s', 's'" not in str(shared_valkey.do("XRANGE", index, "-", "+"))


async def test_erase_leaves_nothing_on_a_server_that_has_forgotten_its_scripts(bus: Bus, server: AnyServer) -> None:
    await leave_traces(bus, server)
    server.do("SCRIPT", "FLUSH")
    await bus.session("s").erase()
    assert traces(server) == []
    assert owned(server, "s") == ["head"]


async def test_erase_finds_notices_and_wake_ups_after_a_clock_stepped_back(bus: Bus, shared_valkey: RealServer) -> None:
    keys = Keys()
    bucket = keys.bucket("s")
    for far, name in enumerate((keys.index(bucket), keys.wake_ups(bucket)), 42):
        shared_valkey.do("XADD", name, f"{2**far}-0", "s", "other", "z", "1")
    await bus.session("s").publish(said("a"))  # its notice and its wake-up get ids of those times
    await bus.session("s").publish(told("b"))
    await bus.session("s").erase()
    for name in (keys.index(bucket), keys.wake_ups(bucket)):
        assert int(str(shared_valkey.do("XLEN", name))) == 1


async def test_an_interrupted_erasure_is_finished_by_the_next(bus: Bus, one: RealServer) -> None:
    message, sha256 = picture(1)
    steps, is_done, left = 0, False, 0

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Unavailable("the end of the test")

    while not is_done:
        session, left = bus.session(f"s{steps}"), steps
        await leave_traces(bus, one, session.id)
        await session.publish(message)
        with pytest.MonkeyPatch.context() as patch, suppress(Unavailable):
            on_each_call(patch, count, one_by_one=True)
            await session.erase(media=True)
            is_done = True
        assert (await session.head()).is_erased == (steps > 0)
        await session.erase(media=True)
        assert traces(one) == []
        assert owned(one, session.id) == ["head"]
        assert await bus.media.head(sha256) is None
        steps += 1
    assert steps > 6


async def test_a_server_killed_in_the_middle_has_a_tombstone_or_all(bus: Bus, process: RealServer) -> None:
    for round_ in range(3):
        name = f"s{round_}"
        session = bus.session(name)
        await leave_traces(bus, process, name)
        async with anyio.create_task_group() as tasks:

            async def erase_if_it_can(session: Session = session) -> None:
                with suppress(Unavailable):
                    await session.erase()

            tasks.start_soon(erase_if_it_can)
            for _ in range(round_ * 3):
                await checkpoint()
            process.kill()
            process.start()
        if (await session.head()).is_erased:
            assert isinstance(await session.try_publish(said("a")), SessionErased)
        else:
            assert len(await read(session)) == 4
        await session.erase()
        assert traces(process) == []
        assert owned(process, name) == ["head"]


async def test_no_call_recreates_a_session_during_its_erasure(bus: Bus, other: Bus, server: AnyServer) -> None:
    for round_ in range(20):
        session, late = bus.session(f"s{round_}"), other.session(f"s{round_}")
        await session.publish(said(CANARY))
        refused: list[str] = []

        async def write(late: Session = late, refused: list[str] = refused) -> None:
            while not refused:
                try:
                    await late.publish(AssistantMessage.text(CANARY))
                    await late.save_projection("p", 1, CANARY.encode(), cursor=Cursor(1), expected=0)
                    await late.preview(Delta(kind="text", message_id="m", delta=CANARY))
                    await late.trim(2, force=True)
                except SessionErased as error:
                    refused.append(error.session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            for _ in range(round_):
                await checkpoint()
            await session.erase()
    assert traces(server) == []
