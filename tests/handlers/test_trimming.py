"""What is left to show of a session whose beginning was trimmed, and what holds a trim back."""

import pytest

from bus import AssistantMessage, Session, TrimRefused, Usage, UserMessage
from handlers.projections.projection import look
from handlers.projections.sessions import SESSIONS
from handlers.projections.trimming import trim_session
from handlers.projections.turns import TURNS
from handlers.projections.usage import USAGE
from tests.support.servers.real import AnyServer

__all__ = ()


def answer(tokens: int) -> AssistantMessage:
    return AssistantMessage(usage=Usage(input=tokens, total_tokens=tokens), stop_reason="stop")


async def views(session: Session) -> tuple[object, ...]:
    usage, turns = await look(session, USAGE), await look(session, TURNS)
    return usage.state, turns.state, (await look(session, SESSIONS)).state


async def test_looking_stores_nothing_and_holds_no_trim_back(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("a"), answer(1), wake=False)
        assert len(await views(session)) == 3
        assert await session.checkpoints() == {}
        assert (await session.trim(3)).entries == 2


async def test_views_of_a_trimmed_session_are_what_they_were(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("a"), answer(1), UserMessage.text("b"), answer(2), wake=False)
        await session.save_projection(
            "usage", USAGE.version - 1, b"{}", cursor=(await session.head()).cursor_at(1), expected=0
        )
        before = await views(session)
        assert (await trim_session(session, 3, dry_run=True)).holders == {}
        assert (await trim_session(session, 3)).first_kept == 3
        assert await views(session) == before
        await session.publish(answer(4))
        assert (await trim_session(session, 6)).first_kept == 6
        assert (await look(session, USAGE)).state.total.usage.input == 7


async def test_a_state_of_a_newer_version_holds_a_trim_and_the_error_names_the_command(server: AnyServer) -> None:
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("a"), answer(1), wake=False)
        cursor = (await session.head()).cursor_at(1)
        await session.save_projection("usage", USAGE.version + 1, b"{}", cursor=cursor, expected=0)
        with pytest.raises(TrimRefused, match="lanebus projections remove"):
            await trim_session(session, 3)
        assert await session.drop_projection("usage", USAGE.version + 1)
        assert (await trim_session(session, 3)).entries == 2
