"""`lanebus publish`, `control`, `close`, `reopen`, and `--redact`, which changes messages before they are stored."""

import base64
import hashlib
import json
from pathlib import Path

import httpx2
import pytest
from pydantic import JsonValue

from tests.support.cli.command_line import CommandLine, complete, objects
from tests.support.servers.clusters import wait_until
from tests.support.servers.real import RealServer


def messages(lanebus: CommandLine) -> list[dict[str, JsonValue]]:
    """The messages of session `s`."""
    found = [entry["message"] for entry in objects(lanebus("tail", "s").out)]
    return [message for message in found if isinstance(message, dict)]


def kinds(lanebus: CommandLine) -> list[object]:
    """The role or kind of each entry of session `s`."""
    return [message.get("kind", message["role"]) for message in messages(lanebus)]


# --- publish ------------------------------------------------------------------------------------------------------


def test_texts_data_and_lines_of_json_are_published_once_for_each_key(lanebus: CommandLine) -> None:
    receipt: dict[str, JsonValue] = {"session": "s", "positions": [1], "is_duplicate": False}
    assert lanebus("publish", "s", "17 × 23?", "--key", "k").object == receipt
    assert lanebus("publish", "s", "17 × 23?", "--key", "k").object == {**receipt, "is_duplicate": True}
    assert lanebus("publish", "s", "--role", "system", stdin="two\nlines\n").code == 0
    assert lanebus("publish", "s", "--extension", "progress", '{"percent": 40}').code == 0
    lines = '{"role":"user","content":"a"}\n\n{"role":"extension","kind":"k","data":null}\n'
    assert lanebus("publish", "s", "--json", stdin=lines).object["positions"] == [4, 5]
    lanes = [entry["lane"] for entry in objects(lanebus("tail", "s").out)]
    assert lanes == ["llm", "llm", "extension", "llm", "extension"]
    first, second, third, *_ = messages(lanebus)
    assert (first["role"], first["content"]) == ("user", [{"type": "text", "text": "17 × 23?"}])
    assert (second["role"], second["content"]) == ("system", [{"type": "text", "text": "two\nlines"}])
    assert third == {"role": "extension", "kind": "progress", "data": {"percent": 40}}


def test_publish_is_refused_if_the_position_is_not_the_expected_one(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "a", "--expected", "0").code == 0
    answer = lanebus("publish", "s", "b", "--expected", "0")
    assert (answer.code, answer.err) == (
        4,
        "error: session 's' is at position 1, expected 0\n"
        'hint: read on with `lanebus tail s --json`, then repeat with --expected and the "cursor" of its last line\n',
    )


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        (["--json"], '{"role":"user","content":"ok"}\n{"role":"robot"}', "line 2: unknown role 'robot'"),
        (["--json"], '{"role":"user","content":"ok"}\nnot json', "line 2: not JSON"),
        (["--json"], b'{"role":"user","content":"ok"}\n\xff', "line 2: not UTF-8"),
        (["--json"], '{"role":"user","kind":"k","data":1}', "line 1: "),
        (["--json"], '{"role":"user","content":"a","x\\u001b[31m":1}', "line 1: x\\x1b[31m: "),
        (["--extension", "k"], "{", "not JSON"),
        ([], b"\xff", "not UTF-8"),
        ([], 2_000_000 * "x", "over the limit of 1048576 bytes"),
    ],
)
def test_invalid_input_is_refused(lanebus: CommandLine, words: list[str], stdin: str | bytes, expected: str) -> None:
    answer = lanebus("publish", "s", *words, stdin=stdin)
    assert (answer.code, answer.err.count("\n"), answer.err.startswith("error: ")) == (6, 2, True)
    assert expected in answer.err
    assert lanebus("sessions").out == ""


def test_wrong_usage_is_reported_before_the_bus_is_opened(unopened: CommandLine) -> None:
    for words in (
        *(["", "--role", "user"], [], ["--json"], ["x", "--json"], ["x", "--role", "assistant"]),
        *(["x", "--role", "user", "--extension", "k"], ["x", "--expected", "-1"]),
    ):
        answer = unopened("publish", "s", *words)
        assert (words, answer.code, answer.out, answer.err[:7]) == (words, 2, "", "error: ")
    assert not unopened.data_dir.exists()


def test_large_media_are_stored_in_the_named_store(lanebus: CommandLine, tmp_path: Path) -> None:
    data = b"\x89PNG\r\n\x1a\n" + b"a" * 60_000
    image = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}
    line = json.dumps({"role": "user", "content": [image]})
    assert lanebus("publish", "s", "--json", "--media", str(tmp_path / "media"), stdin=line).code == 0
    assert lanebus("publish", "s", "--json", stdin=line, env={"LANEBUS_MEDIA": str(tmp_path / "other")}).code == 0
    sha256 = hashlib.sha256(data).hexdigest()
    for folder in ("media", "other"):
        assert (tmp_path / folder / "lanebus" / sha256[:2] / sha256[2:4] / sha256).read_bytes() == data
    assert sha256 in lanebus("tail", "s").out
    answer = lanebus("publish", "s", "a", "--media", "nowhere://x")
    assert (answer.code, "begins with one of s3://" in answer.err) == (2, True)


def test_a_command_that_the_user_may_not_run_is_named_with_help(process: RealServer, lanebus: CommandLine) -> None:
    process.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "&*", "+@all", "-xadd")
    url = f"unix://app:pass@{process.socket}"
    answer = lanebus("publish", "s", "hi", "--url", url)
    assert (answer.code, answer.out) == (2, "")
    if process.binary.name == "redis-server":  # Redis 7.0 names no command of a script
        fault, hint = "with NOPERM", "which names the right that the user lacks"
        assert "may not run xadd on keys" in lanebus("doctor", "--url", url).out
    else:
        fault, hint = "'xadd' with NOPERM", "run `lanebus acl` and apply what it prints"
    assert fault in answer.err.splitlines()[0]
    assert answer.err.splitlines()[1].endswith(hint)


# --- control ------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_every_command_is_appended_once_with_its_arguments_and_options(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    sent = {"session": "s", "is_duplicate": False, "outcome": None, "reason": None}
    assert lanebus("control", "s", "abort", "--when", "turn", "--by", "ada").object == {**sent, "positions": [2]}
    assert lanebus("control", "s", "steer", "in French").object == {**sent, "positions": [3, 4]}
    assert lanebus("control", "s", "follow-up", "and then?").object == {**sent, "positions": [5]}
    assert messages(lanebus)[1]["data"] == {"by": "ada", "when": "turn"}
    for turn in ("main.1#2", "s.main.1#2"):  # with or without the session
        for words in (["approve", turn, "c1"], ["deny", turn, "c1"]):
            assert lanebus("control", "s", *words).code == 0
            assert messages(lanebus)[-1]["data"] == {
                "turnId": {"loopId": "s.main.1", "turnIndex": 2},
                "toolCallId": "c1",
            }
    for words in (["pause", "--key", "k"], ["handoff", "--to", "ada"], ["resume"], ["compact"]):
        first = lanebus("control", "s", *words)
        assert first.code == 0
    assert lanebus("control", "s", "pause", "--key", "k").object == {**sent, "positions": [10], "is_duplicate": True}
    commands = ["approve", "deny", "approve", "deny", "pause", "handoff", "resume", "compact"]
    assert kinds(lanebus) == [
        *("user", "control.abort", "user", "control.steer", "user"),
        *(f"control.{name}" for name in commands),
    ]


@pytest.mark.full
def test_the_exit_code_says_whether_a_command_was_applied_in_time(lanebus: CommandLine) -> None:
    for outcome, code in (("applied", 0), ("repeated", 0), ("late", 4), ("refused", 4)):
        lanebus("publish", outcome, "hello")
        lanebus("control", outcome, "pause", "--key", "k")
        answered = f'{{"control": 2, "outcome": "{outcome}"}}'
        lanebus("publish", outcome, "--extension", "agent.control.answered", answered)
        answer = lanebus("control", outcome, "pause", "--key", "k", "--wait", "60")
        assert (answer.code, answer.object["outcome"]) == (code, outcome)
    lanebus("publish", "s", "hello")
    answer = lanebus("control", "s", "pause", "--wait", "0")
    assert (answer.code, answer.out) == (5, "")
    assert "the command at position 2 within 0 s" in answer.err
    assert lanebus("control", "nosuch", "pause").code == 3


@pytest.mark.full
def test_wrong_arguments_and_options_of_a_command_are_refused(lanebus: CommandLine) -> None:
    for words in (
        *("sing", "steer", "pause please", "pause --when now", "abort --when next", "resume --reason x"),
        *("approve c1", "approve turn c1", "follow-up x --wait 1"),
    ):
        answer = lanebus("control", "s", *words.split())
        assert (words, answer.code, answer.out) == (words, 2, "")


# --- close and reopen ---------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_session_is_closed_with_last_messages_and_reopened(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "hello")
    answer = lanebus("close", "s", "thanks", "bye", "--reason", "solved")
    assert answer.object == {"session": "s", "is_closed": True, "positions": [2, 3, 4], "is_duplicate": False}
    assert messages(lanebus)[-1] == {"role": "extension", "kind": "session.closed", "data": {"reason": "solved"}}
    for words in (["publish", "s", "more"], ["close", "s", "more"]):
        refused = lanebus(*words)
        assert (refused.code, refused.out, refused.err) == (
            4,
            "",
            "error: session 's' is closed\nhint: `lanebus reopen s` opens it again\n",
        )
    assert lanebus("sessions").object["is_closed"] is True
    answer = lanebus("reopen", "s", "once more")
    assert answer.object == {"session": "s", "is_closed": False, "positions": [5, 6], "is_duplicate": False}
    assert lanebus("publish", "s", "more").code == 0
    assert kinds(lanebus) == ["user", "user", "user", "session.closed", "session.reopened", "user", "user"]
    assert lanebus("verify", "--all").code == 0


@pytest.mark.full
def test_closing_or_reopening_twice_appends_nothing_and_a_missing_session_is_not_made(lanebus: CommandLine) -> None:
    for name in ("close", "reopen"):
        answer = lanebus(name, "nosuch")
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.startswith("error: session 'nosuch' has no entries")
    assert lanebus("sessions").out == ""
    lanebus("publish", "s", "hello")
    nothing: dict[str, JsonValue] = {"session": "s", "positions": [], "is_duplicate": True}
    for key in ([], ["--key", "new"]):
        assert lanebus("reopen", "s", *key).object == {**nothing, "is_closed": False}
    refused = lanebus("reopen", "s", "more")
    assert (refused.code, refused.err.splitlines()[0]) == (4, "error: session 's' is open")
    assert lanebus("close", "s", " ").code == 2
    first = lanebus("close", "s", "--key", "k").object
    assert lanebus("close", "s", "--key", "k").object == {**first, "is_duplicate": True}
    for key in ([], ["--key", "new"]):
        assert lanebus("close", "s", *key).object == {**nothing, "is_closed": True}
    again = lanebus("reopen", "s", "--key", "r").object
    assert lanebus("reopen", "s", "--key", "r").object == {**again, "is_duplicate": True}
    assert kinds(lanebus) == ["user", "session.closed", "session.reopened"]


@pytest.mark.full
def test_the_expected_end_may_be_a_position_or_the_cursor_of_the_last_entry(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "a")
    (entry,) = objects(lanebus("tail", "s", "--json").out)
    cursor = str(entry["cursor"])
    other = f"{cursor[:-1]}{'1' if cursor[-1] == '0' else '0'}"  # another entry at the same position
    for words in (["publish", "s", "b"], ["close", "s"], ["hand-over", "s", "other"]):
        refused = lanebus(*words, "--expected", other)
        assert (refused.code, "lost" in refused.err) == (4, True), refused
    assert lanebus("publish", "s", "b", "--expected", cursor).code == 0
    for expected in (cursor, "5"):
        assert lanebus("close", "s", "--expected", expected).code == 4
    assert lanebus("sessions").object["is_closed"] is False
    assert lanebus("close", "s", "--expected", "2").code == 0


@pytest.mark.full
def test_a_terminal_shows_what_was_done_and_its_position(lanebus: CommandLine) -> None:
    position, hint = lanebus.at_terminal("publish", "s", "a").out.splitlines()
    assert position == "s: published at position 1"
    assert hint.startswith("no worker serves the agent agent")
    for words, shown in (
        ("control s resume", "s: sent at position 2"),
        ("close s", "s: closed at position 3"),
        ("close s", "s: already closed"),
        ("reopen s", "s: open at position 4"),
        ("reopen s", "s: already open"),
    ):
        assert lanebus.at_terminal(*words.split()).out == f"{shown}\n"


# --- redact -------------------------------------------------------------------------------------------------------

SECRET = "4111-1111"
MODULE = f"""
from lanebus import ToolCallBlock
from lanebus.agent import AgentLoop, tool
from lanebus.messages import Redactable
from lanebus.testing import ScriptedModel


def hide(message: Redactable) -> Redactable:
    return type(message).model_validate_json(message.to_json().replace("{SECRET}", "###"))


async def is_async(message: Redactable) -> Redactable:
    return message


class IsAsync:
    async def __call__(self, message: Redactable) -> Redactable:
        return message


is_async_object, number = IsAsync(), 3


@tool(idempotent=True)
async def card() -> str:
    return "the tool has {SECRET}"


agent = AgentLoop(ScriptedModel(ToolCallBlock(id="c1", name="card"), "the model says {SECRET}"), (card,))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(MODULE)
    return path


def assert_redacted(lanebus: CommandLine, session: str, *texts: str) -> None:
    """Check all entries of a session, as a command without the function prints them."""
    stored = lanebus("export", session).out
    assert [text for text in texts if text not in stored] == []
    assert SECRET not in stored


@pytest.mark.full
def test_publish_import_and_the_page_store_what_the_function_returns(lanebus: CommandLine, file: Path) -> None:
    said, target, settings = f"My card is {SECRET}", f"{file}:hide", file.with_name("lanebus.toml")
    settings.write_text(f"redact = {json.dumps(target)}\n")
    assert lanebus("publish", "option", said, "--redact", target).code == 0
    assert lanebus("publish", "variable", said, env={"LANEBUS_REDACT": target}).code == 0
    assert lanebus("publish", "file", said, "--config", str(settings)).code == 0
    transcript = file.with_name("chat.json")
    transcript.write_text(json.dumps({"messages": [{"role": "user", "content": said}]}))
    assert lanebus("import", transcript, "--session", "import", "--redact", target).code == 0
    with lanebus.running("serve", "--port", "0", "--redact", target) as process:
        base, _, token = process.out.readline().strip().partition("#token=")
        headers = {"Authorization": f"Bearer {token}"}
        reply = httpx2.post(f"{base}api/sessions/page/messages", json={"text": said}, headers=headers)
        assert reply.is_success, reply.text
    for session in ("option", "variable", "file", "import", "page"):
        assert_redacted(lanebus, session, "My card is ###")


@pytest.mark.full
def test_a_worker_stores_results_and_answers_as_the_function_returns_them(lanebus: CommandLine, file: Path) -> None:
    assert lanebus("publish", "s", "Which card?").code == 0
    with lanebus.running("worker", f"{file}:agent", "--redact", f"{file}:hide"):
        wait_until(lambda: "the model says " in lanebus("export", "s").out)
    assert_redacted(lanebus, "s", "the tool has ###", "the model says ###")


@pytest.mark.full
@pytest.mark.parametrize("words", [("publish", "s", "hi"), ("worker", "{file}:agent")], ids=["publish", "worker"])
def test_what_is_no_plain_function_is_refused_first(unopened: CommandLine, file: Path, words: tuple[str, ...]) -> None:
    no_function = "it cannot be called, is async, or is a class"
    for target, reason in (
        ("shop", "this is neither module:attribute nor path/to/file.py:attribute"),
        ("nosuch:hide", "there is no module 'nosuch'"),
        ("{file}x.py:hide", "there is no file"),
        ("{file}:nosuch", "has no attribute 'nosuch'"),
        *((f"{{file}}:{name}", no_function) for name in ("is_async", "is_async_object", "IsAsync", "number")),
    ):
        given = [word.format(file=file) for word in (*words, "--redact", target)]
        answer = unopened(*given)
        assert (target, answer.code) == (target, 2), answer.err
        assert f"error: redact {given[-1]!r}: " in answer.err
        assert reason in answer.err
        assert "hint: name a plain function that takes and returns a message, as module:attribute" in answer.err
        assert "Traceback" not in answer.err
    file.write_text("1 / 0\n")
    answer = unopened("publish", "s", "hi", "--redact", f"{file}:hide")
    assert (answer.code, "lanebus/handlers" in answer.err) == (1, False)
    assert f"error: {file}:hide raised ZeroDivisionError while it was imported" in answer.err
    assert not unopened.data_dir.exists() or not [*unopened.data_dir.iterdir()]


@pytest.mark.full
def test_a_completion_does_not_import_the_module(lanebus: CommandLine, file: Path) -> None:
    lanebus("publish", "support-1", "hi")
    file.write_text("raise SystemExit('imported')\n")
    assert complete(lanebus, "lanebus", "--redact", f"{file}:hide", "tail", "sup") == ["support-1"]
