"""`lanebus verify`: its reports and exit codes."""

import pytest

from lanebus.bus import open_server
from lanebus.bus.messages import Lane
from lanebus.bus.wire import Keys
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.resp import Resp

__all__ = ()

pytestmark = pytest.mark.full


async def plant(lanebus: CommandLine, *words: str) -> None:
    """Send one Redis command to the embedded server, as a foreign client."""
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            redis(*words)


def test_undamaged_sessions_are_reported_as_whole(lanebus: CommandLine) -> None:
    lanebus("publish", "one", "a")
    lanebus("publish", "two", "b")
    lanebus("usage", "two")
    whole: dict[str, object] = {
        "is_whole": True,
        "entries": 1,
        "problems": [],
        "unlisted": 0,
        "notes": [],
        "risk": None,
        "unproven": [],
    }
    answer = lanebus("verify", "two", "one")
    assert (answer.code, answer.err) == (0, "")
    assert objects(answer.out) == [{"session": "two", **whole}, {"session": "one", **whole}]
    answer = lanebus("verify", "--all")
    assert (answer.code, answer.err) == (0, "")
    reports = {str(report["session"]): report for report in objects(answer.out)}
    assert reports["one"] == {"session": "one", **whole}
    assert reports["None"] == {"session": None, **whole, "entries": 0}
    shown = lanebus.at_terminal("verify", "--all").out.splitlines()
    assert sorted(line.split()[0] for line in shown[:2]) == ["one", "two"]
    assert shown[2] == "2 sessions: whole"


async def test_a_hole_is_reported_with_its_position_and_exit_code_7(lanebus: CommandLine) -> None:
    for text in "abc":
        lanebus("publish", "s", text)
    await plant(lanebus, "XDEL", Keys().lane("s", Lane.LLM), "2-0")
    answer = lanebus("verify", "s")
    assert (answer.code, answer.err) == (7, "")
    assert answer.object["problems"] == [{"kind": "hole", "position": 2, "text": "it is in no lane"}]
    answer = lanebus("verify", "s", "--table")
    assert answer.code == 7
    assert answer.out.split()[:3] == ["s", "2", "hole"]
    assert answer.err == "1 session: problems found\n"


async def test_a_foreign_entry_is_shown_without_control_characters(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    await plant(lanebus, "XADD", Keys().lane("s", Lane.EXTENSION), "1-5", "h", "x", "m", "\x1b[31mBAD")
    shown = lanebus.at_terminal("verify", "s", columns=200)
    assert shown.code == 7
    assert "\x1b" not in shown.out
    assert "BAD" in shown.out
    assert lanebus("verify", "s").code == 7


async def test_keys_that_belong_to_no_session_are_reported_with_all(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    await plant(lanebus, "SET", "lanebus:odd", "x")
    assert lanebus("verify", "s").code == 0
    answer = lanebus("verify", "--all")
    assert answer.code == 7
    [wrong] = [report for report in objects(answer.out) if not report["is_whole"]]
    assert wrong["session"] is None
    problem = {"kind": "orphan", "position": None, "text": "key lanebus:odd: it is not a key of the bus"}
    assert wrong["problems"] == [problem]


def test_verifying_a_missing_session_is_an_error(lanebus: CommandLine) -> None:
    answer = lanebus("verify", "nosuch")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: session 'nosuch' has no entries")


def test_verify_needs_either_sessions_or_all(lanebus: CommandLine) -> None:
    assert lanebus("verify").code == 2
    assert lanebus("verify", "s", "--all").code == 2


@pytest.mark.parametrize("words", [("verify", "--all"), ("verify", "s"), ("sessions",), ("agents",), ("dead", "list")])
def test_a_command_that_reads_leaves_a_missing_namespace_missing(lanebus: CommandLine, words: tuple[str, ...]) -> None:
    lanebus("publish", "s", "a")
    answer = lanebus(*words, "--namespace", "shpo")
    assert answer.code == (3 if words[0] == "verify" else 0)
    assert "'shpo' holds nothing yet" in lanebus("doctor", "--namespace", "shpo", "--table").out


@pytest.mark.parametrize("view", ["--table", "--json"])
def test_verify_of_a_missing_namespace_names_it_and_is_no_success(lanebus: CommandLine, view: str) -> None:
    lanebus("publish", "s", "a")
    answer = lanebus("verify", "--all", view, "--namespace", "shpo")
    assert answer.code == 3
    assert answer.err.startswith("error: there is no namespace 'shpo': nothing was checked\nhint: name that of your ")


def test_verify_of_a_namespace_without_sessions_says_that_nothing_was_checked(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    lanebus("erase", "s", "--yes")
    answer = lanebus("verify", "--all", "--table")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "namespace 'lanebus' has no sessions: nothing was checked\n"
