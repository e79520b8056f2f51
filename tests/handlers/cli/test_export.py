"""`lanebus export`, `lanebus import` of its files, and transcripts of other programs."""

import base64
import json
import signal
from pathlib import Path

import pytest

from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

pytestmark = pytest.mark.full


def entries(lanebus: CommandLine, session: str) -> list[object]:
    """The entries of a session, without time and producer."""
    exported = objects(lanebus("export", session).out)[1:]
    return [{key: item for key, item in each.items() if key not in {"time", "producer"}} for each in exported]


def test_an_export_imported_into_another_bus_is_the_same(lanebus: CommandLine, tmp_path: Path, seed_data: Path) -> None:
    lanebus("import", seed_data / "data" / "pi-session.jsonl", "--session", "pi")
    file = tmp_path / "pi.jsonl"
    done = lanebus("export", "pi", "-o", file)
    assert (done.code, done.out, done.err) == (0, "", f"pi: 1,003 entries written to {file}\n")
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["pi.jsonl"]
    # The file's header names the session, so the import into an empty namespace uses that name.
    elsewhere = {"LANEBUS_NAMESPACE": "elsewhere"}
    back = lanebus("import", file, env=elsewhere).object
    assert (back["session"], back["format"], back["added"], back["bad"]) == ("pi", "lanebus", 1003, [])
    again = lanebus("export", "pi", env=elsewhere)
    assert [json.loads(line)["message"] for line in again.out.splitlines()[1:]] == [
        json.loads(line)["message"] for line in file.read_text().splitlines()[1:]
    ]
    assert lanebus("usage", "pi", env=elsewhere).object == lanebus("usage", "pi").object


def test_an_export_to_stdout_equals_one_to_a_file(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "one \u202e\x85 ü")
    file = tmp_path / "s.jsonl"
    lanebus("export", "s", "-o", file)
    assert objects(lanebus("export", "s").out) == [json.loads(line) for line in file.read_text().split("\n") if line]
    # Importing both adds the entry once, so both are the same transcript.
    lanebus("import", file, "--session", "t")
    answer = lanebus("import", "-", "--session", "t", stdin=lanebus("export", "s").out)
    assert (answer.object["added"], answer.object["already_there"]) == (0, 1)


def test_large_media_are_exported_and_part_of_the_context(lanebus: CommandLine, tmp_path: Path) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60_000)).decode()
    messages = {"role": "user", "content": [{"type": "image", "data": png, "mimeType": "image/png"}]}
    lanebus("publish", "s", "--json", stdin=json.dumps(messages))
    [named] = entries(lanebus, "s")
    assert png in json.dumps(named)
    [header, only] = objects(lanebus("export", "s", "--no-media").out)
    del header
    assert png not in json.dumps(only)
    assert "sha256" in json.dumps(only)
    assert png in lanebus("context", "s", "--model", "m").out
    file = tmp_path / "s.jsonl"
    lanebus("export", "s", "-o", file)
    elsewhere = {"LANEBUS_NAMESPACE": "elsewhere"}
    assert lanebus("import", file, env=elsewhere).object["added"] == 1
    [_, back] = objects(lanebus("export", "s", "--no-media", env=elsewhere).out)
    assert back["message"] == only["message"]
    assert png in lanebus("context", "s", "--model", "m", env=elsewhere).out


def test_one_lane_can_be_exported(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    lanebus("publish", "s", "{}", "--extension", "note")
    lanebus("publish", "s", "two")
    header, *rest = objects(lanebus("export", "s", "--lane", "llm").out)
    assert (header["type"], header["version"], header["session"]) == ("lanebus.export", 1, "s")
    assert (header["lanes"], header["first"], header["last"]) == (["llm"], 1, 3)
    assert [(each["position"], each["lane"]) for each in rest] == [(1, "llm"), (3, "llm")]


def test_an_export_cannot_be_imported_into_its_own_session(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "one")
    file = tmp_path / "s.jsonl"
    lanebus("export", "s", "-o", file)
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


def test_a_conversation_in_one_json_document_is_imported(lanebus: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    talk = [{"role": "user", "content": "hi"}, {"role": "user", "content": 7}]
    file.write_text(json.dumps({"messages": talk}, indent=2))
    answer = lanebus("import", file)
    assert answer.code == 7
    assert answer.err.startswith("message 2: content: ")
    assert (answer.object["session"], answer.object["format"], answer.object["added"]) == ("talk", "openai-chat", 1)
    assert answer.object["bad"] == [{"message": 2, "reason": answer.err[11:-1]}]
    file.write_text(json.dumps({"messages": talk}) + "\n" + json.dumps({"messages": talk}))
    several = lanebus("import", file, "--session", "x")
    assert (several.code, several.out) == (6, "")
    assert "2 conversations" in several.err


def claude(number: int) -> str:
    """A line of Claude Code: a question, then two lines of one answer."""
    kind = "user" if number % 3 == 0 else "assistant"
    message = (
        {"role": "user", "content": f"question {number}"}
        if kind == "user"
        else {
            "id": f"msg_{number // 3}",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": f"{number}"}],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    parent = f"u{number - 1}" if number else None
    line = {"type": kind, "uuid": f"u{number}", "parentUuid": parent, "sessionId": "cc-1", "message": message}
    return json.dumps(line) + "\n"


def test_an_import_completes_a_killed_import_of_answers_in_several_lines(lanebus: CommandLine, tmp_path: Path) -> None:
    lines = [claude(number) for number in range(1800)]
    file = tmp_path / "cc.jsonl"
    file.write_text("".join(lines))
    with lanebus.running("tail", "cc-1", "-f") as follower:
        assert follower.stdout is not None
        with lanebus.fed("import", "-", "--session", "cc-1") as importer:
            assert importer.stdin is not None
            # A pipe held open in the middle of the file makes the kill hit the middle of the import.
            importer.stdin.write("".join(lines[:1300]))
            importer.stdin.flush()
            followed = [follower.stdout.readline() for _ in range(100)]
            importer.send_signal(signal.SIGKILL)
            assert importer.wait(60) == -signal.SIGKILL
    there = len(entries(lanebus, "cc-1"))
    assert len(followed) <= there < 1200
    again = lanebus("import", file).object
    assert (again["session"], again["added"], again["already_there"]) == ("cc-1", 1200 - there, there)
    lanebus("import", file, "--session", "whole")
    assert entries(lanebus, "cc-1") == entries(lanebus, "whole")
    assert lanebus("usage", "whole").object["total_tokens"] == 1200


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_context_has_the_form_of_each_provider(lanebus: CommandLine, provider: str) -> None:
    lanebus("publish", "s", "be brief", "--role", "system")
    lanebus("publish", "s", "hi")
    answer = lanebus("context", "s", "--provider", provider, "--model", "m", "--max-tokens", "7")
    assert (answer.code, answer.err) == (0, "")
    assert {"messages", "input", "contents"} & set(answer.object)
    assert "be brief" in answer.out
    assert ": 7" in answer.out or ":7" in answer.out
    assert lanebus("context", "s", "--provider", "nobody").code == 2


def test_a_fault_in_the_context_is_one_warning(lanebus: CommandLine) -> None:
    messages = '{"role":"user","content":"hi"}\n{"role":"context","kind":"leafMove","to":99}'
    assert lanebus("publish", "s", "--json", stdin=messages).code == 0
    answer = lanebus("context", "s", "--model", "m")
    assert answer.err == "warning: entry 2: names entry 99, which is not there before it\n"


def test_an_invalid_tools_file_is_named(lanebus: CommandLine, tmp_path: Path) -> None:
    lanebus("publish", "s", "hi")
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name":"a","name":"b"}]')
    answer = lanebus("context", "s", "--model", "m", "--tools", tools)
    assert (answer.code, answer.out) == (6, "")
    assert answer.err == f"error: {tools}: 0.name: given twice in one object\nhint: correct the input and try again\n"
