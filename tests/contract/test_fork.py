"""Forks: the beginning is shared, not copied."""

import asyncio
from contextlib import aclosing
from itertools import count
from typing import NamedTuple, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import START, Bus, Cursor, Delta, Envelope, Lane, Session, TrimRefused
from lanebus.bus.wire import ALL_BYTES, Keys
from lanebus.errors import CursorTrimmed, LogRolledBack, NoSuchPosition, ParentErased, SessionErased, SessionExists
from tests.support.log.groups import held_lease
from tests.support.log.said import assert_gap_free, read, said, told, word, words
from tests.support.servers.kinds import Shared
from tests.support.servers.real import AnyServer, RealServer, shortly
from tests.support.suite.scale import examples

KEYS = Keys()


async def fill(session: Session, text: str) -> None:
    """Publish one message for each letter: one to the LLM lane, two to the other, and so on."""
    await session.publish(*[said(letter) if index % 3 == 0 else told(letter) for index, letter in enumerate(text)])


async def text(session: Session, *, after: Cursor = START, until: int | None = None) -> str:
    """Return the letters of all entries, as reading returns them."""
    return "".join([word(e) async for e in session.read(after=after, until=until)])


def pins(server: AnyServer, session: str) -> dict[str, str]:
    """Return what a session stores for its forks."""
    with server.talk() as say:
        reply = say("HGETALL", KEYS.checkpoints(session))
    assert isinstance(reply, list)
    return dict(zip(map(str, reply[::2]), map(str, reply[1::2]), strict=True))


@pytest.mark.cluster("smoke test of forking")
@pytest.mark.sentinel("smoke test of forking")
async def test_a_fork_reads_as_one_session_from_its_first_position_on(bus: Bus) -> None:
    parent = bus.session("p")
    await fill(parent, "abcdefgh")
    child = await parent.fork(5, id="c")
    await fill(child, "XYZ")
    await fill(parent, "ij")
    assert await words(parent) == [*"abcdefghij"]
    envelopes = await read(child)
    assert_gap_free(envelopes)
    assert [word(e) for e in envelopes] == [*"abcdeXYZ"]
    assert {e.session for e in envelopes} == {"c"}
    own = (await child.head()).incarnation_of(6)
    assert [e.incarnation for e in envelopes] == [(await parent.head()).incarnation_of(1)] * 5 + [own] * 3
    assert own != envelopes[0].incarnation


async def test_a_chain_of_many_forks_is_read(bus: Bus, shared_valkey: RealServer) -> None:
    session = bus.session("s0")
    await fill(session, "a")
    for number in range(1, 150):  # more than a head lists incarnations of
        session = await session.fork(id=f"s{number}")
        await session.publish(said("b"))
    envelopes = await read(session)
    assert_gap_free(envelopes)
    assert [word(e) for e in envelopes] == ["a", *["b"] * 149]
    for place in (30, 120):
        after = envelopes[place].cursor
        assert [e.position async for e in session.read(after=after)] == list(range(place + 2, 151))


async def test_a_fork_of_nothing_is_an_empty_session_with_a_parent(bus: Bus) -> None:
    await fill(bus.session("p"), "ab")
    child = await bus.session("p").fork(0, id="c")
    assert await read(child) == []
    head = await child.head()
    assert (head.position, head.origin) == (0, ("p", START))
    assert "c" in {h.session for h in await bus.sessions()}
    await fill(child, "x")
    assert await text(child) == "x"
    assert (await child.head()).created == head.created


async def test_a_fork_begins_with_nothing_of_its_own(bus: Bus, server: AnyServer) -> None:
    parent = bus.session("p")
    await parent.publish(said("a"), key="k")
    await parent.publish(said("b"))
    await held_lease(parent, "w", 60)
    child = await parent.fork(id="c")
    head = await child.head()
    assert (head.position, head.size_bytes, head.epoch, head.is_closed) == (2, 0, 0, False)
    assert 0 < head.created == head.updated
    assert await child.acquire_lease("other", 60) is not None
    receipt = await child.publish(said("c"), key="k")
    assert (receipt.positions, receipt.is_duplicate) == ((3,), False)
    assert (await child.publish(said("c"), key="k")).is_duplicate
    head = await child.head()
    assert head.size_bytes == len(said("c").to_json_bytes())
    assert head.created <= head.updated
    assert receipt.cursor == head.cursor
    async with server.bus() as other:
        assert (await other.session("c").publish(told("d"))).positions == (4,)
    total = sum(h.size_bytes for h in await bus.sessions())
    counted = [server.do("HGET", KEYS.sessions(bucket), ALL_BYTES) for bucket in range(KEYS.buckets)]
    assert total == sum(int(str(count)) for count in counted if count)


@pytest.mark.cluster("parent and fork are on different nodes")
@pytest.mark.parametrize(("after", "wanted"), [(0, "abxyz"), (1, "bxyz"), (2, "xyz"), (3, "yz")])
async def test_a_follower_gets_the_shared_part_the_own_part_and_what_comes(bus: Bus, after: int, wanted: str) -> None:
    await fill(bus.session("p"), "abc")
    child = await bus.session("p").fork(2, id="c")
    await fill(child, "x")
    cursor = (await child.head()).cursor_at(after)
    seen: list[Envelope] = []
    async with (
        shortly(),
        aclosing(child.follow(after=cursor, live=True)) as envelopes,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_say_more, bus)
        async for envelope in envelopes:
            seen.append(envelope)
            if word(envelope) == "z":
                break
    assert "".join(word(e) for e in seen) == wanted
    assert [e.position for e in seen] == list(range(after + 1, 6))
    assert {e.session for e in seen} == {"c"}


async def _say_more(bus: Bus) -> None:
    await bus.session("p").publish(said("!"))
    await bus.session("c").publish(told("y"), said("z"))


async def test_a_preview_in_a_fork_comes_after_the_shared_entries(bus: Bus) -> None:
    await fill(bus.session("p"), "abc")
    await bus.session("p").preview(Delta(kind="text", message_id="m", delta="parent's"))
    child = await bus.session("p").fork(2, id="c")
    await child.preview(Delta(kind="text", message_id="m", delta="fork's"))
    seen: list[Envelope] = []
    async with shortly(), aclosing(child.follow(live=True)) as envelopes:
        async for envelope in envelopes:
            seen.append(envelope)
            if isinstance(envelope.message, Delta):
                break
    assert [e.position for e in seen] == [1, 2, 2]
    last = seen[-1].message
    assert isinstance(last, Delta)
    assert last.delta == "fork's"


async def test_a_follower_at_the_end_of_the_shared_part_waits_for_the_first_entry(server: AnyServer) -> None:
    seen: list[str] = []
    async with server.bus() as bus, anyio.create_task_group() as tasks:
        await fill(bus.session("p"), "abc")
        child = await bus.session("p").fork(3)
        end = (await child.head()).cursor  # before anything is published after it

        async def follow() -> None:
            async with aclosing(child.follow(after=end)) as envelopes:
                async for envelope in envelopes:
                    seen.append(word(envelope))
                    if len(seen) == 2:
                        return

        tasks.start_soon(follow)
        async with shortly():
            await bus.session("p").publish(said("!"))
            await child.publish(said("x"))
            await child.publish(told("y"))
    assert seen == ["x", "y"]


async def test_a_cursor_of_the_shared_part_is_valid_in_both_sessions_and_a_later_one_in_its_own(bus: Bus) -> None:
    parent = bus.session("p")
    await fill(parent, "abcd")
    child = await parent.fork(2)
    await fill(child, "xyz")
    shared, of_parent = (await read(parent))[1].cursor, (await read(parent))[2].cursor
    of_child = (await read(child))[2].cursor
    assert await text(child, after=shared) == "xyz"
    assert await text(parent, after=shared) == "cd"
    for session, cursor in ((child, of_parent), (parent, of_child)):
        for ask in (session.read, session.follow):
            with pytest.raises(LogRolledBack):
                await anext(ask(after=cursor))


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_an_id_that_is_taken_is_not_forked_to(bus: Bus, server: AnyServer) -> None:
    parent, other = bus.session("p"), bus.session("o")
    await fill(parent, "abcd")
    await fill(other, "x")
    await parent.fork(2, id="c")
    with pytest.raises(SessionExists) as caught:
        await parent.fork(3, id="c")
    assert (caught.value.session, caught.value.parent, caught.value.at) == ("c", "p", 2)
    assert pins(server, "p") == {"f:c": "0"}  # the fork that there is still needs it
    for id_ in ("c", "p", "o"):
        with pytest.raises(SessionExists):
            await other.fork(id=id_)
    with pytest.raises(SessionExists) as caught:
        await parent.fork(id="o")
    assert (caught.value.parent, caught.value.at) == (None, 0)
    assert pins(server, "o") == {}
    assert pins(server, "p") == {"f:c": "0"}


async def test_no_session_becomes_the_fork_of_its_fork(bus: Bus) -> None:
    empty = bus.session("p")
    child = await empty.fork(id="c")
    for parent in (empty, child):
        with pytest.raises(SessionExists):
            await parent.fork(id="p")
    assert (await empty.head()).origin is None


@pytest.mark.parametrize("at", [5, 10**18])
async def test_a_position_that_is_not_there_is_not_forked_at(bus: Bus, server: AnyServer, at: int) -> None:
    await fill(bus.session("p"), "abcd")
    with pytest.raises(NoSuchPosition) as caught:
        await bus.session("p").fork(at, id="c")
    assert (caught.value.session, caught.value.position, caught.value.last) == ("p", at, 4)
    assert pins(server, "p") == {}
    assert (await bus.session("c").head()).position == 0


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_an_erased_session_is_not_forked_and_its_id_not_forked_to(bus: Bus, server: AnyServer) -> None:
    await fill(bus.session("p"), "ab")
    server.do("HSET", KEYS.head("gone"), "state", "erased")
    with pytest.raises(SessionErased) as caught:
        await bus.session("gone").fork(0)
    assert caught.value.session == "gone"
    with pytest.raises(SessionErased) as caught:
        await bus.session("p").fork(id="gone")
    assert caught.value.session == "gone"
    assert pins(server, "p") == {}


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_what_was_trimmed_is_not_forked_unless_an_archive_has_it(bus: Bus, server: AnyServer) -> None:
    parent = bus.session("p")
    await fill(parent, "abcdef")
    await parent.trim(4)
    with pytest.raises(CursorTrimmed) as caught:
        await parent.fork(2)
    assert caught.value.first_kept == 4
    child = await parent.fork(5, id="c")
    await fill(child, "x")
    assert (await child.head()).trimmed == 3
    assert await text(child, after=Cursor(3)) == "dex"
    for ask in (child.read, child.follow):
        with pytest.raises(CursorTrimmed) as caught:
            await anext(ask(after=Cursor(2)))
        assert (caught.value.session, caught.value.first_kept) == ("c", 4)
    server.do("HSET", KEYS.head("p"), "archived", "3")
    assert (await (await parent.fork(2)).head()).trimmed == 0


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_a_fork_holds_what_it_shares_until_it_is_passed_by_force(bus: Bus) -> None:
    parent = bus.session("p")
    await fill(parent, "abcdef")
    child = await parent.fork(4, id="c")
    await fill(child, "xy")
    with pytest.raises(TrimRefused) as refused:
        await parent.trim(3)
    assert dict(refused.value.holders) == {"f:c": 0}
    assert await text(child) == "abcdxy"
    await parent.trim(3, force=True)
    for ask in (child.read, child.follow):
        with pytest.raises(CursorTrimmed) as caught:
            await anext(ask())
        assert (caught.value.session, caught.value.first_kept) == ("c", 3)
    assert await text(child, after=Cursor(2)) == "cdxy"
    assert await text(await child.fork(5), after=Cursor(2)) == "cdx"


async def test_a_trim_of_a_fork_takes_its_own_entries_alone(bus: Bus) -> None:
    parent = bus.session("p")
    await fill(parent, "abcd")
    child = await parent.fork(3, id="c")
    await fill(child, "wxyz")
    size = (await parent.head()).size_bytes
    await child.trim(6)
    assert await text(child, after=Cursor(5)) == "yz"
    with pytest.raises(CursorTrimmed):
        _ = await text(child, after=Cursor(4))
    assert await text(parent) == "abcd"
    assert (await parent.head()).size_bytes == size
    assert (await child.head()).size_bytes == sum(len(e) for e in (told("y").to_json(), said("z").to_json()))


async def test_a_trim_of_a_fork_does_not_say_that_what_it_shares_is_gone(bus: Bus, server: AnyServer) -> None:
    parent = bus.session("p")
    await fill(parent, "abcd")
    child = await parent.fork(3, id="c")
    await fill(child, "wxyz")
    assert await child.trim(3) == (0, 0, 1, {})
    assert await child.trim(4, dry_run=True) == (0, 0, 1, {})
    assert (await child.head()).first_kept == 1
    await child.trim(6)
    again = await child.fork(2, id="again")
    assert (await text(again), (await again.head()).trimmed) == ("ab", 0)
    with pytest.raises(CursorTrimmed):
        await child.fork(4)
    # What was gone before a fork is gone for its forks, whatever it archives.
    await parent.trim(3, force=True)
    late = await parent.fork(4, id="l")
    await fill(late, "wx")
    server.do("HSET", KEYS.head("l"), "archived", "6")
    with pytest.raises(CursorTrimmed):
        await late.fork(1)
    assert (await (await late.fork(5, id="g")).head()).trimmed == 2


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_an_erased_fork_is_gone_and_its_parent_is_whole(bus: Bus, server: AnyServer) -> None:
    parent = bus.session("p")
    await fill(parent, "abcd")
    child = await parent.fork(3, id="c")
    await fill(child, "wxyz")
    await child.erase()
    with pytest.raises(SessionErased):
        await read(child)
    with pytest.raises(SessionErased):
        await parent.fork(3, id="c")
    assert pins(server, "p") == {}
    assert await text(parent) == "abcd"


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_a_fork_whose_parent_lost_its_end_never_shows_another_history(bus: Bus, server: AnyServer) -> None:
    parent = bus.session("p")
    await fill(parent, "abcdef")
    kept, forked = await parent.fork(2, id="kept"), await parent.fork(5, id="forked")
    deep = await forked.fork(4, id="deep")
    for child in (kept, forked, deep):
        await fill(child, "xy")
    cursor = (await read(forked))[5].cursor
    # As if the parent's server alone came back from a copy that ended at 3, and the session went on there.
    with server.talk() as say:
        for lane in Lane:
            entries = cast("list[tuple[str, list[str]]]", say("XRANGE", KEYS.lane("p", lane), "-", "3"))
            say("DEL", KEYS.lane("p", lane))
            for entry_id, fields in entries:
                say("XADD", KEYS.lane("p", lane), entry_id, *fields)
        say("HSET", KEYS.head("p"), "position", "3", "run", "another")
    for ask in (forked.read, forked.follow):
        with pytest.raises(LogRolledBack) as caught:
            _ = [e async for e in ask()]
        assert (caught.value.session, caught.value.seen, caught.value.found) == ("forked", 5, 3)
    async with server.bus() as other:
        await fill(other.session("p"), "DEFGH")
    assert await text(kept) == "abxy"
    for child, seen in ((forked, 5), (deep, 4)):
        with pytest.raises(LogRolledBack) as caught:
            await read(child)
        assert (caught.value.session, caught.value.seen, caught.value.found) == (child.id, seen, 3)
    assert await text(forked, after=cursor) == "y"
    assert await text(forked, until=3) == "abc"


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_a_fork_whose_parent_was_erased_by_force_raises(bus: Bus) -> None:
    await fill(bus.session("p"), "abcd")
    child = await bus.session("p").fork(3, id="c")
    await fill(child, "xy")
    grandchild = await child.fork(4, id="g")
    await bus.session("p").erase(force=True)
    for session in (child, grandchild):
        for ask in (session.read, session.follow):
            with pytest.raises(ParentErased) as caught:
                await anext(ask(after=Cursor(1)))
            assert (caught.value.session, caught.value.parent, caught.value.first_kept) == (session.id, "p", 4)
    assert await text(child, after=Cursor(3)) == "xy"
    assert await text(grandchild, after=Cursor(3)) == "x"


@pytest.mark.cluster("parent and fork are on different nodes")
async def test_an_interrupted_fork_is_continued(bus: Bus, server: AnyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = bus.session("p")
    await fill(parent, "abc")
    async with anyio.create_task_group() as tasks:
        with monkeypatch.context() as patched:

            async def never(*_: object) -> None:
                tasks.cancel_scope.cancel()
                await anyio.sleep_forever()

            patched.setattr("lanebus.bus.log.lineage._begin", never)
            await parent.fork(2, id="c")
    assert pins(server, "p") == {"f:c": "0"}
    assert (await bus.session("c").head()).origin is None
    child = await parent.fork(2, id="c")
    assert await text(child) == "ab"
    assert pins(server, "p") == {"f:c": "0"}


_names = count()


class Say(NamedTuple):
    """Publish to one of the existing sessions."""

    which: int
    lanes: str


class Fork(NamedTuple):
    """Fork one of the existing sessions, at a share of its length."""

    which: int
    part: float


class Model(NamedTuple):
    session: Session
    entries: list[tuple[Lane, str]]


_say = st.builds(Say, st.integers(-2, 9), st.text("le", min_size=1, max_size=4))
_fork = st.builds(Fork, st.integers(-2, 9), st.floats(0, 1))  # mostly of a young one, so that chains grow long


@pytest.mark.full
@examples(300)
@given(steps=st.lists(st.one_of(_say, _fork), min_size=6, max_size=24), data=st.data())
def test_a_tree_of_forks_reads_as_in_the_model(shared: Shared, steps: list[Say | Fork], data: st.DataObject) -> None:
    asyncio.run(_check(shared["valkey"], steps, data))


async def _check(server: AnyServer, steps: list[Say | Fork], data: st.DataObject) -> None:
    async with server.bus(f"t{next(_names)}") as bus:
        tree = [Model(bus.session("root"), [])]
        for number, step in enumerate(steps):
            model = tree[step.which % len(tree)]
            if isinstance(step, Fork):
                at = round(step.part * len(model.entries))
                tree.append(Model(await model.session.fork(at, id=f"s{number}"), model.entries[:at]))
            else:
                await _say_in(model, step.lanes, number)
        for model in tree:
            await _compare(model, data)
        assert sum(head.size_bytes for head in await bus.sessions()) == await _said_in_all(bus, tree)


async def _say_in(model: Model, lanes: str, number: int) -> None:
    spoken = [(Lane.LLM if letter == "l" else Lane.EXTENSION, f"{number}.{i}") for i, letter in enumerate(lanes)]
    await model.session.publish(*[said(text) if lane is Lane.LLM else told(text) for lane, text in spoken])
    model.entries.extend(spoken)


async def _compare(model: Model, data: st.DataObject) -> None:
    whole = [envelope async for envelope in model.session.read()]
    assert [(e.lane, word(e)) for e in whole] == model.entries
    assert [e.position for e in whole] == list(range(1, len(whole) + 1))
    assert {e.session for e in whole} <= {model.session.id}
    after, until = data.draw(st.integers(0, len(whole))), data.draw(st.none() | st.integers(0, len(whole)))
    cursor = whole[after - 1].cursor if after else Cursor(0)
    lanes = data.draw(st.sampled_from([frozenset(Lane), *(frozenset({lane}) for lane in Lane)]))
    part = [envelope async for envelope in model.session.read(lanes=lanes, after=cursor, until=until)]
    assert part == [e for e in whole[after:until] if e.lane in lanes]


async def _said_in_all(bus: Bus, tree: list[Model]) -> int:
    """Return the size of all entries, each counted in the session that it was published to."""
    total = 0
    for model in tree:
        head = await bus.session(model.session.id).head()
        own = model.entries[head.own_start.position :]
        total += sum(len((said(text) if lane is Lane.LLM else told(text)).to_json_bytes()) for lane, text in own)
    return total
