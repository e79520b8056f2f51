"""A session in one line."""

from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from lanebus import AssistantMessage, Bus, DecodeFailure, Envelope, ExtensionMessage, Lane, TextBlock, Usage
from lanebus.archive import DirectoryArchive
from lanebus.errors import UnknownKind
from lanebus.messages import AgentEnded, Cost, TurnId, TurnStarted, UserMessage
from lanebus.projections import SESSIONS, project, session_lines
from tests.support.agent.folding import fold, log_of

__all__ = ()

USAGE = Usage(input=10, total_tokens=10, cost=Cost(total=Decimal("0.1")))
TURN = TurnId(loop_id="s1.main.1", turn_index=0)


def title(text: str) -> str | None:
    return fold(SESSIONS, log_of(UserMessage.text(text))).title


def test_a_line_counts_entries_turns_and_money() -> None:
    line = fold(
        SESSIONS,
        log_of(
            UserMessage.text("What is\n17 × 23?"),
            ExtensionMessage.of("notification", None),
            AssistantMessage(usage=USAGE),
            AssistantMessage(usage=USAGE, stop_reason="error"),
            UserMessage.text("and now?"),
        ),
    )

    assert (line.llm, line.extension, line.turns, line.usage) == (4, 1, 2, USAGE.combine(USAGE))
    assert line.title == "What is 17 × 23?"
    assert (line.first_activity, line.last_activity) == (1.0, 5.0)


def test_a_turn_counts_once_by_its_event_and_its_messages() -> None:
    second = TurnId(loop_id=TURN.loop_id, turn_index=1)
    line = fold(
        SESSIONS,
        log_of(
            TurnStarted(turn_id=TURN),
            AssistantMessage(turn_id=TURN),
            AssistantMessage(turn_id=TURN),
            AssistantMessage(turn_id=second),
            TurnStarted(turn_id=second),
            AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=2, usage=Usage()),
            ExtensionMessage.of("agent.turn.started", "nonsense"),
        ),
    )
    assert line.turns == 2
    assert line.open_loops == {}


def test_a_title_is_one_line_of_at_most_80_characters() -> None:
    long = title("word " * 100_000)
    assert long is not None
    assert len(long) <= 80
    assert long.endswith("word…")
    assert title("x" * 80) == "x" * 80


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x07\u202e\n\tb", "a⟨U+001B⟩[31mred⟨U+0007⟩⟨U+202E⟩ b"),
        ("ev\u200bi\u200dl\ufeff", "ev⟨U+200B⟩i⟨U+200D⟩l⟨U+FEFF⟩"),
        ("\U000e0067\u3164", "⟨U+E0067⟩⟨U+3164⟩"),
        ("👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم", "👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم"),
        ("\u200b" * 3000, "⟨U+200B⟩" * 9 + "⟨U+200B…"),
    ],
)
def test_a_title_has_codes_for_invisible_characters_that_no_writing_needs(text: str, shown: str) -> None:
    assert title(text) == shown


@pytest.mark.parametrize("character", ["e\u0301", "👨\u200d👩\u200d👧", "👍🏽", "🇵🇹", "❤\ufe0f", "क्षि"])
def test_a_title_is_never_cut_within_a_character(character: str) -> None:
    for before in range(60, 82):
        found = title("x" * before + character + "y" * 40)
        assert found is not None
        assert len(found) <= 80
        rest = found.removesuffix("…").lstrip("x").rstrip("y")
        assert rest in {"", character}


def test_a_title_comes_from_the_first_message_that_has_text() -> None:
    line = fold(SESSIONS, log_of(UserMessage(content=(TextBlock(text=" "),)), UserMessage.text("hello")))
    assert line.title == "hello"


async def test_every_session_of_the_bus_has_its_line(bus: Bus) -> None:
    await bus.session("one").publish(UserMessage.text("first"))
    await bus.session("two").publish(UserMessage.text("second"), AssistantMessage(usage=USAGE))

    lines = await session_lines(bus)

    assert {name: (line.state.title, line.position) for name, line in lines.items()} == {
        "one": ("first", 1),
        "two": ("second", 2),
    }


async def test_a_trimmed_session_has_a_line_of_what_is_left(bus: Bus) -> None:
    for name in ("late", "counted", "erased"):
        await bus.session(name).publish(UserMessage.text("first"), UserMessage.text("second"))
    await project(bus.session("counted"), SESSIONS)
    await bus.session("late").trim(2)
    await bus.session("counted").trim(3)
    await bus.session("erased").erase()

    lines = await session_lines(bus)

    assert {name: (line.state.title, line.state.llm, line.position) for name, line in lines.items()} == {
        "late": ("second", 1, 2),
        "counted": ("first", 2, 2),
    }
    assert await bus.session("late").load_projection(SESSIONS.name, SESSIONS.version) is None


async def test_a_session_whose_archive_is_damaged_has_a_line_of_what_is_left(tmp_path: Path) -> None:
    opened = partial(Bus.open, data_dir=tmp_path / "bus", archive=DirectoryArchive(tmp_path / "archive"))
    async with opened() as bus:
        await bus.session("s").publish(UserMessage.text("first"), UserMessage.text("second"))
        await bus.session("s").archive()
        await bus.session("s").trim(2)
        assert (await session_lines(bus))["s"].state.title == "first"
        await bus.session("s").drop_projection(SESSIONS.name, SESSIONS.version)
    for file in (tmp_path / "archive").rglob("*.gz"):
        file.unlink()
    async with opened() as bus:
        assert (await session_lines(bus))["s"].state.title == "second"


def test_an_entry_that_cannot_be_read_is_counted_and_has_no_time() -> None:
    broken = Envelope("s1", 2, Lane.LLM, DecodeFailure(UnknownKind("x"), b"{}"), 0.0, "test")
    line = fold(SESSIONS, [*log_of(UserMessage.text("x")), broken])
    assert (line.llm, line.last_activity) == (2, 1.0)
