"""The promises of a publish, its outcomes as values, and what is refused before anything is sent."""

import asyncio
from collections.abc import Awaitable, Callable, Sized
from functools import partial
from hashlib import sha256
from typing import cast

import anyio
import pytest

from lanebus import Bus, Cursor, ExtensionMessage, Lane, Limits, MediaRef, MessageError, Receipt, Session, SessionClosed
from lanebus.bounds import Bounds, PublishBounds
from lanebus.bus.errors import BusError, Conflict, Fenced, KeyTooLong, Unavailable
from lanebus.bus.wire import CLOSED, REOPENED, Keys
from lanebus.errors import DecodeError, LogRolledBack, MessageTooLarge, NotAMessage, OutcomeUnknown, OverLimit, Refused
from lanebus.messages import Delta, ImageBlock, Publishable, TurnEnded, TurnId, Usage, UserMessage
from tests.support.agent.agents import fresh_bus, until
from tests.support.log.groups import held_lease
from tests.support.log.said import assert_gap_free, read, said, told, word, words
from tests.support.servers.proxy import proxy
from tests.support.servers.real import AnyServer, RealServer, eventually, refused, shortly


async def sent() -> None:
    """Wait until all tasks wait, and their publishes are in flight or queued."""
    await anyio.wait_all_tasks_blocked()
    for _ in range(2):  # the publisher sends from a callback of the event loop
        await asyncio.sleep(0)


def placed(receipt: object) -> tuple[tuple[int, ...], bool]:
    """Return the positions of a publish, and whether it was a repeat."""
    assert isinstance(receipt, Receipt)
    return receipt.positions, receipt.is_duplicate


def has(found: Sized, count: int) -> bool:
    return len(found) >= count


@pytest.mark.cluster("smoke test of publishing")
@pytest.mark.sentinel("smoke test of publishing")
async def test_positions_run_on_over_both_lanes(session: Session) -> None:
    assert (await session.publish(said("a"))).positions == (1,)
    assert (await session.publish(told("b"), told("c"))).positions == (2, 3)
    assert (await session.publish(said("d"), told("e"), said("f"))).positions == (4, 5, 6)
    envelopes = await read(session)
    assert_gap_free(envelopes)
    assert [word(envelope) for envelope in envelopes] == list("abcdef")
    lanes = "".join("l" if envelope.lane is Lane.LLM else "e" for envelope in envelopes)
    assert lanes == "leelel"
    assert (await session.head()).position == 6


async def test_any_text_of_1_kib_may_be_a_key(session: Session, shared_valkey: RealServer) -> None:
    for key in (" ", "é\x00\n\"'", "{", "k" * 1_024):
        assert not (await session.publish(said("a"), key=key)).is_duplicate
        assert (await session.publish(said("a"), key=key)).is_duplicate


@pytest.mark.cluster("one commit is for sessions of several nodes")
async def test_one_group_commit_gives_each_publish_its_own_outcome(session: Session) -> None:
    lease = await held_lease(session, "me", 60)
    await session.publish(said("0"), key="old")
    results: dict[str, Receipt | Exception] = {}

    async def publish(name: str, *messages: UserMessage | ExtensionMessage, **conditions: object) -> None:
        try:
            results[name] = await session.publish(*messages, **conditions)  # type: ignore[arg-type]  # by name
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            results[name] = error

    async with anyio.create_task_group() as tasks:  # all wait at the same time: one flight
        for name, count, conditions in (
            ("plain", 2, {}),
            ("conflict", 3, {"expected": 1}),
            ("expected", 1, {"expected": 3}),
            ("old", 4, {"key": "old"}),
            ("fenced", 2, {"epoch": lease.epoch + 1}),
            ("new", 2, {"key": "new"}),
            ("twin", 1, {"key": "new"}),
            ("leased", 1, {"epoch": lease.epoch}),
            ("last", 1, {}),
        ):
            tasks.start_soon(partial(publish, name, *[told(name)] * count, **conditions))
    assert placed(results["plain"]) == ((2, 3), False)
    assert isinstance(results["conflict"], Conflict)
    assert results["conflict"].found == 3
    assert placed(results["expected"]) == ((4,), False)
    assert placed(results["old"]) == ((1,), True)
    assert isinstance(results["fenced"], Fenced)
    assert results["fenced"].found == lease.epoch
    assert placed(results["new"]) == ((5, 6), False)
    assert placed(results["twin"]) == ((5, 6), True)
    assert placed(results["leased"]) == ((7,), False)
    assert placed(results["last"]) == ((8,), False)
    assert await words(session) == ["0", "plain", "plain", "expected", "new", "new", "leased", "last"]


async def test_lost_answers_keep_each_outcome(one: RealServer) -> None:
    async with proxy(one.socket) as way, Bus.open(way.url) as bus:
        session = bus.session("s")
        await session.publish(said("a"), key="k")
        way.lose = 1
        assert (await session.publish(said("b"), key="k")).is_duplicate
        way.lose = 1
        with pytest.raises(Conflict):
            await session.publish(said("c"), expected=0)
        way.lose = 2
        assert placed(await session.publish(said("d"), key="l")) == ((2,), False)
        assert way.lost == 4
        assert await words(session) == ["a", "d"]


@pytest.mark.cluster("each node has scripts of its own")
@pytest.mark.sentinel("a new primary knows no scripts")
async def test_forgotten_scripts_are_loaded_again(bus: Bus, server: AnyServer) -> None:
    for index in range(3):
        session = bus.session(f"s{index}")
        server.do("SCRIPT", "FLUSH")
        await session.publish(said("a"))
        server.do("SCRIPT", "FLUSH")
        assert await session.acquire_lease("me", 60) is not None
        server.do("SCRIPT", "FLUSH")
        assert await session.save_projection("p", 1, b"{}", cursor=Cursor(1), expected=0)
        assert await words(session) == ["a"]


async def test_a_server_killed_under_64_callers_keeps_each_publish_once(session: Session, process: RealServer) -> None:
    acknowledged: dict[str, int] = {}

    async def speak(caller: int) -> None:
        for turn in range(12):
            name = f"{caller}.{turn}"
            acknowledged[name] = (await session.publish(said(name), seconds=60)).position

    async with anyio.create_task_group() as tasks:
        for caller in range(64):
            tasks.start_soon(speak, caller)
        for round_ in range(1, 5):
            await eventually(partial(has, acknowledged, round_ * 64 * 2))
            process.kill()
            process.start()
    envelopes = await read(session)
    assert_gap_free(envelopes)
    assert {word(envelope): envelope.position for envelope in envelopes} == acknowledged
    for caller in range(64):
        turns = [name for name in map(word, envelopes) if name.startswith(f"{caller}.")]
        assert turns == [f"{caller}.{turn}" for turn in range(12)]


async def test_a_silent_server_makes_the_outcome_unknown_and_has_it(session: Session, process: RealServer) -> None:
    await session.publish(said("a"))
    process.pause()
    with pytest.raises(OutcomeUnknown) as caught:
        await session.publish(said("b"), key="b", seconds=1)
    assert caught.value.session == "s"
    process.resume()
    assert placed(await session.publish(said("b"), key="b")) == ((2,), True)
    assert await words(session) == ["a", "b"]


async def test_what_was_never_sent_is_unavailable_and_never_comes(session: Session, process: RealServer) -> None:
    process.kill()
    with pytest.raises(Unavailable) as caught:
        await session.publish(said("a"), seconds=0.2)
    assert not isinstance(caught.value, OutcomeUnknown)
    process.start()
    assert (await session.publish(said("b"))).position == 1
    assert await words(session) == ["b"]


async def test_what_was_sent_at_a_second_try_has_an_unknown_outcome(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url) as bus:
        session = bus.session("s")
        process.kill()
        way.lose = 1_000_000
        async with anyio.create_task_group() as tasks:

            async def publish() -> None:
                with pytest.raises(OutcomeUnknown):  # it is in the log, but no answer came
                    await session.publish(said("a"), seconds=3)  # enough to start a server

            tasks.start_soon(publish)
            await eventually(lambda: way.turned_away > 0)
            process.start()
        assert way.lost > 0
        way.lose = 0
        assert (await session.publish(said("b"))).position == 2
        assert await words(session) == ["a", "b"]


async def test_a_caller_cancelled_before_sending_adds_nothing(session: Session, process: RealServer) -> None:
    await session.publish(said("a"))
    process.pause()
    async with anyio.create_task_group() as tasks:
        for name in ("b", "c"):
            tasks.start_soon(session.publish, said(name))
            await sent()
        with anyio.move_on_after(0.05) as scope:  # after those that are in flight
            await session.publish(said("d"))
        assert scope.cancelled_caught
        process.resume()
    assert (await session.publish(said("e"))).position == 4
    assert await words(session) == ["a", "b", "c", "e"]


async def test_one_message_over_the_limit_keeps_its_whole_batch_out(session: Session) -> None:
    with pytest.raises(MessageTooLarge) as caught:
        await session.publish(said("small"), said("x" * 1_048_576))
    assert caught.value.size_bytes > caught.value.limit_bytes == 1_048_576
    assert (await session.head()).position == 0
    frame = len(said("").to_json()) + 8
    await session.publish(said("x" * (1_048_576 - frame - 100)))
    assert (await session.head()).position == 1


async def test_a_full_server_refuses_writes_nothing_half_and_recovers(session: Session, process: RealServer) -> None:
    await session.publish(said("a"))
    process.do("CONFIG", "SET", "maxmemory", "1")

    async def is_refused() -> bool:
        with pytest.raises(Unavailable) as caught:
            await session.publish(said("b"), told("c"), key="k", seconds=0.3)
        return not isinstance(caught.value, OutcomeUnknown)  # no answer in time, on a slow machine

    await until(is_refused)
    assert await words(session) == ["a"]
    async with anyio.create_task_group() as tasks:
        refusals = refused(process, "OOM")
        tasks.start_soon(session.publish, said("d"))
        await eventually(lambda: refused(process, "OOM") > refusals)
        process.do("CONFIG", "SET", "maxmemory", "0")
    assert placed(await session.publish(said("e"), key="k")) == ((3,), False)
    assert await words(session) == ["a", "d", "e"]


@pytest.mark.cluster("each node loses its sessions by itself")
@pytest.mark.sentinel("a failover may empty the log")
async def test_a_producer_is_told_of_an_emptied_server_and_continues(session: Session, server: AnyServer) -> None:
    await session.publish(said("a"), told("b"))
    server.do("FLUSHALL")
    with pytest.raises(LogRolledBack):
        await session.publish(said("c"))
    assert (await session.publish(said("d"))).position == 1
    assert await words(session) == ["d"]


async def test_callers_wait_for_a_full_queue_until_their_deadline(process: RealServer) -> None:
    async with process.bus(bounds=Bounds(publish=PublishBounds(queue_bytes=1_000))) as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        process.pause()
        async with anyio.create_task_group() as tasks:
            for name in ("b", "c", "d" * 2_000):
                tasks.start_soon(session.publish, said(name))
                await sent()
            with pytest.raises(Unavailable) as caught:
                await session.publish(said("e"), seconds=0.1)
            assert "room" in str(caught.value)
            tasks.start_soon(session.publish, said("f"))
            await sent()
            process.resume()
        assert [text[0] for text in await words(session)] == ["a", "b", "c", "d", "f"]


async def test_a_caller_that_waits_for_room_raises_when_the_bus_closes(valkey: RealServer) -> None:
    bounds = Bounds(publish=PublishBounds(queue_bytes=1_000, close_seconds=0.1))
    outcomes: list[Exception] = []

    async def publish(session: Session, text: str) -> None:
        try:
            await session.publish(said(text))
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            outcomes.append(error)

    async with shortly(), anyio.create_task_group() as tasks, valkey.bus(bounds=bounds) as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        valkey.pause()
        for text in ("b", "c", "d" * 2_000, "e"):
            tasks.start_soon(publish, session, text)
            await sent()
    assert sorted(type(error).__name__ for error in outcomes) == [
        "Closed",
        "Closed",
        "OutcomeUnknown",
        "OutcomeUnknown",
    ]


@pytest.mark.parametrize(
    ("key", "error"),
    [("k" * 1_025, KeyTooLong), ("é" * 513, KeyTooLong), ("k" * 65 * 1_048_576, KeyTooLong), ("\ud800", DecodeError)],
    ids=["one more", "in bytes", "65 MiB", "no text"],
)
async def test_a_publish_with_an_invalid_key_is_refused_and_harms_no_other(
    bus: Bus, shared_valkey: RealServer, key: str, error: type[Exception]
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.session("a").publish, said("a"))
        with pytest.raises(error) as caught:
            await bus.session("s").publish(said("b"), key=key)
        if isinstance(caught.value, KeyTooLong):
            assert caught.value.size_bytes == len(key.encode()) > caught.value.limit_bytes == 1_024
    assert (await bus.session("s").publish(said("c"))).position == 1
    assert await words(bus.session("a")) == ["a"]


@pytest.mark.cluster("one commit is for sessions of several nodes")
@pytest.mark.parametrize("part", ["head", "keys", "llm", "ext", "index", "sessions"])
async def test_a_key_of_a_wrong_type_refuses_its_session_alone(bus: Bus, server: AnyServer, part: str) -> None:
    keys = Keys()
    names = {
        "head": keys.head("s"),
        "keys": f"lanebus:{{{keys.bucket('s')}}}:s:s:keys",
        "llm": keys.lane("s", Lane.LLM),
        "ext": keys.lane("s", Lane.EXTENSION),
        "index": keys.index(keys.bucket("s")),
        "sessions": keys.sessions(keys.bucket("s")),
    }
    server.do("SET", names[part], "x")
    outcomes: dict[str, Receipt | Exception] = {}

    async def publish(name: str, text: str) -> None:
        try:
            outcomes[text] = await bus.session(name).publish(said(text), told(text), said(text), key=text)
        except Exception as error:  # noqa: BLE001  the outcome is what is looked at
            outcomes[text] = error

    async with anyio.create_task_group() as tasks:  # one flight
        for name, text in (("a", "before"), ("s", "first"), ("s", "second"), ("b", "behind")):
            tasks.start_soon(publish, name, text)
    assert placed(outcomes["before"]) == placed(outcomes["behind"]) == ((1, 2, 3), False)
    for failure in (outcomes["first"], outcomes["second"]):
        assert isinstance(failure, Refused)
        assert failure.code == "WRONGTYPE"
    server.do("DEL", names[part])
    assert (await bus.session("s").head()).position == 0
    assert await words(bus.session("s")) == []
    assert placed(await bus.session("s").publish(told("x"), said("y"), key="first")) == ((1, 2), False)
    assert await words(bus.session("s")) == ["x", "y"]
    assert placed(await bus.session("a").publish(said("z"))) == ((4,), False)
    assert await words(bus.session("a")) == ["before", "before", "before", "z"]


async def test_a_publish_that_may_be_in_the_log_is_not_refused_for_good(process: RealServer) -> None:
    async with proxy(process.socket) as way, Bus.open(way.url) as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        async with anyio.create_task_group() as tasks:

            async def publish() -> None:
                assert placed(await session.publish(said("b"))) == ((2,), False)

            way.lose = 1
            way.on_lost = lambda: process.do("ACL", "SETUSER", "default", "-evalsha", "-eval")
            tasks.start_soon(publish)
            await eventually(lambda: way.lost == 1)
            await eventually(lambda: refused(process, "NOPERM") > 0)
            process.do("ACL", "SETUSER", "default", "+evalsha", "+eval")
        assert placed(await session.publish(said("c"))) == ((3,), False)
        assert await words(session) == ["a", "b", "c"]


ABORT = ExtensionMessage.of("control.abort", None)


@pytest.mark.cluster("smoke test of publish outcomes")
@pytest.mark.sentinel("smoke test of publish outcomes")
async def test_every_answer_of_the_log_is_a_value(session: Session) -> None:
    first = await session.try_publish(said("a"), told("b"), key="k")
    assert isinstance(first, Receipt)
    assert (first.positions, first.is_duplicate) == ((1, 2), False)
    again = await session.try_publish(said("c"), key="k")
    assert isinstance(again, Receipt)
    assert (again.positions, again.is_duplicate, again.cursor) == ((1, 2), True, first.cursor)
    match await session.try_publish(said("d"), expected=7):
        case Conflict(expected=7, found=2):
            pass
        case other:
            raise AssertionError(other)
    lease = await held_lease(session, "w", 60)
    assert isinstance(await session.try_publish(said("d"), epoch=lease.epoch + 1), Fenced)
    assert isinstance(await session.try_publish(said("x" * 2_000_000)), MessageTooLarge)
    await session.close()
    assert isinstance(await session.try_publish(said("e")), SessionClosed)
    assert len(await read(session)) == 3


async def test_a_session_is_closed_in_one_step_with_its_last_messages(other: Bus, session: Session) -> None:
    await session.publish(said("a"))
    receipt = await session.close(said("b"), reason="done")
    assert receipt.positions == (2, 3)
    assert (await other.session("s").head()).is_closed
    note = (await read(other.session("s")))[-1].message
    assert note == ExtensionMessage.of(CLOSED, {"reason": "done"})
    assert isinstance(await other.session("s").try_publish(said("c")), SessionClosed)
    reopened = await other.session("s").reopen(said("d"), reason="more")
    assert reopened.positions == (4, 5)
    assert not (await session.head()).is_closed
    kinds = [e.message.kind for e in await read(session) if isinstance(e.message, ExtensionMessage)]
    assert kinds == [CLOSED, REOPENED]
    assert (await session.publish(said("e"))).position == 6


async def test_a_publish_in_the_same_step_as_the_end_comes_before_it_or_is_refused(session: Session) -> None:
    await session.publish(said("a"))
    import anyio

    outcomes: dict[str, object] = {}

    async def speak(word: str) -> None:
        outcomes[word] = await session.try_publish(said(word))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(speak, "before")
        tasks.start_soon(session.close)
        tasks.start_soon(speak, "behind")
    assert isinstance(outcomes["before"], Receipt)
    assert isinstance(outcomes["behind"], SessionClosed)


async def test_a_full_session_still_takes_control_and_its_end(server: AnyServer) -> None:
    limits = Limits(session_bytes=400, reserve_bytes=300)
    async with Bus.open(server.url, limits=limits) as bus, server.bus() as free:
        session = bus.session("s")
        while isinstance(outcome := await session.try_publish(said("a"), told("b")), Receipt):
            pass
        assert isinstance(outcome, OverLimit)
        head = await session.head()
        assert (outcome.scope, outcome.size_bytes, outcome.limit_bytes) == ("session", head.size_bytes, 400)
        assert head.size_bytes <= 400
        assert head.position % 2 == 0  # a batch went in whole or not at all
        await session.publish(ABORT)
        assert isinstance(await session.try_publish(ABORT, told("b" * 300)), OverLimit)
        await session.close(reason="full")
        assert isinstance(await bus.session("t").try_publish(said("a")), Receipt)
        await free.session("s").reopen()
        await free.session("s").publish(said("who has no limit"))


@pytest.mark.cluster("the bytes of all nodes are counted")
async def test_a_full_namespace_takes_nothing_but_control(server: AnyServer) -> None:
    limits = Limits(namespace_bytes=1_000, reserve_bytes=1_000)
    async with server.bus() as other:
        for name in "abcdefgh":
            await other.session(name).publish(said("x" * 100))
    async with Bus.open(server.url, limits=limits) as bus:
        outcome = await bus.session("z").try_publish(said("y" * 300))
        assert isinstance(outcome, OverLimit)
        assert (outcome.scope, outcome.limit_bytes) == ("namespace", 1_000)
        assert outcome.size_bytes == sum([head.size_bytes for head in await bus.sessions()])
        await bus.session("a").publish(ABORT)


EVENT = TurnEnded(turn_id=TurnId(loop_id="s.main.1", turn_index=0), stop_reason="stop", usage=Usage())

WRONG: dict[str, tuple[object, str, str]] = {
    "dict": ({"role": "user", "content": []}, "dict", "read_message"),
    "text": ("hello", "str", "UserMessage.text"),
    "nothing": (None, "NoneType", "UserMessage.text"),
    "bytes": (b"{}", "bytes", "read_message"),
    "number": (5, "int", "UserMessage.text"),
    "list": ([UserMessage.text("a")], "list", r"publish\(\*messages\)"),
    "class": (UserMessage, "the class UserMessage", "UserMessage.text"),
    "event": (EVENT, "TurnEnded", "as_extension"),
    "delta": (Delta(kind="text", message_id="m"), "Delta", "preview"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("method", ["publish", "try_publish", "close", "reopen"])
async def test_what_is_no_message_is_refused_before_anything_is_sent(name: str, method: str) -> None:
    wrong, given, advice = WRONG[name]
    async with fresh_bus() as bus:
        session = bus.session("s")
        calls: dict[str, Callable[..., Awaitable[object]]] = {
            "publish": session.publish,
            "try_publish": session.try_publish,
            "close": session.close,
            "reopen": session.reopen,
        }
        with pytest.raises(NotAMessage, match=advice) as refused:
            await calls[method](ExtensionMessage.of("note"), wrong)
        assert refused.value.given == given
        assert isinstance(refused.value, MessageError | BusError)
        assert isinstance(refused.value, TypeError)
        assert (await session.head()).position == 0
        assert (await session.publish(UserMessage.text("hello"))).position == 1


async def test_media_of_a_batch_with_something_else_in_it_are_not_stored() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s")
        data = b"\x89PNG\r\n\x1a\n" + bytes(100_000)
        with pytest.raises(NotAMessage):
            await session.publish(
                UserMessage.of(ImageBlock(media=MediaRef.from_bytes(data))), cast("Publishable", "hello")
            )
        assert await session.media.head(sha256(data).hexdigest()) is None
