"""`lanebus verify` and `replay`, and other commands on a log in which sessions are damaged."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, Lane, Usage
from lanebus.bus import open_server
from lanebus.bus.wire import Keys
from lanebus.handlers.projections import SESSIONS, STATUS, TIMELINE, TURNS, USAGE, Projection, find_projection
from lanebus.projections import project
from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.resp import Resp

pytestmark = pytest.mark.full


async def plant(lanebus: CommandLine, *commands: tuple[str, ...]) -> None:
    """Send Redis commands to the embedded server, as a foreign client."""
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            for words in commands:
                redis(*words)


def test_undamaged_sessions_are_reported_as_whole(lanebus: CommandLine) -> None:
    lanebus("publish", "one", "a")
    lanebus("publish", "two", "b")
    lanebus("usage", "two")
    whole: dict[str, object] = {
        **{"is_whole": True, "entries": 1, "problems": [], "unlisted": 0, "notes": [], "risk": None, "unproven": []}
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
    for words, code in (((), 2), (("one", "--all"), 2), (("nosuch",), 3)):
        refused = lanebus("verify", *words)
        assert (refused.code, refused.out, refused.err.startswith("error: ")) == (code, "", True)
    for name in ("one", "two"):
        lanebus("erase", name, "--yes")
    answer = lanebus("verify", "--all", "--table")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "namespace 'lanebus' has no sessions: nothing was checked\n"


async def test_a_hole_and_a_foreign_entry_are_told_with_positions_and_exit_code_7(lanebus: CommandLine) -> None:
    for text in "abc":
        lanebus("publish", "s", text)
    await plant(lanebus, ("XDEL", Keys().lane("s", Lane.LLM), "2-0"))
    answer = lanebus("verify", "s")
    assert (answer.code, answer.err) == (7, "")
    assert answer.object["problems"] == [{"kind": "hole", "position": 2, "text": "it is in no lane"}]
    answer = lanebus("verify", "s", "--table")
    assert (answer.code, answer.out.split()[:3]) == (7, ["s", "2", "hole"])
    assert answer.err == "1 session: problems found\n"
    lanebus("publish", "t", "a")
    await plant(lanebus, ("XADD", Keys().lane("t", Lane.EXTENSION), "1-5", "h", "x", "m", "\x1b[31mBAD"))
    shown = lanebus.at_terminal("verify", "t", columns=200)
    assert (shown.code, "\x1b" in shown.out, "BAD" in shown.out) == (7, False, True)
    assert lanebus("verify", "t").code == 7


async def test_keys_that_belong_to_no_session_are_reported_with_all(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    await plant(lanebus, ("SET", "lanebus:odd", "x"))
    assert lanebus("verify", "s").code == 0
    answer = lanebus("verify", "--all")
    assert answer.code == 7
    [wrong] = [report for report in objects(answer.out) if not report["is_whole"]]
    assert wrong["session"] is None
    problem = {"kind": "orphan", "position": None, "text": "key lanebus:odd: it is not a key of the bus"}
    assert wrong["problems"] == [problem]


def test_a_command_that_reads_leaves_a_missing_namespace_missing_and_verify_names_it(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    for words in ("verify s", "sessions", "agents", "dead list", "verify --all --json", "verify --all --table"):
        answer = lanebus(*words.split(), "--namespace", "shpo")
        assert (words, answer.code) == (words, 3 if "verify" in words else 0)
        assert "'shpo' holds nothing yet" in lanebus("doctor", "--namespace", "shpo", "--table").out
        if "--all" in words:
            fault = "error: there is no namespace 'shpo': nothing was checked\nhint: name that of your "
            assert answer.err.startswith(fault)


_COMMAND = re.compile(r"`lanebus ([^`]+)`")


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
    waiting = damaged("sessions", "--waiting")
    assert (waiting.code, waiting.out) == (0, "")
    assert [name for name in ("hole", "lane", "head", "field") if f"session '{name}'" not in waiting.err] == []
    exported = damaged("export", "lane")
    assert exported.code == 0
    assert "entries 1 to 3 are missing, no trim removed them, and are not exported" in exported.err


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


@pytest.mark.parametrize("command", ["tail", "show", "usage", "export", "fork", "hand-over"])
@pytest.mark.parametrize("session", ["head", "field"])
def test_a_damaged_head_has_code_7_and_its_hint_an_erasure(damaged: CommandLine, command: str, session: str) -> None:
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


async def speak(lanebus: CommandLine, *tokens: int) -> None:
    """Model calls that took so many tokens."""
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        for number in tokens:
            usage = Usage(input=number, total_tokens=number)
            await bus.session("s").publish(AssistantMessage(usage=usage))


def total(answer: Mapping[str, JsonValue]) -> JsonValue:
    """The input tokens of a usage state."""
    match answer["state"]:
        case {"total": {"usage": {"input": tokens}}}:
            return tokens
        case state:
            raise AssertionError(state)


async def keep(lanebus: CommandLine) -> None:
    """Store the states of all projections, as `lanebus trim` does."""
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        session = bus.session("s")
        for projection in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE):
            await project(session, cast("Projection[object]", projection))


async def test_every_projection_is_folded_anew_and_none_is_stored(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10)
    answers = [lanebus("replay", "s") for _ in range(2)]
    assert [(answer.code, answer.err) for answer in answers] == 2 * [(0, "")]
    replayed = objects(answers[0].out)
    assert [each["projection"] for each in replayed] == ["usage", "turns", "sessions", "status", "timeline"]
    assert [(each["position"], each["stored"], each["agrees"]) for each in replayed] == 5 * [(2, None, None)]
    assert total(replayed[0]) == 11
    assert objects(answers[1].out) == replayed
    await keep(lanebus)
    again = objects(lanebus("replay", "s").out)
    assert [(each["position"], each["stored"], each["agrees"]) for each in again] == 5 * [(2, 2, True)]
    assert [each["state"] for each in again] == [each["state"] for each in replayed]
    assert lanebus("verify", "s").code == 0
    lines = lanebus.at_terminal("replay", "s", columns=60).out.splitlines()
    named = [f"{projection.name}@{projection.version}" for projection in (USAGE, TURNS, SESSIONS, STATUS, TIMELINE)]
    assert [line.split()[0] for line in lines] == ["projection", *named]
    assert (all("agrees at 2" in line for line in lines[1:]), max(map(len, lines)) <= 60) == (True, True)
    await speak(lanebus, 100)
    words = ("--until", "1", "--projection", "usage", "--projection", "usage")
    past = lanebus("replay", "s", *words)
    assert (past.code, past.object["position"], past.object["stored"], past.object["agrees"]) == (0, 1, 2, None)
    assert total(past.object) == 1


async def test_a_stored_state_that_the_log_does_not_give_is_told_with_a_remedy(lanebus: CommandLine) -> None:
    await speak(lanebus, 1, 10)
    await keep(lanebus)
    await speak(lanebus, 100)
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            redis("HSET", Keys().projection("s", "usage", USAGE.version), "state", "{}")
    assert lanebus("verify", "s").code == 7
    key = f"usage@{USAGE.version}"
    for _ in range(2):
        answer = lanebus("replay", "s")
        assert answer.code == 7
        assert answer.err.endswith(f"remove it with: lanebus projections remove s {key}\n")
        assert [objects(answer.out)[0][name] for name in ("stored", "agrees")] == [2, False]
    assert lanebus("projections", "remove", "s", key).code == 0
    assert (lanebus("replay", "s").code, lanebus("verify", "s").code) == (0, 0)
    assert lanebus("usage", "s").object["input"] == 111


def test_what_cannot_be_replayed_is_one_line(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    for words, code in {("s", "--until", "2"): 3, ("nosuch",): 3, ("s", "--projection", "odd"): 2}.items():
        answer = lanebus("replay", *words)
        assert (answer.code, answer.out) == (code, "")
        assert answer.err


OWN = """
from lanebus import AssistantMessage, DecodeFailure
from lanebus.errors import DecodeError
from lanebus.projections import projection

@projection("tokens", version=3)
def tokens(total: int, message: AssistantMessage) -> int:
    if message.usage.input == 7:
        raise DecodeError("", "seven")
    return total + message.usage.input

number = 1
"""


async def test_a_projection_of_ones_own_is_folded_and_compared(lanebus: CommandLine, tmp_path: Path) -> None:
    own = tmp_path / "own_projection.py"
    own.write_text(OWN)
    await speak(lanebus, 1, 7, 10)
    words = ("replay", "s", "--projection", f"{own}:tokens")
    answer = lanebus(*words)
    assert answer.code == 0
    assert "skipped entries that could not be read: 1" in answer.err
    assert answer.object == {
        **{"session": "s", "projection": "tokens", "version": 3, "position": 3},
        **{"stored": None, "agrees": None, "unreadable": 1, "state": 11},
    }
    async with Bus.open(data_dir=lanebus.data_dir) as bus:
        await project(bus.session("s"), find_projection(f"{own}:tokens"))
    assert lanebus(*words).object["agrees"] is True
    async with open_server(lanebus.data_dir) as server:
        with Resp(server.socket) as redis:
            redis("HSET", Keys().projection("s", "tokens", 3), "state", "12")
    answer = lanebus(*words, "--projection", "usage")
    assert (answer.code, [each["agrees"] for each in objects(answer.out)]) == (7, [None, False])
    assert answer.err.endswith("remove it with: lanebus projections remove s tokens@3\n")


def test_a_missing_projection_is_one_line_with_a_remedy(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    for target, reason in (
        ("lanebus.projections", "use one of usage, turns, sessions, status, timeline, or MODULE:ATTRIBUTE"),
        (":tokens", "write module:attribute"),
        ("no_such_package:tokens", "there is no module 'no_such_package'"),
        ("no_such_file.py:tokens", "there is no file 'no_such_file.py'"),
        ("lanebus.projections:nothing", "has no attribute 'nothing'"),
        ("lanebus.projections:project", "decorate its function with @projection"),
    ):
        answer = lanebus("replay", "s", "--projection", target)
        assert (answer.code, answer.out, reason in answer.err) == (2, "", True), answer.err
