"""What is left to show of a session whose beginning was trimmed, and what holds a trim back."""

import anyio
import pytest

from lanebus import AssistantMessage, Bus, Session, TrimRefused, Usage, UserMessage
from lanebus.handlers.projections import SESSIONS, TURNS, USAGE, look, trim_session
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()


def answer(tokens: int) -> AssistantMessage:
    return AssistantMessage(usage=Usage(input=tokens, total_tokens=tokens), stop_reason="stop")


async def views(session: Session) -> tuple[object, ...]:
    usage, turns = await look(session, USAGE), await look(session, TURNS)
    return usage.state, turns.state, (await look(session, SESSIONS)).state


async def test_looking_stores_nothing_and_holds_no_trim_back(session: Session) -> None:
    await session.publish(UserMessage.text("a"), answer(1), wake=False)
    assert len(await views(session)) == 3
    assert await session.checkpoints() == {}
    assert (await session.trim(3)).entries == 2


async def test_views_of_a_trimmed_session_are_what_they_were(session: Session) -> None:
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


async def test_views_of_a_session_trimmed_without_storing_them_count_what_is_kept_and_say_so(session: Session) -> None:
    await session.publish(UserMessage.text("a"), answer(1), UserMessage.text("b"), answer(2), wake=False)
    assert (await look(session, USAGE)).counted_from is None
    await session.trim(3)
    assert (await look(session, USAGE)).counted_from == 3
    assert (await look(session, TURNS)).counted_from == 3
    assert (await look(session, SESSIONS)).counted_from == 3
    assert (await look(session, USAGE)).state.total.usage.input == 2
    assert [turn.message for turn in (await look(session, TURNS)).state.turns] == [4]
    await session.trim(5)
    assert (await look(session, USAGE)).counted_from == 5
    assert await session.checkpoints() == {}


@pytest.mark.full
def test_usage_and_turns_tell_of_figures_that_lack_the_beginning(lanebus: CommandLine) -> None:
    said = '{"role":"assistant","content":[],"usage":{"input":1,"totalTokens":1}}\n'
    assert lanebus("publish", "s", "--json", stdin=said * 3).code == 0
    assert lanebus("usage", "s").object["counted_from"] is None

    async def trim() -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus:
            await bus.session("s").trim(3)

    anyio.run(trim)
    told = "s: counted from entry 3"
    usage, turns = lanebus("usage", "s"), lanebus("turns", "s")
    assert (usage.code, usage.object["total_tokens"], usage.object["counted_from"]) == (0, 1, 3)
    assert usage.err.startswith(told)
    assert "lanebus trim" in usage.err
    assert (turns.code, len(objects(turns.out)), turns.err.startswith(told)) == (0, 1, True)
    tree = lanebus("usage", "s", "--tree")
    assert (tree.object["counted_from"], tree.err.startswith(told)) == (3, True)


async def test_a_state_of_a_newer_version_holds_a_trim_and_the_error_names_the_remedy(session: Session) -> None:
    await session.publish(UserMessage.text("a"), answer(1), wake=False)
    cursor = (await session.head()).cursor_at(1)
    await session.save_projection("usage", USAGE.version + 1, b"{}", cursor=cursor, expected=0)
    with pytest.raises(TrimRefused, match="remove the stored projection"):
        await trim_session(session, 3)
    assert await session.drop_projection("usage", USAGE.version + 1)
    assert (await trim_session(session, 3)).entries == 2
