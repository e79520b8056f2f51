"""`lanebus publish`: what is published, and what is refused."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from tests.support.cli.command_line import CommandLine, objects
from tests.support.servers.real import RealServer

__all__ = ()


def test_a_text_is_published_as_a_user_message(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "17 × 23?").object == {"session": "s", "positions": [1], "is_duplicate": False}
    message = lanebus("tail", "s").object["message"]
    assert isinstance(message, dict)
    assert message["role"] == "user"
    assert message["content"] == [{"type": "text", "text": "17 × 23?"}]


def test_without_an_argument_the_text_comes_from_stdin(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "--role", "system", stdin="two\nlines\n").code == 0
    message = lanebus("tail", "s").object["message"]
    assert isinstance(message, dict)
    assert (message["role"], message["content"]) == ("system", [{"type": "text", "text": "two\nlines"}])


def test_an_extension_message_takes_its_data_as_json(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "--extension", "progress", '{"percent": 40}').code == 0
    entry = lanebus("tail", "s").object
    assert entry["lane"] == "extension"
    assert entry["message"] == {"role": "extension", "kind": "progress", "data": {"percent": 40}}


def test_lines_of_json_are_published_in_one_step(lanebus: CommandLine) -> None:
    lines = '{"role":"user","content":"a"}\n\n{"role":"extension","kind":"k","data":null}\n'
    assert lanebus("publish", "s", "--json", stdin=lines).object["positions"] == [1, 2]
    assert [entry["lane"] for entry in objects(lanebus("tail", "s").out)] == ["llm", "extension"]


def test_publishing_again_with_the_same_key_adds_nothing(lanebus: CommandLine) -> None:
    assert lanebus("publish", "s", "a", "--key", "k").object["is_duplicate"] is False
    assert lanebus("publish", "s", "a", "--key", "k").object == {"session": "s", "positions": [1], "is_duplicate": True}
    assert len(objects(lanebus("tail", "s").out)) == 1


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
        (["--extension", "k"], "{", "not JSON"),
        ([], b"\xff", "not UTF-8"),
        ([], 2_000_000 * "x", "over the limit of 1048576 bytes"),
    ],
)
def test_invalid_input_is_refused_and_nothing_is_published(
    lanebus: CommandLine, words: list[str], stdin: str | bytes, expected: str
) -> None:
    answer = lanebus("publish", "s", *words, stdin=stdin)
    assert answer.code == 6
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 2
    assert expected in answer.err
    assert lanebus("sessions").out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["", "--role", "user"],
        [],
        ["--json"],
        ["x", "--json"],
        ["x", "--role", "user", "--extension", "k"],
        ["x", "--role", "assistant"],
        ["x", "--expected", "-1"],
    ],
)
def test_wrong_usage_is_reported_before_the_bus_is_opened(unopened: CommandLine, words: list[str]) -> None:
    answer = unopened("publish", "s", *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert not unopened.data_dir.exists()


def test_a_terminal_shows_the_position_of_the_message(lanebus: CommandLine) -> None:
    position, hint = lanebus.at_terminal("publish", "s", "a").out.splitlines()
    assert position == "s: published at position 1"
    assert hint.startswith("no worker serves the agent agent")


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
    assert answer.code == 2
    assert "begins with one of s3://" in answer.err


def test_a_command_that_the_user_may_not_run_is_named_with_the_right_to_grant(
    process: RealServer, lanebus: CommandLine
) -> None:
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
