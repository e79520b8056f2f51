"""The outcomes of a publish as values, and the limits of a session, on every server."""

import pytest

from lanebus import Bus, Conflict, ExtensionMessage, Fenced, Limits, Receipt, Session, SessionClosed
from lanebus.bus.wire import CLOSED, REOPENED
from lanebus.errors import MessageTooLarge, OverLimit
from tests.support.log.said import read, said, told
from tests.support.servers.real import AnyServer

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
    lease = await session.acquire_lease("w", 60)
    assert lease is not None
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
