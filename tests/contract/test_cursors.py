"""Cursors stay valid over restarts, and an outdated cursor raises, however its log lost its end."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from lanebus import ALL_LANES, START, Bus, Conflict, Cursor, Delta, Envelope, Lane, Receipt, Session, SessionHead
from lanebus.archive import DirectoryArchive
from lanebus.bus import Bounds, Incarnation, LogBounds
from lanebus.bus.messages import ExtensionMessage
from lanebus.bus.wire import Keys
from lanebus.context import WarmContext
from lanebus.errors import CursorTrimmed, LogRolledBack
from lanebus.projections import USAGE, project
from tests.support.log.said import read, said, told, word, words
from tests.support.servers.bounded import bound_hub
from tests.support.servers.real import AnyServer, RealServer, background, copied, eventually, one_server
from tests.support.suite.scale import count

KEPT = 3
"""Incarnations that a head lists."""

EXTENSION = frozenset({Lane.EXTENSION})


@pytest.fixture
def restarting() -> Iterator[RealServer]:
    """A server that counts as restarted after a command; its heads list few incarnations."""
    with one_server("valkey", "--enable-debug-command", "yes", "--appendfsync", "no") as server:
        server.bounds = Bounds(log=LogBounds(incarnations=KEPT))
        yield server


async def restart(server: RealServer, session: Session, times: int = KEPT + 2) -> None:
    """Publish once after each of several restarts, alternating between the lanes."""
    with server.talk() as say:
        for number in range(times):
            say("DEBUG", "CHANGE-REPL-ID")
            await session.publish(told(f"t{number}") if number % 2 else said(f"s{number}"))


async def behind(session: Session, cursor: Cursor, lanes: frozenset[Lane] = frozenset(Lane)) -> list[Envelope]:
    return [envelope async for envelope in session.read(after=cursor, lanes=lanes)]


@pytest.mark.full
async def test_cursors_stay_valid_over_restarts_in_a_bounded_head(session: Session, restarting: RealServer) -> None:
    lives = count(10_000, least=100)
    first = await session.publish(said("a"), told("b"), said("c"), key="mine")
    await project(session, USAGE)
    await session.save_checkpoint("reader", first.cursor)
    await restart(restarting, session, lives)
    head = await session.head()
    assert head.position == 3 + lives
    assert len(head.incarnations) == KEPT
    again = await session.publish(said("a"), told("b"), said("c"), key="mine")
    assert again.is_duplicate
    assert again.cursor == first.cursor
    stored = await session.load_projection(USAGE.name, USAGE.version)
    assert stored is not None
    for cursor in (first.cursor, again.cursor, stored.cursor, await session.load_checkpoint("reader") or START):
        assert cursor.incarnation == first.incarnation
        assert (await behind(session, cursor))[0].position == 4
        async with aclosing(session.follow(after=cursor)) as envelopes:
            assert (await anext(envelopes)).position == 4
    assert await session.save_checkpoint("another", first.cursor)
    entries = await read(session)
    assert len({envelope.incarnation for envelope in entries}) == lives + 1
    for envelope in (*entries[:8], *entries[-8:]):  # each entry's own cursor, in a list of one lane too
        wanted = [each for each in entries[envelope.position :] if each.lane is Lane.EXTENSION]
        assert await behind(session, envelope.cursor, EXTENSION) == wanted


async def test_a_stored_projection_of_a_trimmed_session_is_folded_on(bus: Bus, restarting: RealServer) -> None:
    for keep in (4, 6):  # the entry at the projection's checkpoint is there, or was the last to go
        session = bus.session(f"s{keep}")
        await session.publish(*(said("x") for _ in range(5)))
        before = await project(session, USAGE)
        await session.trim(keep)
        await restart(restarting, session)
        assert (await project(session, USAGE)).position == 5 + KEPT + 2
        assert before.position == 5


async def test_a_cursor_of_one_lane_is_valid_at_positions_of_both(session: Session, restarting: RealServer) -> None:
    await session.publish(told("a"))
    await restart(restarting, session)
    await session.publish(*(said("x") for _ in range(3)))
    await restart(restarting, session)
    for until in range(1, 10):
        pages = [page async for page in session.pages(lanes=EXTENSION, until=until)]
        cursor = pages[-1].cursor
        assert cursor == (await read(session))[until - 1].cursor
        assert [e.position for e in await behind(session, cursor)] == [*range(until + 1, 15)]


async def test_a_cursor_of_a_live_delta_is_good_after_restarts(session: Session, restarting: RealServer) -> None:
    await session.publish(said("a"))
    async with aclosing(session.follow(live=True)) as envelopes:
        await anext(envelopes)
        await session.preview(Delta(kind="text", message_id="m", delta="x"))
        seen = (await anext(envelopes)).cursor
    assert seen[:2] == (1, 1)
    await restart(restarting, session)
    async with aclosing(session.follow(after=seen, live=True)) as envelopes:
        assert word(await anext(envelopes)) == "s0"


async def test_cursors_of_what_a_fork_shares_are_good_after_restarts(bus: Bus, restarting: RealServer) -> None:
    parent = bus.session("p")
    await restart(restarting, parent)
    middle = await parent.fork(4)
    await restart(restarting, middle)
    child = await middle.fork(7)
    cursors = [envelope.cursor for envelope in await read(child)]
    for session in (parent, middle, child):
        await restart(restarting, session)
    assert [envelope.cursor for envelope in (await read(child))[:7]] == cursors
    for cursor in cursors:
        assert (await behind(child, cursor))[0].position == cursor.position + 1
        with pytest.raises(LogRolledBack):
            await behind(child, cursor._replace(incarnation=f"{cursor.position - 1}_lost"))


async def test_cursors_of_archived_entries_stay_valid_and_others_raise(restarting: RealServer, tmp_path: Path) -> None:
    archive = DirectoryArchive(tmp_path)
    async with Bus.open(restarting.url, archive=archive, bounds=restarting.bounds) as bus:
        session = bus.session("s")
        await restart(restarting, session, 10)
        cursors = [envelope.cursor for envelope in await read(session)]
        await session.archive()
        await session.trim(8)
        await restart(restarting, session)
        for cursor in cursors:
            assert (await behind(session, cursor))[0].position == cursor.position + 1
            with pytest.raises(LogRolledBack):
                await behind(session, cursor._replace(incarnation=f"{cursor.position - 1}_lost"))


async def test_a_cursor_that_nothing_proves_raises_as_trimmed(session: Session, restarting: RealServer) -> None:
    old = (await session.publish(told("a"))).cursor
    await session.publish(*(said("x") for _ in range(5)))
    await restart(restarting, session)
    await session.trim(5)  # of the extension lane only the cursor's own entry was trimmed, and none after it
    with pytest.raises(CursorTrimmed):
        await behind(session, old, EXTENSION)


async def test_a_rollback_names_the_last_common_position_after_any_number_of_restarts(restarting: RealServer) -> None:
    async with restarting.bus() as bus:
        session = bus.session("s")
        await restart(restarting, session)
        await session.publish(said("a"), said("b"))
    with copied(restarting) as restore:
        async with restarting.bus() as bus:
            session = bus.session("s")
            with restarting.talk() as say:
                say("DEBUG", "CHANGE-REPL-ID")
            await session.publish(said("c"), said("d"))
            lost = (await session.head()).cursor
            kept = [envelope.cursor for envelope in await read(session)][:7]
        restore()
    async with restarting.bus() as bus:
        session = bus.session("s")
        await restart(restarting, session)
        for cursor in kept:
            assert (await behind(session, cursor))[0].position == cursor.position + 1
        beyond = kept[-1]._replace(position=9)  # as if its server had written more before it lost its end
        for cursor, found in ((lost, 0), (beyond, 7)):
            for ask in (session.read, session.follow):
                with pytest.raises(LogRolledBack) as caught:
                    await anext(ask(after=cursor))
                assert (caught.value.seen, caught.value.found) == (9, found)
            with pytest.raises(LogRolledBack):
                await session.save_checkpoint("reader", cursor)
        assert (await words(session))[5:8] == ["a", "b", "s0"]


def head(position: int, *incarnations: tuple[str, int]) -> SessionHead:
    return SessionHead(
        "s", position, 0.0, 0.0, 0, 0, 0, is_closed=False, incarnations=tuple(Incarnation(*i) for i in incarnations)
    )


def test_a_cursor_is_valid_up_to_the_end_of_its_incarnation_and_an_entry_is_of_the_one_that_wrote_it() -> None:
    log = head(20, ("a", 0), ("b", 10))
    agreed = {Cursor(0): 0, Cursor(5): 5, Cursor(25): 20, Cursor(10, 0, "a"): 10, Cursor(11, 0, "a"): 10}
    agreed |= {Cursor(15, 0, "b"): 15, Cursor(20, 3, "b"): 20, Cursor(21, 0, "b"): 20, Cursor(3, 0, "lost"): 0}
    assert {cursor: log.common_position(cursor) for cursor in agreed} == agreed
    assert [log.incarnation_of(position) for position in (0, 1, 10, 11, 20)] == ["", "a", "a", "b", "b"]


@pytest.mark.cluster("smoke test of incarnations")
@pytest.mark.sentinel("smoke test of incarnations")
async def test_a_session_that_vanished_and_came_again_is_another_one(server: AnyServer) -> None:
    async with server.bus() as bus:
        await bus.session("s").publish(said("a"))
        cursor = (await bus.session("s").head()).cursor
    server.do("FLUSHALL")
    async with Bus.open(server.url) as bus:
        await bus.session("s").publish(said("b"), said("c"))
        with pytest.raises(LogRolledBack):
            _ = [e async for e in bus.session("s").read(after=cursor)]


COPY = "kept/"
LLM = frozenset({Lane.LLM})


def keys_of(server: RealServer, prefix: str = "") -> list[str]:
    found = server.do("KEYS", "*")
    assert isinstance(found, list)
    return [key for key in map(str, found) if key.startswith(COPY) == bool(prefix)]


def keep(server: RealServer) -> None:
    """Keep a copy of all keys."""
    with server.talk() as say:
        for key in keys_of(server):
            say("COPY", key, COPY + key, "REPLACE")


def put_back(server: RealServer) -> None:
    """Replace all keys by the kept copies. The server goes on with the same replication id."""
    with server.talk() as say:
        say("DEL", *keys_of(server))
        for key in keys_of(server, COPY):
            say("COPY", key, key.removeprefix(COPY))


async def publish_all(session: Session, text: str) -> Cursor:
    """Publish each letter on its own, to both lanes in turn. Return the cursor of the last."""
    cursor = START
    for letter in text:
        cursor = (await session.publish(said(letter) if letter.lower() < "m" else told(letter))).cursor
    return cursor


async def replaced(server: RealServer, lost: str, new: str, session: str = "s") -> Cursor:
    """Append `lost` to "ab", restore the copy that ends with "ab", and append `new`. Return the cursor of `lost`.

    Other producers append, so that no producer finds a hole in its numbers.
    """
    async with server.bus() as bus:
        await publish_all(bus.session(session), "ab")
        keep(server)
    async with server.bus() as bus:
        cursor = await publish_all(bus.session(session), lost)
    put_back(server)
    async with server.bus() as bus:
        for letter in new:
            await publish_all(bus.session(session), letter)
    return cursor


@pytest.mark.parametrize("new", ["", "C", "CD", "CDE", "CDEFGHI", "CDxyz"])
async def test_a_cursor_of_a_replaced_entry_raises_however_much_was_appended_since(one: RealServer, new: str) -> None:
    cursor = await replaced(one, "cd", new)
    async with one.bus() as bus:
        session = bus.session("s")
        for lanes in (ALL_LANES, LLM, frozenset({Lane.EXTENSION})):
            for ask in (session.read, session.follow):
                with pytest.raises(LogRolledBack) as caught:
                    await anext(ask(lanes=lanes, after=cursor))
                assert (caught.value.seen, caught.value.found) == (4, 0)
        assert [word(each) async for each in session.read(after=Cursor(caught.value.found))] == ["a", "b", *new]
        with pytest.raises(LogRolledBack):
            await session.save_checkpoint("mirror", cursor)


async def test_entries_of_earlier_incarnations_are_certainly_unchanged(process: RealServer) -> None:
    async with process.bus() as bus:
        before = await publish_all(bus.session("s"), "ab")
    process.kill()
    process.start()
    async with process.bus() as bus:
        await publish_all(bus.session("s"), "c")
    keep(process)
    async with process.bus() as bus:
        cursor = await publish_all(bus.session("s"), "d")
    put_back(process)
    async with process.bus() as bus:
        session = bus.session("s")
        await publish_all(session, "DE")
        with pytest.raises(LogRolledBack) as caught:
            await anext(session.read(after=cursor))
        assert (caught.value.seen, caught.value.found) == (4, 2)
        assert [word(each) async for each in session.read(after=before)] == ["c", "D", "E"]


async def test_a_cursor_without_a_proof_means_what_it_meant(one: RealServer) -> None:
    cursor = await replaced(one, "cd", "CDE")
    old = Cursor.parse(str(cursor).rpartition(".")[0])
    assert (old.incarnation, old.proof) == (cursor.incarnation, "")
    async with one.bus() as bus:
        assert [word(each) async for each in bus.session("s").read(after=old)] == ["E"]


async def test_all_cursors_of_an_entry_are_equal_and_read_from_their_text(session: Session, one: RealServer) -> None:
    receipts = [await session.publish(said("a"), told("b")), await session.publish(said("c"), key="k")]
    found = await read(session)
    assert [found[1].cursor, found[2].cursor] == [each.cursor for each in receipts]
    assert (await session.publish(said("c"), key="k")).cursor == receipts[1].cursor
    assert (await session.head()).cursor == receipts[1].cursor
    assert [page.cursor async for page in session.pages()][-1] == receipts[1].cursor
    assert [page.cursor async for page in session.pages(lanes={Lane.EXTENSION}, until=2)][-1] == found[1].cursor
    assert len({each.cursor.proof for each in found}) == 3
    assert all(Cursor.parse(str(each.cursor)) == each.cursor for each in found)


async def test_publishes_of_one_message_have_different_proofs(one: RealServer) -> None:
    """Otherwise a reader of the second would take the first for it, after a rollback."""
    first, second = await replaced(one, "c", "c"), Cursor(0)
    async with one.bus() as bus:
        second = (await bus.session("s").head()).cursor
    assert first[:3] == second[:3]
    assert first.proof != second.proof


@pytest.mark.parametrize("direct_sessions", [1, 0])
async def test_a_follower_that_runs_is_told_and_gets_the_new_entries(one: RealServer, direct_sessions: int) -> None:
    bound_hub(one, direct_sessions=direct_sessions, block_seconds=0.1)
    async with one.bus() as writer, one.bus() as bus, background() as tasks:
        await publish_all(writer.session("s"), "ab")
        keep(one)
        held, losses = list[str](), list[LogRolledBack]()

        async def follow() -> None:
            after, kept = Cursor(0), list[Envelope]()
            while True:
                try:
                    async for envelope in bus.session("s").follow(after=after):
                        kept.append(envelope)
                        held[:] = [word(each) for each in kept]
                except LogRolledBack as lost:
                    losses.append(lost)
                    after = Cursor(lost.found)
                    kept = [each for each in kept if not each.cursor.is_after(after)]

        tasks.start_soon(follow)
        async with one.bus() as other:
            await publish_all(other.session("s"), "cd")
        await eventually(lambda: held == [*"abcd"])
        put_back(one)
        async with one.bus() as other:
            await publish_all(other.session("s"), "CDE")
        await eventually(lambda: held == [*"abCDE"])
        assert losses


async def test_folds_of_replaced_entries_are_made_again(bus: Bus, session: Session, one: RealServer) -> None:
    async with one.bus() as writer:
        await publish_all(writer.session("s"), "ab")
        keep(one)
        async with one.bus() as other:
            await publish_all(other.session("s"), "cd")
        warm = WarmContext(session)
        await warm.refresh()
        await project(session, USAGE)
        checkpoint = await session.load_projection(USAGE.name, USAGE.version)
        assert checkpoint is not None
        put_back(one)
        async with one.bus() as other:
            await publish_all(other.session("s"), "CDE")
            # The checkpoint itself may come from elsewhere, and so outlive the log that it was made of.
            await session.save_projection(
                USAGE.name, USAGE.version, checkpoint.state, cursor=checkpoint.cursor, expected=0
            )
            assert (await project(session, USAGE)).cursor == (await session.head()).cursor
            with pytest.raises(LogRolledBack):
                await warm.refresh()
            context = await WarmContext(session).refresh()
        assert [str(each.message) for each in context.path] == [
            str(each.message) for each in await read(session) if each.lane is Lane.LLM
        ]


EXPECTATIONS = ["cursor", "text", "receipt"]


@pytest.mark.parametrize("form", EXPECTATIONS)
async def test_a_publish_expects_the_end_that_its_caller_saw(session: Session, one: RealServer, form: str) -> None:
    receipt = await session.publish(said("a"))
    forms: dict[str, Cursor | str | Receipt] = {
        "cursor": receipt.cursor,
        "text": str(receipt.cursor),
        "receipt": receipt,
    }
    seen = forms[form]
    second = await session.publish(said("b"), expected=seen)
    assert second.positions == (2,)
    with pytest.raises(Conflict) as caught:
        await session.publish(said("c"), expected=seen)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    with pytest.raises(Conflict):
        await session.hand_over("other", expected=seen)
    await session.hand_over("other", expected=second)
    await session.close(expected=(await session.head()).cursor)


@pytest.mark.parametrize("new", ["", "C", "CD", "cd"])
async def test_a_publish_that_expects_a_replaced_entry_is_refused(one: RealServer, new: str) -> None:
    cursor = await replaced(one, "cd", new)
    async with one.bus() as bus:
        session = bus.session("s")
        for call in (
            session.publish(said("e"), expected=cursor),
            session.close(expected=cursor),
            session.hand_over("other", expected=cursor),
        ):
            with pytest.raises(LogRolledBack) as caught:
                await call
            assert (caught.value.seen, caught.value.found, caught.value.of_expected) == (4, 0, True)
        assert isinstance(await session.try_publish(said("e"), expected=cursor), LogRolledBack)
        assert await words(session) == ["a", "b", *new]


async def test_a_publish_whose_session_moved_on_after_a_rollback_is_a_conflict(one: RealServer) -> None:
    cursor = await replaced(one, "cd", "CDE")
    async with one.bus() as bus:
        with pytest.raises(Conflict):
            await bus.session("s").publish(said("f"), expected=cursor)


async def test_a_publish_expects_an_entry_that_was_trimmed_since(session: Session, one: RealServer) -> None:
    cursor = await publish_all(session, "abc")
    await session.trim(4)
    assert (await session.publish(said("d"), expected=cursor)).positions == (4,)
    assert [word(each) async for each in session.read(after=cursor)] == ["d"]


async def test_a_fork_of_a_replaced_entry_never_shows_another_history(one: RealServer) -> None:
    async with one.bus() as bus:
        await publish_all(bus.session("s"), "ab")
        keep(one)
    async with one.bus() as bus:
        await publish_all(bus.session("s"), "cd")
        await bus.session("s").fork(4, id="f")
        assert await words(bus.session("f")) == [*"abcd"]
    with one.talk() as say:  # the fork is not among the keys that go back
        for key in keys_of(one, COPY):
            say("DEL", key.removeprefix(COPY))
            say("COPY", key, key.removeprefix(COPY))
    async with one.bus() as bus:
        await publish_all(bus.session("s"), "CDE")
        with pytest.raises(LogRolledBack):
            await words(bus.session("f"))


async def test_a_cursor_of_a_live_delta_proves_the_entry_that_it_hangs_below(one: RealServer) -> None:
    async with one.bus() as bus:
        await publish_all(bus.session("s"), "ab")
        keep(one)
    async with one.bus() as bus:
        session = bus.session("s")
        cursor = await publish_all(session, "cd")
        await session.preview(Delta(message_id="m", block=0, kind="text", delta="x"))
        delta = (await anext(session.follow(after=cursor, live=True))).cursor
        assert delta.delta >= 0
        assert (delta.incarnation, delta.proof) == (cursor.incarnation, cursor.proof)
    put_back(one)
    async with one.bus() as bus:
        session = bus.session("s")
        await publish_all(session, "CDE")
        with pytest.raises(LogRolledBack):
            await anext(session.follow(after=delta._replace(delta=1), live=True))


async def test_a_reconnect_reads_the_page_and_its_proof_in_one_round_trip(
    session: Session, one: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = await publish_all(session, "a")
    await publish_all(session, "bcdefgh")
    assert len([each async for each in session.read(after=cursor)]) == 7  # loads the script
    pool, trips = session.resources.log.pool, list[Sequence[object]]()
    call_many = type(pool).call_many

    async def counted(self: object, commands: Sequence[Sequence[object]], **more: float) -> object:
        trips.append(commands)
        return await call_many(self, commands, **more)  # type: ignore[arg-type]  # the pool's own

    monkeypatch.setattr(type(pool), "call_many", counted)
    assert len([each async for each in session.read(after=cursor)]) == 7
    assert len(trips) == 1


async def test_a_log_without_listed_ends_is_checked_by_its_entries(bus: Bus, session: Session, one: RealServer) -> None:
    """Heads of an earlier version list no ends of appends."""
    cursor = await publish_all(session, "ab")
    one.do("HDEL", Keys().head("s"), "ends")
    assert (await session.head()).cursor.proof == ""
    refused = await bus.session("s").try_publish(said("c"), expected=cursor._replace(proof="0"))
    assert isinstance(refused, LogRolledBack)
    assert (await session.publish(said("c"), expected=cursor)).positions == (3,)
    assert [word(each) async for each in session.read(after=cursor)] == ["c"]


async def test_a_bus_that_published_lost_entries_is_told_once(other: Bus, session: Session, one: RealServer) -> None:
    await publish_all(session, "ab")
    keep(one)
    await publish_all(session, "cd")
    put_back(one)
    await publish_all(other.session("s"), "CDE")
    with pytest.raises(LogRolledBack) as caught:
        await session.publish(said("e"))
    assert not caught.value.of_expected
    assert (await session.publish(ExtensionMessage.of("told", "F"))).positions == (6,)
    assert await words(session) == [*"abCDEF"]
