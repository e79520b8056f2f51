"""`lanebus import`, `export` and `context`. The sample's figures are known from its file."""

import base64
import json
import shutil
import signal
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.support.cli.command_line import CommandLine, objects

pytestmark = pytest.mark.full

ELSEWHERE = {"LANEBUS_NAMESPACE": "elsewhere"}
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


def entries(lanebus: CommandLine, session: str) -> list[object]:
    """The entries of a session, without time and producer."""
    exported = objects(lanebus("export", session).out)[1:]
    return [{key: item for key, item in each.items() if key not in {"time", "producer"}} for each in exported]


@pytest.fixture
def sample(seed_data: Path) -> Path:
    return seed_data / "data" / "pi-session.jsonl"


# --- import -------------------------------------------------------------------------------------------------------


def test_a_sample_is_imported_once_and_its_export_is_equal(lanebus: CommandLine, sample: Path, tmp_path: Path) -> None:
    first = lanebus("import", sample, "--session", "pi")
    assert (first.code, first.err) == (0, "")
    assert first.object == {
        **{"session": "pi", "format": "pi", "lines": 1003, "added": 1003, "already_there": 0},
        **{"bad": [], "missing_parents": [], "missing_entries": [], "first": 1, "last": 1003},
    }
    assert figures(lanebus) == FIGURES
    again = lanebus("import", sample, "--session", "pi").object
    assert (again["added"], again["already_there"]) == (0, 1003)
    assert figures(lanebus) == FIGURES
    assert len(lanebus("turns", "pi").out.splitlines()) == 484
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "pi.jsonl"
    done = lanebus("export", "pi", "-o", file)
    assert (done.code, done.out, done.err) == (0, "", f"pi: 1,003 entries written to {file}\n")
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in file.parent.iterdir()] == ["pi.jsonl"]
    # The file's header names the session, so the import into an empty namespace uses that name.
    back = lanebus("import", file, env=ELSEWHERE).object
    assert (back["session"], back["format"], back["added"], back["bad"]) == ("pi", "lanebus", 1003, [])
    copied = objects(lanebus("export", "pi", env=ELSEWHERE).out)[1:]
    assert [each["message"] for each in copied] == [each["message"] for each in objects(file.read_text())[1:]]
    assert lanebus("usage", "pi", env=ELSEWHERE).object == lanebus("usage", "pi").object


def test_a_terminal_shows_progress_and_then_the_figures_as_tables(lanebus: CommandLine, sample: Path) -> None:
    shown = lanebus.at_terminal("import", sample, "--session", "pi").out
    assert ("%  " in shown, "█" in shown) == (True, True)
    last = shown.rpartition("\x1b[2K")[2]
    assert last == "pi: 1,003 entries added, 0 already there (pi transcript of 1,003 lines)\n"
    usage = lanebus.at_terminal("usage", "pi", columns=120).out.splitlines()
    assert " ".join(usage[0].split()) == "model calls input output reasoning cache read cache write total tokens cost"
    assert " ".join(usage[-1].split()) == "total 484 3,689 187,895 0 54,693,675 1,685,320 56,570,579 $42.60"
    turns = lanebus.at_terminal("turns", "pi", columns=100).out.splitlines()
    assert " ".join(turns[1].split()) == "#1 3 completed claude-opus-4-5 read ×2 2,775 141 0 $0.017400"
    sessions = lanebus.at_terminal("sessions", columns=90).out.splitlines()
    assert sessions[1].split()[:2] == ["pi", "agent"]
    assert (" 1,003 " in sessions[1], sessions[1].endswith("…")) == (True, True)
    assert all(len(line) <= 120 for line in [*usage, *turns, *sessions])


def kill_in_the_middle(lanebus: CommandLine, session: str, half: str) -> int:
    """Kill an import of a file of which half has come. Return how many entries it has added."""
    command = ("import", "-", "--session", session)
    with lanebus.running("tail", session, "-f") as follower, lanebus.fed(*command) as importer:
        assert importer.stdin is not None
        importer.stdin.write(half)  # the pipe stays open, so that the kill hits the middle of the import
        importer.stdin.flush()
        followed = [follower.out.readline() for _ in range(100)]
        importer.send_signal(signal.SIGKILL)
        assert importer.wait(60) == -signal.SIGKILL
    there = len(lanebus("tail", session).out.splitlines())
    assert len(followed) <= there
    return there


def claude(number: int) -> str:
    """A line of Claude Code: a question, then two lines of one answer."""
    kind = "assistant" if number % 3 else "user"
    answer = {
        **{"id": f"msg_{number // 3}", "role": "assistant", "model": "m"},
        "content": [{"type": "text", "text": f"{number}"}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    message = answer if number % 3 else {"role": "user", "content": f"question {number}"}
    parent = f"u{number - 1}" if number else None
    line = {"type": kind, "uuid": f"u{number}", "parentUuid": parent, "sessionId": "cc-1", "message": message}
    return json.dumps(line) + "\n"


def test_an_import_completes_a_killed_import(lanebus: CommandLine, sample: Path, tmp_path: Path) -> None:
    there = kill_in_the_middle(lanebus, "pi", "".join(sample.read_text().splitlines(keepends=True)[:500]))
    assert there < 1003
    again = lanebus("import", sample, "--session", "pi").object
    assert (again["added"], again["already_there"]) == (1003 - there, there)
    assert figures(lanebus) == FIGURES
    lanebus("import", sample, "--session", "whole")
    killed, whole = (objects(lanebus("tail", name).out) for name in ("pi", "whole"))
    assert [entry["message"] for entry in killed] == [entry["message"] for entry in whole]


def test_an_import_completes_a_killed_import_of_answers_in_several_lines(lanebus: CommandLine, tmp_path: Path) -> None:
    lines = [claude(number) for number in range(1800)]
    file = tmp_path / "cc.jsonl"
    file.write_text("".join(lines))
    there = kill_in_the_middle(lanebus, "cc-1", "".join(lines[:1300]))
    assert there < 1200
    again = lanebus("import", file).object
    assert (again["session"], again["added"], again["already_there"]) == ("cc-1", 1200 - there, there)
    lanebus("import", file, "--session", "whole")
    assert entries(lanebus, "cc-1") == entries(lanebus, "whole")
    assert lanebus("usage", "whole").object["total_tokens"] == 1200


def test_bad_lines_are_reported_and_the_others_are_imported(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    robot = '{"type":"message","timestamp":1,"message":{"role":"robot"}}\n'
    large = line_of(2_000_000 * "x")
    file.write_bytes((HEADER + line_of("a") + "not json\n" + robot + large + line_of("b")).encode() + b"\xff\n")
    answer = lanebus("import", file)
    assert answer.code == 7
    reasons = ("not JSON", "robot", "over the limit", "not UTF-8")
    for line, number, reason in zip(answer.err.splitlines(), (3, 4, 5, 7), reasons, strict=True):
        assert (line.startswith(f"line {number}: "), reason in line) == (True, True), line
    assert (answer.object["session"], answer.object["added"]) == ("head-1", 3)
    bad = answer.object["bad"]
    assert isinstance(bad, list)
    assert bad[0] == {"line": 3, "reason": answer.err.splitlines()[0].removeprefix("line 3: ")}
    assert lanebus("import", file).object["already_there"] == 3
    one = lanebus("import", "-", "--session", "s", "--table", stdin=line_of("one") + "{\n")
    assert ", 1 bad line (" in one.out


def test_a_line_whose_parent_is_missing_is_named(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    said = '{"type":"user","sessionId":"s","uuid":"%s","parentUuid":%s,"message":{"role":"user","content":"%s"}}\n'
    file.write_text(said % ("u1", "null", "one") + said % ("u2", '"gone"', "two"))
    answer = lanebus("import", file)
    assert (answer.code, answer.err) == (0, "line 2: its parent 'gone' is missing, so its context is a guess\n")
    assert answer.object["missing_parents"] == [{"line": 2, "parent": "gone"}]
    assert all(word in lanebus("context", "s", "--model", "m").out for word in ("one", "two"))


def test_the_session_is_of_the_transcript_or_file_unless_it_is_live(lanebus: CommandLine, tmp_path: Path) -> None:
    named = tmp_path / "named.jsonl"
    named.write_text("damaged\n" + HEADER + line_of("a"))
    assert lanebus("import", named).object["session"] == "head-1"
    named.write_text(line_of("a"))
    assert lanebus("import", named).object["session"] == "named"
    shutil.copy(named, odd := tmp_path / "no id.jsonl")
    answer = lanebus("import", odd)
    assert (answer.code, "give one with --session" in answer.err) == (2, True)
    assert lanebus("import", "-", stdin=HEADER).code == 2
    assert lanebus("import", "-", "--session", "s", stdin=HEADER + line_of("a")).object["added"] == 2
    named.write_text(HEADER.replace("head-1", "live") + line_of("a"))
    lanebus("publish", "live", "live")
    refused = lanebus("import", named)
    assert refused.code == 4
    assert "hint: if the file shall go there, name the session: --session live" in refused.err
    assert len(lanebus("tail", "live").out.splitlines()) == 1
    assert lanebus("import", named, "--session", "live").object["added"] == 2


def test_a_conversation_in_one_json_document_is_imported(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    talk = [{"role": "user", "content": "hi"}, {"role": "user", "content": 7}]
    file.write_text(json.dumps({"messages": talk}, indent=2))
    answer = lanebus("import", file)
    assert (answer.code, answer.err.startswith("message 2: content: ")) == (7, True)
    assert (answer.object["session"], answer.object["format"], answer.object["added"]) == ("talk", "openai-chat", 1)
    assert answer.object["bad"] == [{"message": 2, "reason": answer.err[11:-1]}]
    file.write_text(json.dumps({"messages": talk}) + "\n" + json.dumps({"messages": talk}))
    several = lanebus("import", file, "--session", "x")
    assert (several.code, several.out, "2 conversations" in several.err) == (6, "", True)


# --- exports that lack entries ------------------------------------------------------------------------------------


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
    module_lanebus: CommandLine, export: list[str], kept: str, missing: list[tuple[int, int]]
) -> None:
    part = "".join(export[int(line)] for line in kept)
    answer = module_lanebus("import", "-", "--session", f"part-{kept}", stdin=part)
    assert answer.code == (7 if missing else 0), answer.err
    assert answer.object["missing_entries"] == [{"first": first, "last": last} for first, last in missing]
    assert answer.object["added"] == len(kept.replace("0", ""))
    assert answer.err.count("not in the file") == len(missing)


@pytest.mark.usefixtures("export")
def test_an_export_of_one_lane_has_its_entries_alone_and_a_missing_end_is_named(module_lanebus: CommandLine) -> None:
    whole = module_lanebus("export", "whole", "--lane", "llm").out
    header, *rest = objects(whole)
    assert (header["type"], header["version"], header["session"]) == ("lanebus.export", 1, "whole")
    assert (header["lanes"], header["first"], header["last"]) == (["llm"], 1, 6)
    assert [(each["position"], each["lane"]) for each in rest] == [(1, "llm"), (3, "llm"), (5, "llm")]
    cut = "".join(whole.splitlines(keepends=True)[:-1])
    for name, text, missing in (("lane", whole, []), ("cut", cut, [{"first": 4, "last": 5}])):
        answer = module_lanebus("import", "-", "--session", name, stdin=text)
        assert (answer.code, answer.object["missing_entries"]) == (7 if missing else 0, missing)


def test_the_hint_says_if_the_whole_file_adds_what_is_missing(module_lanebus: CommandLine, export: list[str]) -> None:
    rest = "hint: import the whole file into the same session, which adds what is missing"
    for name, text in (("cut-within", "".join(export)[:-20]), ("cut-between", "".join(export[:-1]))):
        answer = module_lanebus("import", "-", "--session", name, stdin=text)
        assert (answer.code, answer.object["added"]) == (7, 5)
        is_within = "line 7: the file ends within this line: not JSON" in answer.err
        assert is_within == (name == "cut-within")
        assert answer.err.splitlines()[-1] == rest
        again = module_lanebus("import", "-", "--session", name, stdin="".join(export))
        assert (again.code, again.object["added"], again.object["already_there"], again.err) == (0, 1, 5, "")
    for name, text in (("gap", "".join(export[:3] + export[4:])), ("gap-and-cut", "".join(export[:3] + export[4:6]))):
        answer = module_lanebus("import", "-", "--session", name, stdin=text)
        assert answer.err.splitlines()[-1] == (
            "hint: import the whole file into a new session: in this one, what is missing would come last"
        )


def test_a_file_cut_in_its_first_line_is_told_from_another_kind(lanebus: CommandLine, export: list[str]) -> None:
    cut = "error: the file ends within its JSON, before anything that could be imported"
    unknown, other = "error: unknown transcript format: none of the first", "hint: give a file of one of the formats in"
    for text, fault, hint in (
        (export[0][:60], cut, "hint: the file was cut: copy it again, or write it again with `lanebus export`"),
        ('{\n "messages": [\n  {"role": "us', cut, "hint: the file was cut: copy"),
        ("root:x:0:0:root\n", unknown, other),
        ('{"a": 1}\n{"b": ', unknown, other),
        ("{'a': 1}", unknown, other),
        ('{"a":1}\n', f"{unknown} 1 lines is of a known one\n", f"{other} `lanebus import --help`\n"),
        ("", "error: the transcript is empty\n", "hint: "),
        ("\n\n", "error: the transcript is empty\n", "hint: "),
    ):
        answer = lanebus("import", "-", "--session", "none", stdin=text)
        assert (answer.code, answer.err.startswith(fault), hint in answer.err) == (6, True, True), answer.err
    assert lanebus("sessions").out == ""


# --- export -------------------------------------------------------------------------------------------------------


def test_an_export_to_stdout_equals_a_file_and_is_not_for_its_own_session(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "one \u202e\x85 ü")
    file = tmp_path / "s.jsonl"
    lanebus("export", "s", "-o", file)
    assert objects(lanebus("export", "s").out) == [json.loads(line) for line in file.read_text().split("\n") if line]
    # Importing both adds the entry once, so both are the same transcript.
    lanebus("import", file, "--session", "t")
    answer = lanebus("import", "-", "--session", "t", stdin=lanebus("export", "s").out)
    assert (answer.object["added"], answer.object["already_there"]) == (0, 1)
    answer = lanebus("import", file)
    assert (answer.code, answer.err) == (
        4,
        "error: the file is an export of session 's' itself\nhint: import it into another session\n",
    )
    assert len(entries(lanebus, "s")) == 1


def test_a_failed_export_leaves_the_earlier_file(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text("before")
    assert lanebus("export", "nosuch", "-o", file).code == 3
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("s.jsonl", "before")]
    lanebus("publish", "s", "one")
    answer = lanebus("export", "s", "-o", tmp_path / "no" / "such")
    error = f"error: {tmp_path}/no/such: No such file or directory\nhint: choose another place to write to\n"
    assert (answer.code, answer.err) == (1, error)


def test_large_media_are_exported_and_part_of_the_context(lanebus: CommandLine, tmp_path: Path) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60_000)).decode()
    messages = {"role": "user", "content": [{"type": "image", "data": png, "mimeType": "image/png"}]}
    lanebus("publish", "s", "--json", stdin=json.dumps(messages))
    [named] = entries(lanebus, "s")
    [_, only] = objects(lanebus("export", "s", "--no-media").out)
    assert (png in json.dumps(named), png in json.dumps(only), "sha256" in json.dumps(only)) == (True, False, True)
    assert png in lanebus("context", "s", "--model", "m").out
    file = tmp_path / "s.jsonl"
    lanebus("export", "s", "-o", file)
    assert lanebus("import", file, env=ELSEWHERE).object["added"] == 1
    [_, back] = objects(lanebus("export", "s", "--no-media", env=ELSEWHERE).out)
    assert back["message"] == only["message"]
    assert png in lanebus("context", "s", "--model", "m", env=ELSEWHERE).out


# --- context ------------------------------------------------------------------------------------------------------


def test_the_context_is_the_request_of_a_provider_as_of_a_position(lanebus: CommandLine, sample: Path) -> None:
    lanebus("import", sample, "--session", "pi")
    now = lanebus("context", "pi", "--provider", "anthropic")
    assert (now.code, list(now.object)[:3]) == (0, ["model", "max_tokens", "messages"])
    assert (now.object["model"], now.object["max_tokens"]) == ("claude-opus-4-5", 4096)
    then = lanebus("context", "pi", "--at", "2", "--model", "m", "--max-tokens", "7").object
    messages = then["messages"]
    assert isinstance(messages, list)
    assert (then["model"], then["max_tokens"], len(messages)) == ("m", 7, 1)
    beyond = lanebus("context", "pi", "--at", "1004")
    assert (beyond.code, beyond.err) == (3, "error: session 'pi' has no entry 1004\nhint: use a position up to 1003\n")


def test_a_context_has_the_form_of_each_provider_and_its_faults_are_told(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "be brief", "--role", "system")
    lanebus("publish", "s", "hi")
    for provider in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        answer = lanebus("context", "s", "--provider", provider, "--model", "m", "--max-tokens", "7")
        assert (answer.code, answer.err) == (0, "")
        assert {"messages", "input", "contents"} & set(answer.object)
        assert "be brief" in answer.out
        assert ": 7" in answer.out or ":7" in answer.out
    assert lanebus("context", "s", "--provider", "nobody").code == 2
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name":"a","name":"b"}]')
    answer = lanebus("context", "s", "--model", "m", "--tools", tools)
    assert (answer.code, answer.out) == (6, "")
    assert answer.err == f"error: {tools}: 0.name: given twice in one object\nhint: correct the input and try again\n"
    assert lanebus("publish", "s", "--json", stdin='{"role":"context","kind":"leafMove","to":99}').code == 0
    answer = lanebus("context", "s", "--model", "m")
    assert answer.err == "warning: entry 3: names entry 99, which is not there before it\n"
