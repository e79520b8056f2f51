"""The outcomes of a publish as values, and the limits of a session, on every server."""

import pytest

from lanebus import Conflict, Cursor, ExtensionMessage, Fenced, Limits, Receipt, SessionClosed
from lanebus.bus import Bus
from lanebus.bus.wire import CLOSED, REOPENED
from lanebus.errors import MessageTooLarge, OverLimit
from tests.support.log.said import read, said, told, words
from tests.support.servers.real import AnyServer

ABORT = ExtensionMessage.of("control.abort", None)


@pytest.mark.cluster("smoke test of publish outcomes")
@pytest.mark.sentinel("smoke test of publish outcomes")
async def test_every_answer_of_the_log_is_a_value(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
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
        lease = await session.acquire_lease("w", 60)
        assert lease is not None
        assert isinstance(await session.try_publish(said("d"), epoch=lease.epoch + 1), Fenced)
        assert isinstance(await session.try_publish(said("x" * 2_000_000)), MessageTooLarge)
        await session.close()
        assert isinstance(await session.try_publish(said("e")), SessionClosed)
        assert len(await read(session)) == 3


async def test_a_session_is_closed_in_one_step_with_its_last_messages(server: AnyServer) -> None:
    async with server.bus() as bus, server.bus() as other:
        session = bus.session("s")
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


async def test_a_close_that_is_refused_closes_nothing(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        try:
            await session.close(said("b"), expected=0)
        except Conflict:
            pass
        else:
            raise AssertionError("closed")
        assert not (await session.head()).is_closed
        assert await words(session) == ["a"]


async def test_a_repeat_of_what_went_in_before_the_end_is_a_duplicate(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), key="k")
        first = await session.close(key="end")
        assert (await session.publish(said("a"), key="k")).is_duplicate
        assert (await session.close(key="end")).positions == first.positions


async def test_a_publish_in_the_same_step_as_the_end_comes_before_it_or_is_refused(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
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


async def test_a_limit_of_one_message_is_kept_before_anything_is_sent(server: AnyServer) -> None:
    async with Bus.open(server.url, limits=Limits(message_bytes=100)) as bus:
        outcome = await bus.session("s").try_publish(said("a"), said("x" * 100))
        assert isinstance(outcome, MessageTooLarge)
        assert outcome.limit_bytes == 100
        assert (await bus.session("s").head()).position == 0


async def test_a_receipt_is_a_place_to_follow_from(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        receipt = await session.publish(said("a"))
        assert receipt.cursor.incarnation
        assert receipt.cursor == (await read(session))[0].cursor == (await session.head()).cursor
        await session.publish(said("b"))
        found = [e.position async for e in session.read(after=Cursor.parse(str(receipt.cursor)))]
        assert found == [2]
