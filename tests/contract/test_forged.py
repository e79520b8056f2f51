"""Entries of foreign clients are never trusted, and stop no reader or publisher."""

from collections.abc import AsyncIterator

import pytest

from lanebus import ALL_LANES, Bounds, Bus, Cursor, DecodeFailure, Envelope, ExtensionMessage, Lane, Session
from lanebus.bounds import HubBounds, LogBounds
from lanebus.bus.servers import acl_users
from lanebus.bus.wire import Keys
from lanebus.errors import CursorTrimmed, DecodeError, ForgedEntry
from tests.support.log.following import Follower, Subscriber, serve, stalled
from tests.support.log.said import read, said, told, word
from tests.support.log.stored import header
from tests.support.servers.bounded import bound_hub
from tests.support.servers.real import AnyServer, RealServer, background, blocked, eventually, shortly

HEADER = "1 1700000000000 somebody"
OTHERS = {
    Lane.LLM: '{"role":"extension","kind":"told","data":"BAD"}',
    Lane.EXTENSION: '{"role":"user","content":"BAD"}',
}
LANES = {"both": ALL_LANES, "llm": frozenset({Lane.LLM}), "extension": frozenset({Lane.EXTENSION})}
FORGED = (
    *("any id", "the next id, other fields", "the next id, more fields than a call takes"),
    *("the next id, a message of the other lane", "the next id, no message", "the next id, an endless time"),
    *("a later id, a message of the other lane", "an id between, a message of the lane", "the highest id"),
)


def forged(what: str, lane: Lane) -> tuple[str, ...]:
    """Id and fields of an entry that a foreign client adds to a lane that ends at position 3."""
    match what.rsplit(", ", maxsplit=1)[-1]:
        case "any id":
            return ("*", "x", "y")
        case "other fields":
            return ("4-0", "x", "y")
        case "more fields than a call takes":
            return ("4-0", *["x"] * 20_000)
        case "a message of the other lane":
            position = 4 if "next" in what else 5
            return (f"{position}-0", "h", header(lane, OTHERS[lane]), "m", OTHERS[lane])
        case "no message":
            return ("4-0", "h", header(lane, "BAD"), "m", "BAD")
        case "an endless time":
            return ("4-0", "h", "1 " + "9" * 400 + " a", "m", OTHERS[lane])
        case "a message of the lane":
            return ("3-7", "h", HEADER, "m", OTHERS[Lane.LLM if lane is Lane.EXTENSION else Lane.EXTENSION])
        case _:
            return ("18446744073709551615-18446744073709551615", "x", "y")


async def collect(envelopes: AsyncIterator[Envelope], seen: list[str]) -> None:
    """Append the word of each envelope as it comes."""
    async for envelope in envelopes:
        seen.append(word(envelope))  # noqa: PERF401  who looks at it sees each at once


def genuine(envelopes: list[Envelope]) -> list[str]:
    return [word(envelope) for envelope in envelopes if not isinstance(envelope.message, DecodeFailure)]


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("what", FORGED)
async def test_publishing_and_reading_continue_past_a_forged_entry(
    session: Session, server: AnyServer, what: str, lane: Lane
) -> None:
    await session.publish(said("a"), told("b"), said("c") if lane is Lane.LLM else told("c"))
    server.do("XADD", Keys().lane("s", lane), *forged(what, lane))
    assert genuine(await read(session)) == ["a", "b", "c"]
    for text in ("d", "e"):
        await session.publish(said(text), told(text))
    envelopes = await read(session)
    assert genuine(envelopes) == ["a", "b", "c", "d", "d", "e", "e"]
    places = [envelope.position for envelope in envelopes if not isinstance(envelope.message, DecodeFailure)]
    assert places == [1, 2, 3, 4, 5, 6, 7]
    for envelope in envelopes:
        if isinstance(envelope.message, DecodeFailure):
            assert isinstance(envelope.message.error, ForgedEntry | DecodeError)
    llm = [envelope async for envelope in session.read(lanes={Lane.LLM})]
    assert not [envelope for envelope in llm if isinstance(envelope.message, ExtensionMessage)]
    assert "BAD" not in [word(envelope) for envelope in envelopes]


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("what", FORGED)
async def test_followers_continue_past_a_forged_entry(
    session: Session, shared_valkey: RealServer, what: str, lanes: str, lane: Lane
) -> None:
    async with background() as tasks:
        await session.publish(said("a"), told("b"), said("c") if lane is Lane.LLM else told("c"))
        follower = Follower(session, lanes=LANES[lanes]).start(tasks)
        await eventually(follower.has(1))
        await eventually(lambda: blocked(shared_valkey) > 0)  # the hub waits for what comes
        shared_valkey.do("XADD", Keys().lane("s", lane), *forged(what, lane))
        await eventually(lambda: blocked(shared_valkey) > 0)  # it has read what was forged
        for text in ("d", "e"):
            await session.publish(said(text), told(text))
        await eventually(lambda: any(position >= 6 for position in follower.positions))
        await session.publish(said("f"), told("f"))
        await eventually(lambda: follower.positions[-1] >= 8 and "f" in genuine(follower.seen))
        wanted = [e async for e in session.read(lanes=LANES[lanes]) if not isinstance(e.message, DecodeFailure)]
        await eventually(lambda: len(genuine(follower.seen)) >= len(wanted))
        assert [e for e in follower.seen if not isinstance(e.message, DecodeFailure)] == wanted


async def test_a_lane_full_of_forged_entries_ends_for_its_readers(session: Session, server: AnyServer) -> None:
    await session.publish(said("a"), told("b"), told("c"))
    with server.talk() as say:
        for index in range(1, 1_300):
            say("XADD", Keys().lane("s", Lane.LLM), f"2-{index}", "x", "y")
    async with shortly():
        assert genuine(await read(session)) == ["a", "b", "c"]
    assert (await session.publish(said("d"))).position == 4


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_a_forged_wake_up_stops_neither_followers_nor_workers(server: AnyServer) -> None:
    bound_hub(server, direct_sessions=0)
    async with server.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("a"))
        follower, work = Follower(session).start(tasks), serve(bus.consumer("g", "c"), tasks)
        await eventually(lambda: follower.words == ["a"] and work == ["s"])
        index = Keys().index(Keys().bucket("s"))
        for fields in (
            ("x", "y"),
            ("s", "t", "w", "1"),
            ("w", "1"),
            ("s", "s", "z", "many", "w", "1"),
            ("x", "\udcff"),
        ):
            with server.talk() as say:
                say.send("XADD", index, "*", *fields)
        await session.publish(said("b"))
        await eventually(lambda: follower.words == ["a", "b"] and work[-1] == "s" and len(work) >= 2)


@pytest.mark.parametrize("direct_sessions", [32, 0], ids=["direct", "by notices"])
@pytest.mark.parametrize("kinds", [None, ("user", "told")], ids=["all", "some kinds"])
@pytest.mark.parametrize("foreign", ["2-5", "3-5"])
async def test_a_foreign_entry_does_not_stand_in_for_a_missing_one(
    shared_valkey: RealServer, foreign: str, kinds: tuple[str, ...] | None, direct_sessions: int
) -> None:
    lane, other = (Keys().lane("s", each) for each in Lane)

    async def publish() -> None:
        async with shared_valkey.bus() as bus:
            await bus.session("s").publish(told("b"))
            if foreign == "2-5":
                shared_valkey.do("XADD", other, foreign, "x", "forged")
            await bus.session("s").publish(said("c"))
            if foreign == "3-5":
                shared_valkey.do("XADD", other, foreign, "x", "forged")
            await bus.session("s").publish(said("d"))
            shared_valkey.do("XDEL", lane, "3-0")

    bounds = Bounds(hub=HubBounds(direct_sessions=direct_sessions))
    async with shared_valkey.bus(bounds=bounds) as bus, background() as tasks:
        session, followed = bus.session("s"), list[str]()
        await session.publish(said("a"))

        async def follow() -> None:
            with pytest.raises(CursorTrimmed) as caught:
                await collect(session.follow(kinds=kinds), followed)
            followed.append(caught.value.cursor)

        tasks.start_soon(follow)
        await eventually(lambda: followed == ["a"] and blocked(shared_valkey) > 0)
        stalled(publish)
        seen: list[str] = []
        with pytest.raises(CursorTrimmed) as caught:
            await collect(session.read(kinds=kinds), seen)
        assert [each for each in seen if each != "ForgedEntry"] == ["a", "b"]
        assert (caught.value.cursor, caught.value.first_kept) == ("2-0", 4)
        after = Cursor(caught.value.first_kept - 1)
        assert [word(e) async for e in session.read(kinds=kinds, after=after) if not e.delta] == ["d"]
        await eventually(lambda: followed[-1] == "2-0")
        assert [each for each in followed if each != "ForgedEntry"] == ["a", "b", "2-0"]


async def test_a_missing_entry_raises_in_live_followers(bus: Bus, shared_valkey: RealServer) -> None:
    async with background() as tasks:
        session, other = bus.session("s"), bus.session("t")
        await session.publish(said("a"))
        await other.publish(said("o"))
        broken, whole = Follower(session).start(tasks), Follower(other).start(tasks)
        await eventually(lambda: (broken.words, whole.words) == (["a"], ["o"]))
        await eventually(lambda: blocked(shared_valkey) > 0)
        with shared_valkey.talk() as say:
            say("MULTI")
            lane, head = Keys().lane("s", Lane.LLM), Keys().head("s")
            say("XADD", lane, "3-0", "h", "1 1 x", "m", '{"role":"user","content":"c"}')
            say("HSET", head, "position", "3")
            say("EXEC")
        await eventually(lambda: isinstance(broken.error, CursorTrimmed))
        await other.publish(said("p"))
        await eventually(lambda: whole.words == ["o", "p"])
        assert broken.words == ["a"]


@pytest.mark.parametrize("page_entries", [1, 2, 500])
async def test_reading_shows_a_foreign_entry_at_the_end_of_a_page(shared_valkey: RealServer, page_entries: int) -> None:
    bounds = Bounds(log=LogBounds(page_bytes=100, page_entries=page_entries))
    async with shared_valkey.bus(bounds=bounds) as bus:
        session = bus.session("s")
        for position in range(1, 7):
            await session.publish(said("x"))
            shared_valkey.do("XADD", Keys().lane("s", Lane.LLM), f"{position}-5", "x", "forged")
        assert [envelope.position async for envelope in session.read()] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


@pytest.mark.parametrize("direct_sessions", [32, 0], ids=["direct", "by notices"])
@pytest.mark.parametrize("page_entries", [1, 2, 3, 60])
async def test_following_shows_a_foreign_entry_below_the_position_where_a_page_ends(
    shared_valkey: RealServer, page_entries: int, direct_sessions: int
) -> None:
    bounds = Bounds(hub=HubBounds(page_entries=page_entries, direct_sessions=direct_sessions))
    lane = Keys().lane("s", Lane.LLM)

    async def publish() -> None:
        async with shared_valkey.bus() as bus:
            for position in range(2, 8):
                await bus.session("s").publish(said("x"))
                shared_valkey.do("XADD", lane, f"{position}-5", "x", "forged")
            await bus.session("s").publish(told("last"))

    async with shared_valkey.bus(bounds=bounds) as bus, background() as tasks:
        await bus.session("s").publish(said("x"))
        subscriber = Subscriber(bus.session("s")).start(tasks)
        await eventually(subscriber.has("x", "[caughtUp]"))
        await eventually(lambda: blocked(shared_valkey) > 0)
        stalled(publish)
        await eventually(lambda: bool(subscriber.envelopes) and subscriber.envelopes[-1].position == 8)
        # The hub reads 2-0 as soon as it is there, perhaps before 2-5 is.
        seen = [envelope.position for envelope in subscriber.envelopes if envelope.position > 2]
        assert seen == [3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("lane", Lane)
async def test_a_foreign_entry_follows_one_of_the_other_lane(shared_valkey: RealServer, lane: Lane, live: bool) -> None:
    async def publish() -> None:
        async with shared_valkey.bus() as bus:
            for position in range(2, 6):
                await bus.session("s").publish(told("x") if lane is Lane.LLM else said("x"))
                shared_valkey.do("XADD", Keys().lane("s", lane), f"{position}-5", "x", "forged")
            await bus.session("s").publish(said("last"))

    async with shared_valkey.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("x"))
        follower = Follower(session, live=live).start(tasks)
        await eventually(lambda: bool(follower.seen) and blocked(shared_valkey) > 0)
        stalled(publish)
        entries = await read(session)
        assert [entry.cursor.id for entry in entries][2:-1] == ["2-5", "3-0", "3-5", "4-0", "4-5", "5-0", "5-5"]
        await eventually(lambda: follower.positions[-1] == 6)
        assert [entry.position for entry in follower.seen if not entry.delta] == [1, 2, 3, 4, 5, 6]


async def test_without_quarantine_a_reader_goes_on(shared_valkey: RealServer, caplog: pytest.LogCaptureFixture) -> None:
    """A process with the user that only reads: a foreign entry of one session does not hold up the other sessions. The
    process says so once, and the next writer quarantines the entry."""
    reader = acl_users("lanebus")[0]
    shared_valkey.do("ACL", "SETUSER", reader.name, *reader.rules, ">secret")
    url = shared_valkey.url.replace("://", f"://{reader.name}:secret@")
    async with shared_valkey.bus() as bus:
        for name in ("forged", "other"):
            await bus.session(name).publish(said("first"))
        bounds = Bounds(hub=HubBounds(block_seconds=0.1))
        async with Bus.open(url, bounds=bounds) as readers, shortly(), background() as tasks:
            forged = Subscriber(readers.session("forged")).start(tasks)
            other = Subscriber(readers.session("other")).start(tasks)
            await eventually(lambda: forged.has_taken(1)() and other.has_taken(1)())
            for number, text in ((2, "second"), (3, "third")):
                shared_valkey.do("XADD", Keys().lane("forged", Lane.LLM), "9-0", "h", HEADER, "m", "x")
                await eventually(lambda: "foreign client" in caplog.text)
                await bus.session("other").publish(said(text))
                await eventually(other.has_taken(number))
                assert len(forged.envelopes) == number - 1
                await bus.session("forged").publish(said(text))
                await eventually(forged.has_taken(number))
                quarantined = shared_valkey.do("XLEN", Keys().forged(Keys().bucket("forged")))
                assert quarantined == number - 1
            assert (forged.error, other.error) == (None, None)
            assert [word(each) for each in forged.envelopes] == ["first", "second", "third"]
            assert [r.message for r in caplog.records if "foreign client" in r.message and "may not" in r.message] == [
                "session forged has entries of a foreign client, and this process may not quarantine them: it leaves"
                " them out, and the next process that publishes to the session quarantines them"
            ]
