"""The states of a projection as entries arrive: from a cursor, and with checkpoints on the way."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest

from lanebus import Cursor, ExtensionMessage, Session, Unavailable, UserMessage
from lanebus.errors import DecodeError, SessionErased
from lanebus.projections import Projected, follow, look, project, projection, rebuild
from tests.support.log.said import said
from tests.support.servers.real import AnyServer, RealServer, eventually

__all__ = ()

Said = tuple[str, ...]

NOTE = ExtensionMessage.of("note")


@projection("said", version=1)
def heard(words: Said, message: UserMessage) -> Said:
    if message.text_content() == "odd":
        raise DecodeError("", "odd")
    return (*words, message.text_content())


async def take(states: AsyncGenerator[Projected[Said]], number: int) -> list[tuple[Said, int]]:
    found = [await anext(states) for _ in range(number)]
    return [(each.state, each.position) for each in found]


async def stored(session: Session) -> int:
    checkpoint = await session.load_projection("said", 1)
    return 0 if checkpoint is None else checkpoint.position


async def test_each_selected_entry_gives_a_state(server: AnyServer) -> None:
    async with server.bus() as bus, server.bus() as other:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard)) as states:
            assert await take(states, 1) == [(("a",), 1)]
            await other.session("s").publish(NOTE, said("b"), NOTE, said("c"))
            assert await take(states, 2) == [(("a", "b"), 3), (("a", "b", "c"), 5)]


async def test_following_after_a_cursor_gives_the_states_after_it(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("b"), NOTE, said("c"))
        async with aclosing(follow(session, heard)) as states:
            whole = await anext(states)
        cases: list[tuple[Cursor, list[tuple[Said, int]]]] = [
            (Cursor(0), [(("a",), 1), (("a", "b"), 2), (("a", "b", "c"), 4)]),
            (Cursor(2), [(("a", "b", "c"), 4)]),
            (Cursor(3), [(("a", "b", "c"), 4)]),
        ]
        for after, expected in cases:
            assert await stored(session) == 4
            async with aclosing(follow(session, heard, after=after)) as states:
                assert await take(states, len(expected)) == expected
        await session.publish(said("d"))
        async with aclosing(follow(session, heard, after=whole.cursor)) as states:
            assert await take(states, 1) == [(("a", "b", "c", "d"), 5)]


@pytest.mark.parametrize("after", [Cursor(9), Cursor(2, 0, "0_other")])
async def test_following_after_a_cursor_that_the_log_does_not_hold_begins_anew(one: RealServer, after: Cursor) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("b"))
        async with aclosing(follow(session, heard, after=after)) as states:
            assert await take(states, 1) == [(("a", "b"), 2)]


async def test_the_state_is_stored_every_so_many_entries_selected_or_not(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard, store_every=3)) as states:
            assert await take(states, 1) == [(("a",), 1)]
            await session.publish(said("b"), said("c"))
            await take(states, 2)
            assert await stored(session) == 1
            await session.publish(said("d"), said("e"))
            await take(states, 2)  # the second one is asked for after the checkpoint of the first
            assert await stored(session) == 4
            await session.publish(NOTE, NOTE, said("f"))
            await take(states, 1)
            await session.publish(said("g"))
            await take(states, 1)
            assert await stored(session) == 8
        # What another process folds from the checkpoint is the same.
        assert await project(session, heard) == await rebuild(session, heard)


async def test_a_checkpoint_moves_on_past_entries_that_are_not_selected(one: RealServer) -> None:
    async with one.bus() as bus, one.bus() as other:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard, store_every=3)) as states:
            await anext(states)
            await session.publish(NOTE, NOTE, NOTE)

            async def wait() -> None:
                await anext(states)  # nothing more is selected

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                while await stored(other.session("s")) < 4:  # noqa: ASYNC110  # another process tells of it
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()


async def test_a_checkpoint_of_another_process_is_not_overwritten_by_an_earlier_one(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard, store_every=1)) as states:
            await take(states, 1)
            await session.publish(said("b"), said("c"), said("d"))
            await project(session, heard)
            await take(states, 3)
            assert await stored(session) == 4
            await session.publish(said("e"), said("f"))
            await take(states, 2)
            assert await stored(session) == 5


async def test_a_position_moves_on_past_entries_that_are_not_selected(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), NOTE, NOTE)
        now = await project(session, heard)
        assert (now.state, now.cursor) == (("a",), (await session.head()).cursor)
        await session.publish(NOTE)
        assert (await project(session, heard)).position == 4
        assert await stored(session) == 4


async def test_another_version_is_folded_anew(one: RealServer) -> None:
    @projection("said", version=2)
    def lengths(numbers: tuple[int, ...], message: UserMessage) -> tuple[int, ...]:
        return (*numbers, len(message.text_content()))

    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("bb"))
        await project(session, heard)
        assert (await project(session, lengths)).state == (1, 2)
        assert set(await session.checkpoints()) == {"p:said@1", "p:said@2"}
        assert await session.drop_projection("said", 1)


async def test_the_number_of_unreadable_events_survives_a_checkpoint(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        for number in (1, 2):
            await session.publish(said("odd"), said("a"))
            now = await project(session, heard)
            assert (now.state, now.unreadable) == (("a",) * number, number)
            assert await look(session, heard) == now


async def test_following_an_erased_session_ends_with_its_error(one: RealServer) -> None:
    async with one.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        async with aclosing(follow(session, heard)) as states:
            await anext(states)
            await session.erase()
            with pytest.raises(SessionErased):
                await anext(states)


async def test_following_waits_for_a_server_that_dies_after_a_rollback(valkey: RealServer) -> None:
    async with valkey.bus() as bus:
        session, found = bus.session("s"), list[tuple[Said, int]]()
        hub = bus._shards.of("s").hub  # pyright: ignore[reportPrivateUsage]  # when it notices shows nowhere else
        async with aclosing(follow(session, heard)) as states, anyio.create_task_group() as tasks:

            async def take_more() -> None:
                found.extend(await take(states, 2))

            await anext(states)
            await session.publish(said("a"))
            assert await take(states, 1) == [(("a",), 1)]
            valkey.do("FLUSHALL")
            valkey.kill()
            valkey.start()
            await eventually(lambda: hub.followed == {})
            valkey.kill()
            tasks.start_soon(take_more)
            for _ in range(10):  # meanwhile the projection finds that the server is gone
                with pytest.raises(Unavailable):
                    await session.head()
            valkey.start()
            async with valkey.bus() as other:
                await other.session("s").publish(said("b"))
        assert found[-1] == (("b",), 1)
