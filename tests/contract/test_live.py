"""Live deltas, on every server: all of the text, nothing twice, and nothing after the end, however late."""

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import cast

import anyio
import pytest

from lanebus import START, AssistantMessage, Bus, Cursor, Delta, Envelope, Fenced, Lane, Session, TextBlock, Unavailable
from lanebus.bus import Log
from lanebus.bus.previews import show_deltas
from lanebus.bus.wire import Entry, Keys, decode_delta
from lanebus.errors import DecodeError, MessageTooLarge, PreviewFull, Refused, SessionClosed
from tests.support.log.following import Follower, piece
from tests.support.log.groups import held_lease
from tests.support.log.said import assert_gap_free, said, told
from tests.support.servers.bounded import bound_hub, bound_live, bound_log
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, background, eventually

LLM = frozenset({Lane.LLM})


def whole(text: str, id: str = "m") -> AssistantMessage:
    return AssistantMessage(id=id, content=(TextBlock(text=text),))


def of(id: str, text: str, *, block: int = 0) -> Delta:
    return Delta(kind="text", message_id=id, delta=text, block=block)


def cut(id: str = "m", reason: str = "stopped") -> Delta:
    return Delta(kind="cut", message_id=id, delta=reason)


async def deaf(*_: object) -> None:
    """Replace the call that unblocks the hub, as if the user lacked the right; its read then times out."""
    raise Refused("NOPERM")


class Screen:
    """The text on a viewer's screen: pieces are appended, and snapshots replace their block."""

    def __init__(self) -> None:
        self.texts: defaultdict[str, str] = defaultdict(str)
        self.ended: set[str] = set()

    def show(self, envelopes: Sequence[Envelope]) -> "Screen":
        for envelope in envelopes:
            match envelope.message:
                case Delta(kind="cut", message_id=id):
                    self.ended.add(id)
                case Delta(message_id=id, delta=text, is_snapshot=is_snapshot):
                    assert id not in self.ended, f"{id} has ended, and {text!r} comes behind"
                    self.texts[id] = text if is_snapshot else self.texts[id] + text
                case AssistantMessage(id=str(id)):
                    self.ended.add(id)
                case _:
                    pass
        return self

    @property
    def open(self) -> dict[str, str]:
        return {id: text for id, text in self.texts.items() if id not in self.ended}


def stored(server: AnyServer, session: str = "s") -> int:
    """Return the number of deltas that a session keeps."""
    return int(str(server.do("XLEN", Keys().live(session))))


def counted(server: AnyServer, session: str = "s") -> int:
    """Return the bytes that the server counts for them."""
    return int(str(server.do("HGET", Keys().head(session), "live")).split(" ")[1])


def has_heard(follower: Follower, text: str) -> bool:
    return text in "".join(follower.words)


def shows(follower: Follower, text: str) -> bool:
    return Screen().show(follower.seen).texts == {"m": text}


async def open_texts(session: Session) -> dict[str, list[str]]:
    return {m.message_id: [block.delta for block in m.blocks] for m in await session.open_messages()}


# --- what is kept -------------------------------------------------------------------------------------------------


@pytest.mark.cluster("smoke test of previews")
@pytest.mark.sentinel("smoke test of previews")
async def test_deltas_are_numbered_from_one_below_the_newest_position(session: Session, server: AnyServer) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        follower = Follower(session, live=True).start(tasks)
        await eventually(follower.has(1))
        await session.preview(piece("1"), piece("2"))
        await session.publish(told("p"))
        await session.preview(piece("3"))
        await eventually(follower.has(5))
        places = [envelope.cursor.id for envelope in follower.seen]
        assert places == ["1-0", "1-1", "1-2", "2-0", "2-1"]
        # The stream expires some day. Who stands at 2-1 must not take what comes then for what was there.
        server.do("DEL", Keys().live("s"))
        await session.preview(piece("4"))
        await eventually(follower.has(6))
        assert follower.seen[-1].cursor.id == "2-2"


async def test_a_piece_whose_answer_was_lost_is_shown_once(one: RealServer) -> None:
    async with proxy(one.socket) as way, Bus.open(way.url) as bus, one.bus() as other:
        session = bus.session("s")
        await session.publish(said("q"))
        words = [f"{number} " for number in range(12)]
        for number, word in enumerate(words):
            way.lose = number % 4
            await session.preview(piece(word), piece(word))
            way.lose = 0
        assert way.lost >= 12
        assert await open_texts(other.session("s")) == {"m": ["".join(word * 2 for word in words)]}


async def test_a_late_live_delta_is_dropped_and_those_of_several_tasks_keep_their_order(session: Session) -> None:
    await session.publish(said("q"))
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(partial(session.preview, of("n", f"{number} "), of("n", "| ")))
    text = "".join(f"{number} | " for number in range(100))
    assert await open_texts(session) == {"n": [text]}
    log: Log = session.resources.log  # a command that a server holds back cannot be timed
    for number, speaker in ((7, "a"), (6, "a"), (6, "b"), (7, "a"), (8, "a"), (6, "b")):
        body = piece(f"{speaker}{number} ").to_json_bytes()
        await show_deltas(log, "s", speaker, number, [body], epoch=None, is_end=False)
    assert await open_texts(session) == {"n": [text], "m": ["a7 b6 a8 "]}


async def test_a_worker_that_lost_its_lease_shows_nothing_more(session: Session) -> None:
    await session.publish(said("q"))
    lost = await held_lease(session, "a", 60)
    await session.preview(piece("mine"), epoch=lost.epoch)
    await session.release_lease(lost)
    held = await held_lease(session, "b", 60)
    for delta in (piece("late"), cut()):
        with pytest.raises(Fenced):
            await session.preview(delta, epoch=lost.epoch)
    assert await open_texts(session) == {"m": ["mine"]}
    await session.preview(cut(), epoch=held.epoch)
    assert await open_texts(session) == {}


async def test_a_closed_session_accepts_cuts_and_no_other_live_deltas(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        follower = Follower(session, live=True).start(tasks)
        await eventually(follower.has(1))
        await session.preview(piece("half"))
        await session.close()
        with pytest.raises(SessionClosed):
            await session.preview(piece("more"))
        await session.preview(cut(reason="closed"))
        await eventually(lambda: "closed" in [e.message.delta for e in follower.seen if isinstance(e.message, Delta)])


async def test_an_invalid_live_delta_is_refused_before_any_is_shown(session: Session) -> None:
    await session.publish(said("q"))
    await session.preview()
    for bad, error in (
        (of("m", "\ud800"), DecodeError),
        (of("m", "x" * 1_048_576), MessageTooLarge),
        (of("m", "x").model_copy(update={"is_snapshot": True}), DecodeError),
    ):
        with pytest.raises(error):
            await session.preview(piece("good"), bad)
    assert await open_texts(session) == {}


async def test_a_preview_gives_up_on_a_silent_server_and_goes_on_when_it_answers(process: RealServer) -> None:
    async with process.bus() as bus, anyio.create_task_group() as tasks:
        session = bus.session("s")
        await session.publish(said("q"))
        process.pause()
        with pytest.raises(Unavailable):
            await session.preview(of("gone", "x"), seconds=0.05)
        tasks.start_soon(partial(session.preview, of("m", "one "), seconds=60))
        tasks.start_soon(partial(session.preview, of("m", "two"), seconds=60))
        await anyio.wait_all_tasks_blocked()
        process.resume()
        process.kill()
        process.start()
    async with process.bus() as bus:
        assert (await open_texts(bus.session("s")))["m"] == ["one two"]


# --- room ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_the_beginning_of_a_long_message_is_kept_until_its_end(session: Session, server: AnyServer) -> None:
    await session.publish(said("q"))
    # 20 a second for 10 minutes, 1 MiB in all; four times as much as makes room. Tiny bounds make room every 4 KiB.
    flushes, text = 12_000 if server.bounds is None else 1_200, ""
    for number in range(0, flushes, 200):
        pieces = [f"{n:07} ".ljust(87, ".") for n in range(number, number + 200)]
        await session.preview(*[of("long", each) for each in pieces])
        text += "".join(pieces)
        await session.preview(of(f"short {number}", "x" * 2_000))
        await session.publish(whole("x", f"short {number}"))
    assert len(text) == flushes * 87
    found = await session.open_messages()
    assert [message.message_id for message in found] == ["long"]
    assert found[0].blocks[0].delta == text


async def test_what_belongs_to_ended_messages_goes_first(server: AnyServer) -> None:
    bound_live(server, trim_bytes=4_000)
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("q"))
        await session.preview(of("open", "first"))
        for number in range(40):
            await session.preview(of(f"{number}", "x" * 1_000), of("open", f" {number}"))
            await session.publish(whole("x", f"{number}"))
        assert stored(server) < 40 + 1 + 8
        assert 4_000 < counted(server) < 16_000
        assert await open_texts(session) == {"open": ["first" + "".join(f" {number}" for number in range(40))]}
        # What the server counts is what is there.
        entries = cast("list[tuple[str, list[str]]]", server.do("XRANGE", Keys().live("s"), "-", "+"))
        assert counted(server) == sum(len(fields[3].encode()) + 64 for _, fields in entries)


async def test_a_message_that_outgrows_all_room_is_shown_as_far_as_it_went(server: AnyServer) -> None:
    bound_log(server, live_bytes=20_000)
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("q"))
        await session.preview(of("ended", "x" * 15_000))
        await session.publish(whole("x", "ended"))
        await session.preview(of("open", "a" * 10_000))  # for which the ended one has to go
        with pytest.raises(PreviewFull) as full:
            await session.preview(of("open", "b" * 10_000))
        assert full.value.limit_bytes == 20_000
        assert await open_texts(session) == {"open": ["a" * 10_000]}
        await session.preview(cut("open"))
        await session.preview(of("next", "c" * 15_000))
        assert await open_texts(session) == {"next": ["c" * 15_000]}


async def test_live_deltas_of_a_silent_message_are_removed_to_make_room(server: AnyServer) -> None:
    bound_log(server, live_bytes=20_000)
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("q"))
        old = of("forgotten", "x" * 15_000).to_json()
        server.do("XADD", Keys().live("s"), "1-1", "h", "1 1700000000000 somebody", "m", old)
        server.do("HSET", Keys().head("s"), "live", f"1-1 {len(old) + 64}")
        assert list(await open_texts(session)) == ["forgotten"]
        await session.preview(of("open", "a"))
        assert list(await open_texts(session)) == ["open"]
        await session.preview(of("open", "b" * 10_000))
        assert stored(server) == 2


# --- late followers -----------------------------------------------------------------------------------------------


@pytest.mark.cluster("the hub reads each node on a connection of its own")
@pytest.mark.parametrize("limit", [32, 0])
async def test_pieces_come_in_order_between_the_entries(server: AnyServer, limit: int) -> None:
    bound_hub(server, direct_sessions=limit)
    async with server.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("q"))
        early = Follower(session, live=True).start(tasks)
        unseeing = Follower(session).start(tasks)
        await eventually(early.has(1))
        await session.preview(piece("1"), piece("2"))
        await session.preview(piece("3"))
        await eventually(early.has(4))
        late = Follower(session, live=True).start(tasks)
        resumed = Follower(session, live=True, after=early.seen[2].cursor).start(tasks)
        await eventually(late.has(2))
        await eventually(resumed.has(1))
        await session.preview(piece("4"))
        await session.publish(told("p"))
        await session.preview(piece("5"))
        await session.publish(said("1 2 3 4 5"))
        for follower, wanted in (
            (early, ["q", "1", "2", "3", "4", "p", "5", "1 2 3 4 5"]),
            (late, ["q", "123", "4", "p", "5", "1 2 3 4 5"]),
            (resumed, ["3", "4", "p", "5", "1 2 3 4 5"]),
            (unseeing, ["q", "p", "1 2 3 4 5"]),
        ):
            await eventually(follower.has(len(wanted)))
            assert follower.words == wanted
        cursors = [envelope.cursor for envelope in early.seen]
        assert cursors == sorted(set(cursors))
        assert [cursor[:2] for cursor in cursors[:5]] == [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]


async def test_a_new_follower_first_gets_the_text_of_each_open_message(bus: Bus, other: Bus) -> None:
    async with background() as tasks:
        speaker, session = bus.session("s"), other.session("s")
        await speaker.publish(said("q"))
        await speaker.preview(of("over", "was whole"), of("ended", "was cut"))
        await speaker.preview(of("m", "Let ", block=0), of("n", "Bon"), of("m", "me ", block=0))
        await speaker.publish(told("p"), whole("was whole", "over"))
        await speaker.preview(of("m", "Hel", block=1), cut("ended"))
        await speaker.publish(said("another lane"), told("another entry"))
        head = await session.head()
        for after in (head.cursor, Cursor(head.position)):
            follower = Follower(session, live=True, after=after).start(tasks)
            await eventually(follower.has(3))
            assert [(e.position, e.delta, e.message) for e in follower.seen] == [
                (5, 0, Delta(kind="text", message_id="m", delta="Let me ", block=0, is_snapshot=True)),
                (5, 0, Delta(kind="text", message_id="m", delta="Hel", block=1, is_snapshot=True)),
                (5, 0, Delta(kind="text", message_id="n", delta="Bon", block=0, is_snapshot=True)),
            ]
            assert {envelope.cursor for envelope in follower.seen} == {after}
        await speaker.preview(of("m", "lo", block=1))
        await speaker.publish(whole("Hello", "m"), whole("Bon", "n"))
        await eventually(follower.has(6))
        assert follower.words[3:] == ["lo", "Hello", "Bon"]


async def test_a_follower_that_joins_anywhere_has_the_text_of_open_messages_only(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        await session.preview(of("over", "x"))
        await session.publish(whole("x", "over"))
        for number in range(6):
            await session.preview(of("m", f"{number} "), of("n", f"-{number} "))
            if number % 2:
                await session.publish(told("progress"), said("another lane"))
        last = (await session.head()).position
        for lanes in (frozenset(Lane), LLM):
            for position in range(last + 1):
                follower = Follower(session, live=True, after=Cursor(position), lanes=lanes).start(tasks)

                def is_there(follower: Follower = follower) -> bool:
                    return Screen().show(follower.seen).texts == {"m": "0 1 2 3 4 5 ", "n": "-0 -1 -2 -3 -4 -5 "}

                await eventually(is_there)


async def test_late_followers_share_decoded_pieces(shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0

    def counted_decode(session: str, entry: Entry) -> Envelope:
        nonlocal decoded
        decoded += 1
        return decode_delta(session, entry)

    monkeypatch.setattr("lanebus.bus.previews.decode_delta", counted_decode)
    async with shared_valkey.bus() as bus, shared_valkey.bus() as other, background() as tasks:
        speaker, session = bus.session("s"), other.session("s")
        await speaker.publish(said("q"))
        pieces = [of("m", f"{number} ") for number in range(300)]
        await speaker.preview(*pieces)
        followers = [Follower(session, live=True, after=Cursor(at % 2)).start(tasks) for at in range(10)]
        for follower in followers:
            await eventually(partial(has_heard, follower, "299"))
        await speaker.preview(of("m", "300 "))
        late = [Follower(session, live=True, after=Cursor(at % 2)).start(tasks) for at in range(10)]
        text = "".join(f"{number} " for number in range(301))
        for follower in (*followers, *late):
            await eventually(partial(shows, follower, text))
        assert decoded <= 301


async def test_cached_live_deltas_are_read_again_after_the_server_was_emptied(bus: Bus, server: AnyServer) -> None:
    async with server.bus() as reader:
        await bus.session("s").publish(said("q"))
        await bus.session("s").preview(of("m", "before "), of("m", "it "))
        assert await open_texts(reader.session("s")) == {"m": ["before it "]}
        server.do("FLUSHALL")
        async with server.bus() as other:
            await other.session("s").publish(said("q"))
            await other.session("s").preview(of("n", "behind "), of("n", "it "), of("n", "all"))
        assert await open_texts(reader.session("s")) == {"n": ["behind it all"]}


@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_joining_during_a_blocked_read_loses_no_delta(server: AnyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub does not notice the new subscription before its read returns."""
    monkeypatch.setattr(Log, "unblock", deaf)
    async with server.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("q"))
        first = Follower(session).start(tasks)
        await eventually(first.has(1))
        await session.publish(told("o"))
        await eventually(first.has(2))
        late = Follower(session, live=True, after=first.seen[-1].cursor).start(tasks)
        await eventually(lambda: bus.session("s").resources.hub.followed == {"s": 2})
        await session.preview(piece("1"))
        await session.publish(told("p"))
        await eventually(late.has(2))
        assert [envelope.cursor.id for envelope in late.seen] == ["2-1", "3-0"]


async def test_a_follower_ahead_of_the_hub_gets_no_cut_text(server: AnyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "unblock", deaf)
    async with server.bus() as bus, background() as tasks:
        session = bus.session("s")
        await session.publish(said("q"))
        other_lane = Follower(session, lanes=LLM).start(tasks)
        await eventually(other_lane.has(1))
        await session.publish(told("p"))
        await session.preview(piece("1"))
        await session.preview(cut())
        await session.publish(told("r"))
        late = Follower(session, live=True, after=(await session.head()).cursor).start(tasks)
        await eventually(lambda: bus.session("s").resources.hub.followed == {"s": 2})
        await session.publish(said("z"))
        await eventually(late.has(1))
        assert late.words == ["z"]


async def test_a_follower_from_the_start_gets_each_live_delta_at_its_position(other: Bus, session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        await session.preview(piece("a"), piece("b"), of("n", "x"), piece("c"))
        await session.publish(told("p"), told("p"))
        await session.preview(piece("d"))
        await session.publish(told("p"))
        await session.preview(piece("e"))
        follower = Follower(other.session("s"), live=True).start(tasks)
        await eventually(follower.has(9))
        places = [envelope.cursor.id for envelope in follower.seen]
        assert list(zip(places, follower.words, strict=True)) == [
            *(("1-0", "q"), ("1-2", "ab"), ("1-3", "x"), ("1-4", "c"), ("2-0", "p"), ("3-0", "p")),
            *(("3-1", "d"), ("4-0", "p"), ("4-1", "e")),
        ]


async def test_a_resumed_follower_gets_exactly_the_live_deltas_after_its_cursor(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        first = Follower(session, live=True).start(tasks)
        await eventually(first.has(1))
        for number in range(4):
            await session.preview(of("m", f"{number} "), of("n", f"-{number} "), of("m", "| "))
            await session.publish(told("progress"))
        await eventually(first.has(17))
        for seen in range(1, 18):
            before = first.seen[:seen]
            again = Follower(session, live=True, after=before[-1].cursor).start(tasks)

            def is_complete(again: Follower = again, before: Sequence[Envelope] = before) -> bool:
                return Screen().show([*before, *again.seen]).texts == Screen().show(first.seen).texts

            await eventually(is_complete)
            if before[-1].delta:
                assert not any(isinstance(e.message, Delta) and e.message.is_snapshot for e in again.seen)


async def test_a_resumed_follower_that_saw_a_message_begin_gets_its_cut(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        first = Follower(session, live=True).start(tasks)
        await eventually(first.has(1))
        await session.preview(of("m", "a"))
        await eventually(first.has(2))
        left = first.seen[-1].cursor
        await session.preview(of("m", "b"), cut("m"), of("n", "x"), cut("n"))
        await eventually(first.has(6))
        again = Follower(session, live=True, after=left).start(tasks)
        await eventually(again.has(2))
        await session.publish(told("end"))
        await eventually(again.has(3))
        assert again.words == ["b", "stopped", "end"]


async def test_a_follower_that_fell_behind_gets_every_live_delta_of_open_messages(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        seen: list[Envelope] = []
        go = anyio.Event()

        async def follow() -> None:
            async for envelope in session.follow(live=True, buffer_bytes=1_500):
                seen.append(envelope)
                if len(seen) > 3:
                    await go.wait()

        tasks.start_soon(follow)
        fast = Follower(session, live=True).start(tasks)
        await eventually(fast.has(1))
        for number in range(200):
            await session.preview(of("m", f"{number} "))
            if number % 50 == 3:
                await session.publish(told("p"))
        await eventually(fast.has(205))
        assert len(seen) == 4
        go.set()
        await eventually(lambda: Screen().show(seen).texts == Screen().show(fast.seen).texts)
        await session.preview(of("m", "end"))
        await eventually(lambda: Screen().show(seen).texts["m"].endswith("199 end"))
        assert not any(isinstance(e.message, Delta) and e.message.is_snapshot for e in seen)


async def test_no_live_delta_comes_after_the_end_of_its_message(session: Session) -> None:
    async with background() as tasks:
        await session.publish(said("q"))
        early = Follower(session, live=True).start(tasks)
        await eventually(early.has(1))
        await session.preview(of("m", "a"), of("n", "b"), cut("n"))
        await session.publish(whole("a", "m"))
        await eventually(early.has(5))
        late = Follower(session, live=True).start(tasks)
        now = Follower(session, live=True, after=Cursor(2)).start(tasks)
        await eventually(late.has(2))
        await session.preview(of("m", "late"), of("n", "late"))
        later = Follower(session, live=True).start(tasks)
        await session.publish(told("end"))
        for follower, wanted in (
            (early, ["q", "a", "b", "stopped", "a", "end"]),
            (late, ["q", "a", "end"]),
            (later, ["q", "a", "end"]),
        ):
            await eventually(lambda follower=follower: "end" in follower.words)  # type: ignore[misc]
            assert follower.words == wanted
        await eventually(lambda: "end" in now.words)
        assert await open_texts(session) == {}


@pytest.mark.parametrize("limit", [32, 0])
async def test_an_entry_is_not_lost_between_many_pieces(server: AnyServer, limit: int) -> None:
    bound_hub(server, direct_sessions=limit)
    async with server.bus() as bus, server.bus() as other, background() as tasks:
        ours, theirs = bus.session("s"), other.session("s")
        follower = Follower(ours, live=True).start(tasks)
        await eventually(lambda: "s" in bus._shards.of("s").hub.followed)  # pyright: ignore[reportPrivateUsage]  # it shows nowhere else
        for n in range(60):
            await theirs.publish(told(str(n)))
            await theirs.preview(*[piece(f"{n}.{k}") for k in range(150 if n == 30 else 3)])
        await eventually(lambda: "59.2" in follower.words)
        entries = [envelope for envelope in follower.seen if not envelope.delta]
        assert_gap_free(entries)
        assert len(entries) == 60
        cursors = [envelope.cursor for envelope in follower.seen]
        assert cursors == sorted(set(cursors))
        assert len(cursors) == 60 + 59 * 3 + 150


@pytest.mark.parametrize("lanes", [frozenset(Lane), LLM])
async def test_a_live_delta_after_many_entries_waits_for_them(bus: Bus, other: Bus, lanes: frozenset[Lane]) -> None:
    async with background() as tasks:
        ours, theirs = bus.session("s"), other.session("s")
        follower = Follower(ours, live=True, lanes=lanes).start(tasks)
        await theirs.publish(said("0"))
        await eventually(follower.has(1))
        for n in range(5):
            # More than the hub reads at a time; the piece is there before it has read them.
            await theirs.publish(*[said(str(n)) for _ in range(400)], told("p"))
            await theirs.preview(*[piece(f"d{n}")] * 100)
        await eventually(lambda: follower.words.count("d4") == 100)
        entries = [envelope.position for envelope in follower.seen if not envelope.delta]
        wanted = [n for n in range(1, 5 * 401 + 2) if lanes != LLM or (n - 1) % 401 or n == 1]
        assert entries == wanted


@pytest.mark.full
@pytest.mark.cluster("the hub reads each node on a connection of its own")
async def test_followers_that_come_and_go_have_the_text_of_every_message(server: AnyServer) -> None:
    """A viewer keeps its screen, leaves at any moment and comes back with the cursor of the last thing it saw."""
    bound_live(server, trim_bytes=3_000)
    chance = random.Random(3)  # noqa: S311  a test's dice
    async with server.bus() as bus, server.bus() as other:
        speaker, session = bus.session("s"), other.session("s")
        await speaker.publish(said("q"))
        spoken: dict[str, str] = {}
        is_over = anyio.Event()

        async def speak() -> None:
            begun = 0
            for step in range(500):
                match chance.choice(("begin", "say", "say", "say", "say", "entry", "end")):
                    case "begin" if len(spoken) < 3 or step > 480:
                        begun += 1
                        spoken[f"m{begun}"] = ""
                    case "say" if spoken:
                        id = chance.choice([*spoken])
                        words = [f"{step}.{n} " for n in range(chance.randint(1, 4))]
                        await speaker.preview(*[of(id, word) for word in words])
                        spoken[id] += "".join(words)
                    case "entry":
                        await speaker.publish(*[told("e")] * chance.randint(1, 3))
                    case "end" if len(spoken) > 1:
                        id = chance.choice([*spoken])
                        await speaker.publish(whole(spoken.pop(id) or "-", id))
                    case _:
                        pass
            await speaker.publish(told("over"))
            is_over.set()

        screens: list[Screen] = []

        async def view(after: Cursor) -> None:
            screen = Screen()
            screens.append(screen)
            while True:
                stay = chance.randint(1, 12)
                async for envelope in session.follow(after=after, live=True):
                    screen.show([envelope])
                    after = envelope.cursor
                    stay -= 1
                    if not stay and not is_over.is_set():
                        break

        async with background() as tasks:
            tasks.start_soon(speak)
            for _ in range(8):
                tasks.start_soon(view, chance.choice((START, (await session.head()).cursor)))
                await anyio.sleep(0.02)  # they come at different places of the log
            await is_over.wait()

            def is_told() -> bool:
                wanted = {id: text for id, text in spoken.items() if text}
                return all(screen.open == wanted for screen in screens)

            await eventually(is_told)
