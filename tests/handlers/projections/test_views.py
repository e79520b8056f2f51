"""States that a process which looks keeps in memory: what a second look reads, and what ends them."""

import pytest
from pydantic import TypeAdapter

from lanebus import AssistantMessage, Bus, Lane, Session, UserMessage
from lanebus.bus.wire import Cursor, Envelope, Keys
from lanebus.errors import SessionErased
from lanebus.handlers.projections import Projected, Projection, ViewBounds, Views, look, session_lines
from lanebus.handlers.serve.api.turns import turns_view
from lanebus.handlers.serve.api.views import status_view, usage_view
from tests.support.log.said import said
from tests.support.servers.real import AnyServer

__all__ = ()


class Words:
    """A projection of the words that were said, and the positions it was shown."""

    def __init__(self) -> None:
        self.folded: list[int] = []
        self.projection: Projection[tuple[str, ...]] = Projection(
            name="words", version=1, state=TypeAdapter(tuple[str, ...]), initial=(), evolve=self._evolve
        )

    def take(self) -> list[int]:
        """What was folded since this was asked last."""
        folded, self.folded = self.folded, []
        return folded

    def _evolve(self, state: tuple[str, ...], envelope: Envelope) -> tuple[str, ...]:
        self.folded.append(envelope.position)
        message = envelope.message
        return (*state, message.text_content()) if isinstance(message, UserMessage) else state


def forget(server: AnyServer, session: str) -> None:
    """Delete every key of a session, as a server that was set up anew has none."""
    keys, bucket = Keys(), Keys().bucket(session)
    names = server.do("KEYS", "*")
    assert isinstance(names, list)
    for name in map(str, names):
        if name.startswith(keys.head(session).removesuffix("head")):
            server.do("DEL", name)
    server.do("HDEL", keys.sessions(bucket), session)


async def test_the_second_look_folds_only_what_is_new(server: AnyServer) -> None:
    views, words = Views(), Words()
    async with server.bus() as bus, server.bus() as other:
        session = bus.session("s")
        assert (await views.look(session, words.projection)).state == ()
        await other.session("s").publish(said("a"), said("b"))
        assert (await views.look(session, words.projection)).state == ("a", "b")
        assert words.take() == [1, 2]
        assert (await views.look(session, words.projection)).state == ("a", "b")
        assert words.take() == []
        await other.session("s").publish(said("c"))
        assert await views.look(session, words.projection) == Projected(("a", "b", "c"), (await session.head()).cursor)
        assert words.take() == [3]
        assert await session.checkpoints() == {}


@pytest.mark.parametrize("bounds", [ViewBounds(sessions=1), ViewBounds(size_bytes=1)])
async def test_a_full_memory_forgets_the_session_that_was_not_looked_at_for_longest(
    bus: Bus, bounds: ViewBounds
) -> None:
    views, words = Views(bounds), Words()
    one, two = bus.session("one"), bus.session("two")
    await one.publish(said("a"), said("b"))
    await two.publish(said("x"))
    for session, state, folded in (
        (one, ("a", "b"), [1, 2]),
        (one, ("a", "b"), []),
        (two, ("x",), [1]),
        (two, ("x",), []),
        (one, ("a", "b"), [1, 2]),
    ):
        assert (await views.look(session, words.projection)).state == state
        assert words.take() == folded


async def test_the_bound_of_bytes_counts_every_state_of_a_session(bus: Bus) -> None:
    views, one = Views(ViewBounds(size_bytes=19)), Words()
    second = Projection(name="second", version=1, state=TypeAdapter(tuple[str, ...]), initial=(), evolve=lambda s, _: s)
    for name in ("a", "b"):
        await bus.session(name).publish(said("x"), said("y"))
    for name in ("a", "b"):
        assert (await views.look(bus.session(name), one.projection)).state == ("x", "y")
    assert one.take() == [1, 2, 1, 2]  # two states of `["x","y"]` fit
    await views.look(bus.session("b"), second)
    await views.look(bus.session("b"), one.projection)
    assert one.take() == []
    await views.look(bus.session("a"), one.projection)
    assert one.take() == [1, 2]  # a third, `[]`, did not fit, and this one went


async def test_a_state_of_an_erased_session_goes_with_the_next_sweep(bus: Bus) -> None:
    views, words = Views(ViewBounds(sweep_seconds=1e-9)), Words()
    for name in ("gone", "kept"):
        await bus.session(name).publish(said("a"))
        await views.look(bus.session(name), words.projection)
    await bus.session("gone").erase()
    await views.sweep(bus.log)
    assert list(views._sessions) == ["kept"]  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("is_erased", [True, False])
async def test_a_session_of_the_same_name_on_a_new_server_is_folded_from_its_beginning(
    server: AnyServer, *, is_erased: bool
) -> None:
    views, words = Views(), Words()
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("b"))
        assert (await views.look(session, words.projection)).state == ("a", "b")
        if is_erased:
            await session.erase()
            with pytest.raises(SessionErased):
                await views.look(session, words.projection)
    forget(server, "s")
    async with server.bus() as bus:
        session = bus.session("s")
        if is_erased:
            assert (await views.look(session, words.projection)).state == ()
        await session.publish(said("c"), said("d"), said("e"))
        assert (await views.look(session, words.projection)).state == ("c", "d", "e")


async def test_a_log_that_lost_its_end_is_folded_anew(server: AnyServer) -> None:
    views, words = Views(), Words()
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"), said("b"))
        assert (await views.look(session, words.projection)).state == ("a", "b")
        server.do("XDEL", Keys().lane("s", Lane.LLM), "2-0")
        server.do("HSET", Keys().head("s"), "position", "1")
        assert (await views.look(session, words.projection)).state == ("a",)


async def test_a_session_trimmed_past_its_state_is_counted_from_what_is_kept(session: Session) -> None:
    views, words = Views(), Words()
    await session.publish(said("a"), said("b"))
    assert (await views.look(session, words.projection)).counted_from is None
    await session.trim(3)
    assert await views.look(session, words.projection) == Projected(("a", "b"), (await session.head()).cursor)
    await session.publish(said("c"), said("d"))
    await session.trim(4)
    now = await views.look(session, words.projection)
    assert (now.state, now.counted_from) == (("d",), 4)
    await session.publish(said("e"))
    words.take()
    now = await views.look(session, words.projection)
    assert (now.state, now.counted_from, words.take()) == (("d", "e"), 4, [5])


async def test_an_empty_session_that_begins_as_a_fork_counts_as_one(bus: Bus) -> None:
    views = Views()
    assert (await usage_view(views, bus.session("child")))["calls"] == 0
    await bus.session("s").publish(AssistantMessage.text("a"), said("b"))
    child = await bus.session("s").fork(1, id="child")
    await child.publish(said("c"))
    assert (await usage_view(views, child))["calls"] == 0  # that one was counted for the parent
    assert (await turns_view(views, child))["countedFrom"] is None
    for view in (usage_view, turns_view):
        assert await view(views, child) == await view(Views(), child)
    known, again = [await status_view(each, child, "idle", None) for each in (views, Views())]
    assert known == again


async def test_a_list_of_sessions_goes_on_from_the_last_one(bus: Bus) -> None:
    views = Views()
    await bus.session("a").publish(said("x"))
    await bus.session("b").publish(said("y"))
    first = await session_lines(bus, views)
    await bus.session("a").publish(said("z"))
    assert await session_lines(bus, views) == await session_lines(bus)
    assert {name: line.state.llm for name, line in first.items()} == {"a": 1, "b": 1}


async def test_a_look_goes_on_from_an_earlier_one_that_the_caller_gives(session: Session) -> None:
    words = Words()
    await session.publish(said("a"), said("b"))
    known = Projected[tuple[str, ...]](("known",), (await session.head()).cursor_at(1))
    assert (await look(session, words.projection, known=known)).state == ("known", "b")
    far = Projected[tuple[str, ...]](("far",), Cursor(9, 0, known.cursor.incarnation))
    assert (await look(session, words.projection, known=far)).state == ("a", "b")
