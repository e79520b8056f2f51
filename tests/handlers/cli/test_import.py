"""`lanebus import`, and what other commands print of the session. The sample's figures are known from its file."""

import json
import shutil
import signal
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

pytestmark = pytest.mark.full

FIGURES = {
    "input": 3689,
    "output": 187895,
    "reasoning": 0,
    "cache_read": 54693675,
    "cache_write": 1685320,
    "total_tokens": 56570579,
    "is_estimate": False,
    "counted_from": None,
}
COST = Decimal("42.595908")
HEADER = '{"type":"session","id":"head-1","timestamp":"2026-01-01T00:00:00Z"}\n'


def figures(lanebus: CommandLine) -> dict[str, JsonValue]:
    """Return what `lanebus usage` prints for the session, except the cost, which is compared here."""
    found = lanebus("usage", "pi", "--json").object
    cost = found.pop("cost")
    assert isinstance(cost, dict)
    assert round(Decimal(str(cost["total"])), 6) == COST
    return found


def line_of(text: str) -> str:
    message = {"role": "user", "content": text}
    return json.dumps({"type": "message", "timestamp": "2026-01-01T00:00:01Z", "message": message}) + "\n"


@pytest.fixture
def sample(seed_data: Path) -> Path:
    return seed_data / "data" / "pi-session.jsonl"


def test_a_sample_is_imported_completely_and_only_once(lanebus: CommandLine, sample: Path) -> None:
    first = lanebus("import", sample, "--session", "pi")
    assert (first.code, first.err) == (0, "")
    assert first.object == {
        "session": "pi",
        "format": "pi",
        "lines": 1003,
        "added": 1003,
        "already_there": 0,
        "bad": [],
        "missing_parents": [],
        "missing_entries": [],
        "first": 1,
        "last": 1003,
    }
    assert figures(lanebus) == FIGURES
    again = lanebus("import", sample, "--session", "pi").object
    assert (again["added"], again["already_there"]) == (0, 1003)
    assert figures(lanebus) == FIGURES
    assert len(lanebus("turns", "pi").out.splitlines()) == 484


def test_an_import_completes_a_killed_import(lanebus: CommandLine, sample: Path, tmp_path: Path) -> None:
    # A pipe held open after half of the file makes the kill hit the middle of the import.
    lines = sample.read_bytes().splitlines(keepends=True)
    half = tmp_path / "half.jsonl"
    half.write_bytes(b"".join(lines[:500]))
    with lanebus.running("tail", "pi", "-f") as follower:
        assert follower.stdout is not None
        with lanebus.fed("import", "-", "--session", "pi") as importer:
            assert importer.stdin is not None
            importer.stdin.write(half.read_text())
            importer.stdin.flush()
            followed = [follower.stdout.readline() for _ in range(100)]
            importer.send_signal(signal.SIGKILL)
            assert importer.wait(60) == -signal.SIGKILL
    there = len(lanebus("tail", "pi").out.splitlines())
    assert len(followed) <= there < 1003
    again = lanebus("import", sample, "--session", "pi").object
    assert (again["added"], again["already_there"]) == (1003 - there, there)
    assert figures(lanebus) == FIGURES
    # The log equals that of an import without a kill.
    lanebus("import", sample, "--session", "whole")
    killed, whole = (objects(lanebus("tail", name).out) for name in ("pi", "whole"))
    assert [entry["message"] for entry in killed] == [entry["message"] for entry in whole]


def test_bad_lines_are_reported_and_the_others_are_imported(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    robot = '{"type":"message","timestamp":1,"message":{"role":"robot"}}\n'
    large = line_of(2_000_000 * "x")
    file.write_bytes((HEADER + line_of("a") + "not json\n" + robot + large + line_of("b")).encode() + b"\xff\n")
    answer = lanebus("import", file)
    assert answer.code == 7
    assert [line.split(":")[0] for line in answer.err.splitlines()] == ["line 3", "line 4", "line 5", "line 7"]
    assert "not JSON" in answer.err
    assert "robot" in answer.err
    assert "over the limit" in answer.err
    assert "not UTF-8" in answer.err
    assert (answer.object["session"], answer.object["added"]) == ("head-1", 3)
    bad = answer.object["bad"]
    assert isinstance(bad, list)
    assert bad[0] == {"line": 3, "reason": answer.err.splitlines()[0].removeprefix("line 3: ")}
    assert lanebus("import", file).object["already_there"] == 3


def test_a_line_whose_parent_is_missing_is_named(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    said = '{"type":"user","sessionId":"s","uuid":"%s","parentUuid":%s,"message":{"role":"user","content":"%s"}}\n'
    file.write_text(said % ("u1", "null", "one") + said % ("u2", '"gone"', "two"))
    answer = lanebus("import", file)
    assert (answer.code, answer.err) == (0, "line 2: its parent 'gone' is missing, so its context is a guess\n")
    assert answer.object["missing_parents"] == [{"line": 2, "parent": "gone"}]
    assert all(word in lanebus("context", "s", "--model", "m").out for word in ("one", "two"))


def test_the_session_id_comes_from_the_transcript_else_from_the_file_name(lanebus: CommandLine, tmp_path: Path) -> None:
    named = tmp_path / "named.jsonl"
    named.write_text("damaged\n" + HEADER + line_of("a"))
    assert lanebus("import", named).object["session"] == "head-1"
    named.write_text(line_of("a"))
    assert lanebus("import", named).object["session"] == "named"
    shutil.copy(named, odd := tmp_path / "no id.jsonl")
    answer = lanebus("import", odd)
    assert answer.code == 2
    assert "give one with --session" in answer.err


def test_a_file_does_not_choose_a_session_that_is_live(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(HEADER + line_of("a"))
    lanebus("publish", "head-1", "live")
    refused = lanebus("import", file)
    assert refused.code == 4
    assert "hint: if the file shall go there, name the session: --session head-1" in refused.err
    assert len(lanebus("tail", "head-1").out.splitlines()) == 1
    assert lanebus("import", file, "--session", "head-1").object["added"] == 2


def test_stdin_needs_a_session(lanebus: CommandLine) -> None:
    assert lanebus("import", "-", stdin=HEADER).code == 2
    assert lanebus("import", "-", "--session", "s", stdin=HEADER + line_of("a")).object["added"] == 2


def test_a_file_of_unknown_format_is_refused(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text('{"a":1}\n')
    answer = lanebus("import", file, "--session", "s")
    assert answer.code == 6
    assert answer.err == (
        "error: unknown transcript format: none of the first 1 lines is of a known one\n"
        "hint: give a file of one of the formats in `lanebus import --help`\n"
    )
    for empty in ("", "\n\n"):
        file.write_text(empty)
        assert lanebus("import", file, "--session", "s").err.splitlines()[0] == "error: the transcript is empty"
    assert lanebus("sessions").out == ""
    assert lanebus("import", tmp_path / "missing").code == 2


def test_a_terminal_shows_progress_and_then_the_result(lanebus: CommandLine, sample: Path) -> None:
    shown = lanebus.at_terminal("import", sample, "--session", "pi").out
    assert "%  " in shown
    assert "█" in shown
    last = shown.rpartition("\x1b[2K")[2]
    assert last == "pi: 1,003 entries added, 0 already there (pi transcript of 1,003 lines)\n"


def test_a_terminal_shows_the_imported_figures_as_tables(lanebus: CommandLine, sample: Path) -> None:
    lanebus("import", sample, "--session", "pi")
    usage = lanebus.at_terminal("usage", "pi", columns=120).out.splitlines()
    assert " ".join(usage[0].split()) == "model calls input output reasoning cache read cache write total tokens cost"
    assert " ".join(usage[-1].split()) == "total 484 3,689 187,895 0 54,693,675 1,685,320 56,570,579 $42.60"
    turns = lanebus.at_terminal("turns", "pi", columns=100).out.splitlines()
    assert " ".join(turns[1].split()) == "#1 3 completed claude-opus-4-5 read ×2 2,775 141 0 $0.017400"
    sessions = lanebus.at_terminal("sessions", columns=90).out.splitlines()
    assert sessions[1].split()[:2] == ["pi", "agent"]
    assert " 1,003 " in sessions[1]
    assert sessions[1].endswith("…")
    assert all(len(line) <= 120 for line in [*usage, *turns, *sessions])


def test_the_context_is_the_request_as_of_a_position(lanebus: CommandLine, sample: Path) -> None:
    lanebus("import", sample, "--session", "pi")
    now = lanebus("context", "pi", "--provider", "anthropic")
    assert now.code == 0
    assert list(now.object)[:3] == ["model", "max_tokens", "messages"]
    assert (now.object["model"], now.object["max_tokens"]) == ("claude-opus-4-5", 4096)
    then = lanebus("context", "pi", "--at", "2", "--model", "m", "--max-tokens", "7").object
    assert (then["model"], then["max_tokens"]) == ("m", 7)
    messages = then["messages"]
    assert isinstance(messages, list)
    assert len(messages) == 1
    beyond = lanebus("context", "pi", "--at", "1004")
    assert (beyond.code, beyond.err) == (3, "error: session 'pi' has no entry 1004\nhint: use a position up to 1003\n")


@pytest.fixture(scope="module")
def export(module_lanebus: CommandLine) -> list[str]:
    """An export of six entries: a header, and the lines of both lanes by turns."""
    for number in range(3):
        module_lanebus("publish", "whole", f"text {number}")
        module_lanebus("publish", "whole", "--extension", "note", str(number))
    return module_lanebus("export", "whole").out.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        ("0123456", []),
        ("0123", [(4, 6)]),
        ("0", [(1, 6)]),
        ("0156", [(2, 4)]),
        ("046", [(1, 3), (5, 5)]),
        ("0654321", []),
        ("0641", [(2, 3), (5, 5)]),
        ("123", []),
    ],
)
def test_an_incomplete_export_is_imported_and_the_positions_that_it_lacks_are_named(
    module_lanebus: CommandLine, tmp_path: Path, export: list[str], kept: str, missing: list[tuple[int, int]]
) -> None:
    part = tmp_path / "part.jsonl"
    part.write_text("".join(export[int(line)] for line in kept), encoding="utf-8")
    answer = module_lanebus("import", part, "--session", f"part-{kept}")
    assert answer.code == (7 if missing else 0), answer.err
    assert answer.object["missing_entries"] == [{"first": first, "last": last} for first, last in missing]
    assert answer.object["added"] == len(kept.replace("0", ""))
    assert answer.err.count("not in the file") == len(missing)


def test_a_missing_end_of_an_export_of_one_lane_is_named(module_lanebus: CommandLine, export: list[str]) -> None:
    assert export
    whole = module_lanebus("export", "whole", "--lane", "llm").out
    cut = "".join(whole.splitlines(keepends=True)[:-1])
    for name, text, missing in (("lane", whole, []), ("cut", cut, [{"first": 4, "last": 5}])):
        answer = module_lanebus("import", "-", "--session", name, stdin=text)
        assert (answer.code, answer.object["missing_entries"]) == (7 if missing else 0, missing)


def test_an_export_that_is_cut_names_its_end_and_the_whole_one_adds_the_rest(
    module_lanebus: CommandLine, tmp_path: Path, export: list[str]
) -> None:
    file, rest = tmp_path / "cut.jsonl", "hint: import the whole file into the same session, which adds what is missing"
    for name, text in (("cut-within", "".join(export)[:-20]), ("cut-between", "".join(export[:-1]))):
        file.write_text(text, encoding="utf-8")
        answer = module_lanebus("import", file, "--session", name)
        assert (answer.code, answer.object["added"]) == (7, 5)
        is_within = "line 7: the file ends within this line: not JSON" in answer.err
        assert is_within == (name == "cut-within")
        assert answer.err.splitlines()[-1] == rest
        file.write_text("".join(export), encoding="utf-8")
        again = module_lanebus("import", file, "--session", name)
        assert (again.code, again.object["added"], again.object["already_there"], again.err) == (0, 1, 5, "")


def test_an_export_that_lacks_inner_entries_is_to_be_imported_elsewhere(
    module_lanebus: CommandLine, export: list[str]
) -> None:
    for name, text in (("gap", "".join(export[:3] + export[4:])), ("gap-and-cut", "".join(export[:3] + export[4:6]))):
        answer = module_lanebus("import", "-", "--session", name, stdin=text)
        assert answer.err.splitlines()[-1] == (
            "hint: import the whole file into a new session: in this one, what is missing would come last"
        )


def test_a_file_that_is_cut_in_its_first_line_is_told_from_one_of_another_kind(
    module_lanebus: CommandLine, tmp_path: Path, export: list[str]
) -> None:
    file = tmp_path / "file.jsonl"
    cut = "error: the file ends within its JSON, before anything that could be imported"
    unknown = "error: unknown transcript format: none of the first"
    for text, fault, hint in (
        (export[0][:60], cut, "hint: the file was cut: copy it again, or write it again with `lanebus export`"),
        ('{\n "messages": [\n  {"role": "us', cut, "hint: the file was cut: copy"),
        ("root:x:0:0:root\n", unknown, "hint: give a file of one of the formats"),
        ('{"a": 1}\n{"b": ', unknown, "hint: give a file of one of the formats"),
        ("{'a': 1}", unknown, "hint: give a file of one of the formats"),
    ):
        file.write_text(text, encoding="utf-8")
        answer = module_lanebus("import", file, "--session", "none")
        assert (answer.code, answer.err.startswith(fault), hint in answer.err) == (6, True, True), answer.err


def test_one_bad_line_is_counted_in_the_singular(lanebus: CommandLine) -> None:
    answer = lanebus("import", "-", "--session", "s", "--table", stdin=line_of("one") + "{\n")
    assert ", 1 bad line (" in answer.out
