"""Many followed sessions are read by indexes and in slices, and nothing is lost."""

import anyio
import pytest

from lanebus import Bounds, Bus, Delta, Envelope, Lane, Notice, Session
from lanebus.bounds import HubBounds, LogBounds
from lanebus.bus.wire import Keys
from lanebus.errors import LogRolledBack
from tests.support.log.following import Subscriber
from tests.support.log.said import assert_gap_free, said, told
from tests.support.servers.bounded import bound_hub, bound_servers
from tests.support.servers.real import RealServer, background, eventually


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest) -> None:
    """Slices so small that a few sessions need many of them."""
    hub = HubBounds(direct_sessions=0, sessions_at_once=3, unsized_sessions=2, checked_sessions=2, index_page=4)
    bound_servers(request, Bounds(hub=hub, log=LogBounds(heads=5)))


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_sessions_in_many_slices_are_followed_without_a_gap(bus: Bus, other: Bus) -> None:
    async with background() as tasks:
        names = [f"s{number}" for number in range(40)]
        for name in names[::2]:
            await other.session(name).publish(said("0"))
        subscribers = [Subscriber(bus.session(name)).start(tasks) for name in names]

        async def publish(name: str) -> None:
            for _ in range(15):
                await other.session(name).publish(said("x"), told("y"))

        async with anyio.create_task_group() as publishing:
            for name in names:
                publishing.start_soon(publish, name)
        for number, subscriber in enumerate(subscribers):
            count = 30 + (number % 2 == 0)
            await eventually(subscriber.has_taken(count))
            assert len(subscriber.envelopes) == count
            assert_gap_free(subscriber.envelopes)
            assert subscriber.story.count("[caughtUp]") == 1
            assert subscriber.error is None


async def test_an_index_that_outgrows_a_page_hides_nothing(bus: Bus, other: Bus, shared_valkey: RealServer) -> None:
    async with background() as tasks:
        subscriber = Subscriber(bus.session("s")).start(tasks)
        await eventually(subscriber.has("[caughtUp]"))
        for _ in range(5):
            count = len(subscriber.envelopes)
            indexes = [str(name) for name in _list(shared_valkey.do("KEYS", "*:index"))]
            with shared_valkey.talk() as say:
                # In one step for the reader: more pointers than it takes at once.
                say("MULTI")
                for _ in range(6):
                    for index in indexes:
                        say("XADD", index, "*", "s", "nobody", "z", "1", "w", "")
                say("EXEC")
            await other.session("s").publish(*(told("x") for _ in range(20)))
            await eventually(subscriber.has_taken(count + 20))
        assert_gap_free(subscriber.envelopes)


def _list(reply: object) -> list[object]:
    assert isinstance(reply, list)
    return [item.decode() if isinstance(item, bytes) else item for item in reply]  # pyright: ignore[reportUnknownVariableType]  # of a foreign client


async def test_emptied_logs_of_quiet_sessions_are_all_found_in_turn(shared_valkey: RealServer) -> None:
    bound_hub(shared_valkey, block_seconds=0.05)
    async with shared_valkey.bus() as bus, background() as tasks:
        sessions = [bus.session(f"s{number}") for number in range(7)]
        for session in sessions:
            await session.publish(said("0"))
        subscribers = [Subscriber(session).start(tasks) for session in sessions]
        for subscriber in subscribers:
            await eventually(subscriber.has("0", "[caughtUp]"))
        shared_valkey.do("FLUSHALL")
        for subscriber in subscribers:
            await eventually(subscriber.has_failed)
            assert isinstance(subscriber.error, LogRolledBack)


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_live_deltas_of_many_sessions_are_named_by_an_index(bus: Bus, other: Bus) -> None:
    async with background() as tasks:
        names = [f"s{number}" for number in range(12)]
        seen: dict[str, list[str]] = {name: [] for name in names}

        async def follow(name: str) -> None:
            async for item in bus.session(name).subscribe(live=True):
                match item:
                    case Notice(kind=kind):
                        seen[name].append(kind)
                    case Envelope(message=Delta(delta=text)):
                        seen[name].append(text)
                    case _:
                        seen[name].append("entry")

        for name in names:
            tasks.start_soon(follow, name)
        await eventually(lambda: all(story == ["caughtUp"] for story in seen.values()))
        for number in range(3):
            for name in names:
                await other.session(name).preview(Delta(kind="text", message_id="m", delta=str(number)))
        await eventually(lambda: all(story == ["caughtUp", "0", "1", "2"] for story in seen.values()))
        for name in names:
            await other.session(name).publish(said("whole"))
        await eventually(lambda: all(story[-1] == "entry" for story in seen.values()))


async def test_a_follower_of_a_new_lane_gets_the_entries_that_the_hub_had_not_read(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("a"))
        llm: list[int] = []

        async def follow() -> None:
            async for envelope in session.follow(lanes=[said("").lane]):
                llm.append(envelope.position)  # noqa: PERF401  it never ends

        tasks.start_soon(follow)
        await eventually(lambda: llm == [1])
        await session.publish(told("b"))
        both = Subscriber(session).start(tasks)
        await eventually(both.has("a", "b", "[caughtUp]"))
        assert both.error is None


@pytest.mark.full
async def test_sessions_that_did_not_change_are_not_read_as_their_followers_join(valkey: RealServer) -> None:
    count = 300
    bound_hub(valkey, sessions_at_once=100, unsized_sessions=16)
    async with valkey.bus() as bus, valkey.bus() as other, background() as tasks:
        for number in range(count):
            await other.session(f"s{number}").publish(said("0"))
        before = _reads(valkey)
        subscribers = [Subscriber(bus.session(f"s{number}")).start(tasks) for number in range(count)]
        for subscriber in subscribers:
            await eventually(subscriber.has("0", "[caughtUp]"))
        await other.session("s7").publish(said("1"))  # what was to be read before it has been read
        await eventually(subscribers[7].has("0", "[caughtUp]", "1"))
        assert _reads(valkey) - before < count // 2


async def test_a_key_of_a_wrong_type_raises_among_many_unchanged_sessions(valkey: RealServer) -> None:
    bound_hub(valkey, direct_sessions=32)
    async with valkey.bus() as bus, background() as tasks:
        names = [f"s{number}" for number in range(20)]
        for name in names:
            await bus.session(name).publish(said("0"))
        subscribers = [Subscriber(bus.session(name)).start(tasks) for name in names]
        for subscriber in subscribers:
            await eventually(subscriber.has("0", "[caughtUp]"))
        with valkey.talk() as say:
            say("MULTI")
            say("DEL", Keys().lane("s7", Lane.LLM))
            say("SET", Keys().lane("s7", Lane.LLM), "x")
            say("EXEC")
        await bus.session("s3").publish(said("1"))  # until then the hub does not read
        await eventually(subscribers[7].has_failed)
        await eventually(subscribers[3].has("0", "[caughtUp]", "1"))
        assert not [subscriber for subscriber in subscribers if subscriber.error and subscriber is not subscribers[7]]


def _reads(server: RealServer) -> int:
    """Return the number of XREAD calls that the server has answered."""
    stats = str(server.do("INFO", "commandstats"))
    return int(stats.partition("cmdstat_xread:calls=")[2].partition(",")[0] or 0)
