"""Commands on a log in which sessions are damaged: the others are shown, and every hint is a command that works."""

import re
import shlex
from pathlib import Path
from typing import cast

import anyio
import pytest

from lanebus.bus import open_server
from lanebus.bus.messages import Lane
from lanebus.bus.wire import Keys
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.resp import Resp

__all__ = ()

pytestmark = pytest.mark.full

_COMMAND = re.compile(r"`lanebus ([^`]+)`")


async def plant(lanebus: CommandLine, *commands: tuple[str, ...]) -> None:
    """Send Redis commands to the embedded server, as a foreign client."""
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            for words in commands:
                redis(*words)


@pytest.fixture(scope="module")
def damaged(module_lanebus: CommandLine) -> CommandLine:
    """Sessions without an entry in the middle, without a lane, without a head, with a damaged head, and a whole one.

    Tests only read them.
    """
    for name in ("hole", "lane", "head", "field", "whole"):
        for text in ("one", "two", "three"):
            assert module_lanebus("publish", name, text).code == 0
    anyio.run(
        plant,
        module_lanebus,
        ("XDEL", Keys().lane("hole", Lane.LLM), "2-0"),
        ("DEL", Keys().lane("lane", Lane.LLM)),
        ("DEL", Keys().head("head")),
        ("HSET", Keys().head("field"), "position", "many"),
    )
    return module_lanebus


def test_a_list_shows_damaged_sessions_with_their_faults(damaged: CommandLine) -> None:
    answer = damaged("sessions")
    assert answer.code == 0
    shown = {str(line["session"]): line for line in objects(answer.out)}
    assert set(shown) == {"hole", "lane", "whole"}
    assert (shown["whole"]["title"], shown["whole"]["error"]) == ("one", None)
    assert "after 1-0 up to 2 are missing" in str(shown["hole"]["error"])
    assert "of the llm lane of session 'lane'" in str(shown["lane"]["error"])
    assert "warning: not listed: session 'head'" in answer.err
    assert "warning: not listed: a stored value of session 'field'" in answer.err
    table = damaged.at_terminal("sessions", columns=300).out
    assert "damaged: entries of session 'hole'" in table
    for page in ("--limit 1", "--state open", "--agent agent"):
        assert damaged("sessions", *page.split()).code == 0


def test_a_search_for_waiting_sessions_names_those_that_it_could_not_read(damaged: CommandLine) -> None:
    answer = damaged("sessions", "--waiting")
    assert (answer.code, answer.out) == (0, "")
    for name in ("hole", "lane", "head", "field"):
        assert f"session '{name}'" in answer.err


@pytest.mark.parametrize("command", ["agents", "groups status", "top --once", "dead list", "verify --all"])
def test_other_commands_over_all_sessions_go_on(damaged: CommandLine, command: str) -> None:
    answer = damaged(*command.split())
    assert answer.code == (7 if command == "verify --all" else 0), answer.err


def test_an_archive_of_all_sessions_leaves_out_damaged_ones(damaged: CommandLine, tmp_path: Path) -> None:
    answer = damaged("archive", "--all", "--archive", tmp_path)
    assert answer.code == 7
    assert [line["session"] for line in objects(answer.out)] == ["whole"]
    for name in ("hole", "lane", "head", "field"):
        assert f"session '{name}'" in answer.err


@pytest.mark.parametrize("command", ["tail", "turns", "usage", "context", "replay"])
def test_missing_entries_have_code_7_and_hints_that_work(damaged: CommandLine, command: str) -> None:
    answer = damaged(command, "lane")
    assert answer.code == 7, answer.err
    assert "of the llm lane of session 'lane'" in answer.err
    named = _COMMAND.findall(answer.err)
    assert named
    for each in named:
        repeated = damaged(*shlex.split(each), *(["--dry-run"] if each.startswith("trim") else []))
        assert repeated.code == 0, (each, repeated.err)


def test_an_export_says_that_entries_are_missing_and_not_trimmed(damaged: CommandLine) -> None:
    answer = damaged("export", "lane")
    assert answer.code == 0
    assert "entries 1 to 3 are missing, no trim removed them, and are not exported" in answer.err


@pytest.mark.parametrize("command", ["tail", "show", "usage", "export", "fork", "hand-over"])
@pytest.mark.parametrize("session", ["head", "field"])
def test_a_damaged_head_has_code_7_and_its_hint_names_an_erasure(
    damaged: CommandLine, command: str, session: str
) -> None:
    answer = damaged(command, session, *(["billing"] if command == "hand-over" else []))
    assert answer.code == 7, answer.err
    assert f"`lanebus erase {session}`" in answer.err


@pytest.mark.parametrize("words", [("DEL",), ("HSET", "position", "many")], ids=["missing", "damaged"])
async def test_a_session_without_a_readable_head_can_be_erased(lanebus: CommandLine, words: tuple[str, ...]) -> None:
    for text in ("one", "two"):
        lanebus("publish", "s", text)
    await plant(lanebus, (words[0], Keys().head("s"), *words[1:]))
    erased = lanebus("erase", "s", "--yes")
    assert erased.code == 0, erased.err
    assert "s: erasing all that is left" in erased.err
    assert "was erased" in lanebus("tail", "s").err
    problems = cast("list[dict[str, str]]", lanebus("verify", "--all").object["problems"])
    assert {each["kind"] for each in problems} <= {"bucket_bytes"}  # the size was in the head
