"""`lanebus convert`: forms of input and output, losses and faults."""

import json
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.handlers.cli.commands.transcripts import (
    SOURCES,
    TARGETS,
    BadInput,
    InputTooLarge,
    read_values,
    written_values,
)
from tests.support.cli.command_line import CommandLine

pytestmark = pytest.mark.full

Fields = dict[str, JsonValue]
SAID: Fields = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
ANSWERED: dict[str, JsonValue] = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "model": "m-1"}
EXTENSION: dict[str, JsonValue] = {"role": "extension", "kind": "note", "data": None}


def lines(*messages: JsonValue) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def convert(lanebus: CommandLine, source: str, target: str, stdin: str | bytes, *more: str) -> tuple[int, str, str]:
    answer = lanebus("convert", "--from", source, "--to", target, *more, stdin=stdin)
    return answer.code, answer.out, answer.err


# --- forms --------------------------------------------------------------------------------------------------------


def test_the_output_has_the_form_of_the_input(lanebus: CommandLine) -> None:
    for stdin in (
        json.dumps(SAID),
        json.dumps([SAID, ANSWERED], indent=2),
        json.dumps([SAID]),
        "[]",
        lines(SAID, ANSWERED),
    ):
        code, out, err = convert(lanebus, "native", "native", stdin)
        assert (code, err) == (0, "")
        found, given = read_values(out.encode()), read_values(stdin.encode())
        assert found.form == given.form
        assert [cast("Fields", value)["role"] for _, value in found.values] == [
            cast("Fields", value)["role"] for _, value in given.values
        ]
    assert [written_values("one", values) for values in ([1, 2], [1], [])] == ["[1,2]", "1", "[]"]
    assert written_values("lines", [1, 2]) == "1\n2"
    line: JsonValue = {"type": "message", "timestamp": "1970-01-01T00:00:00.005Z", "message": {**SAID, "timestamp": 5}}
    bare, whole = (convert(lanebus, "pi", "native", json.dumps(each)) for each in ({**SAID, "timestamp": 5}, line))
    assert bare == whole
    assert json.loads(bare[1]) == {**SAID, "timestamp": 5}


@pytest.mark.parametrize("name", ["000", "001", "002", "003"])
def test_a_message_converts_to_each_seed_and_back(lanebus: CommandLine, name: str) -> None:
    message = {**SAID, "timestamp": 12345}
    code, out, err = convert(lanebus, "native", name, json.dumps(message))
    assert (code, err) == (0, "")
    code, back, err = convert(lanebus, name, "native", out)
    assert (code, err) == (0, "")
    assert {key: item for key, item in json.loads(back).items() if key in message} == message


def test_messages_of_a_seed_convert_to_a_request(lanebus: CommandLine) -> None:
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"kind": "text", "text": "yes"}]}]
    code, out, err = convert(
        lanebus, "004", "openai-chat", json.dumps(history), "--model", "gpt-5", "--max-tokens", "9"
    )
    assert (code, err) == (0, "")
    body = json.loads(out)
    assert (body["model"], len(body["messages"])) == ("gpt-5", 2)
    assert 9 in body.values()


@pytest.mark.parametrize("target", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_request_is_one_body_whatever_form_the_input_has(lanebus: CommandLine, target: str) -> None:
    bodies = {
        convert(lanebus, "native", target, stdin)
        for stdin in (lines(SAID, ANSWERED, SAID), json.dumps([SAID, ANSWERED, SAID]))
    }
    ((code, out, err),) = bodies
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out), dict)


# --- losses -------------------------------------------------------------------------------------------------------


def test_losses_are_named_and_nothing_is_written_unless_lossy(lanebus: CommandLine) -> None:
    messages = [{**SAID, "name": "ann"}, {**SAID, "metadata": {"a": 1}}]
    code, out, err = convert(lanebus, "native", "001", json.dumps(messages))
    assert (code, out, "0.name" in err, "1.metadata" in err) == (6, "", True, True)
    code, out, err = convert(lanebus, "native", "001", json.dumps(messages), "--lossy")
    assert (code, len(json.loads(out))) == (0, 2)
    assert all(line.startswith("warning: ") for line in err.splitlines())
    request = ("native", "anthropic", lines(SAID, EXTENSION), "--model", "m")
    code, out, err = convert(lanebus, *request)
    assert (code, out, "1: an extension message" in err) == (6, "", True)
    code, out, err = convert(lanebus, *request, "--lossy")
    assert (code, err) == (0, "warning: 1: an extension message, which no model sees\n")
    assert "note" not in out


def test_signed_thinking_is_kept_only_for_the_named_author(lanebus: CommandLine) -> None:
    thinking: JsonValue = {"kind": "thinking", "thinking": {"text": "hm", "signature": "c2ln"}}
    answer: JsonValue = {"role": "assistant", "content": [thinking, {"kind": "text", "text": "yes"}]}
    question: JsonValue = {"role": "user", "content": [{"kind": "text", "text": "a"}]}
    for author, signatures in (("anthropic/m", 1), ("anthropic/other", 0), ("openai/m", 0)):
        code, out, _ = convert(
            lanebus, "004", "anthropic", lines(question, answer), "--author", author, "--model", "m", "--lossy"
        )
        assert (code, out.count('"signature":"c2ln"')) == (0, signatures), author


# --- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stdin", "expected"),
    [
        (lines(SAID, {"role": "user", "content": 7}), "error: line 2: content: "),
        (lines(SAID) + "\n{\n" + lines(SAID), "error: line 3: not JSON"),
        (json.dumps([SAID, {"role": "narrator"}]), "error: message 2: unknown role 'narrator'"),
        (json.dumps({"role": "user", "content": [{"type": "image", "media": {}}]}), "error: content.0.media"),
        ("{\n", "error: not JSON"),
        (b"\xff\xfe", "error: not UTF-8"),
        ("7", "error: a message is a JSON object"),
        ('{"role":"user","role":"user"}', "error: role: given twice"),
    ],
)
def test_a_fault_is_one_line_that_names_its_place(lanebus: CommandLine, stdin: str | bytes, expected: str) -> None:
    code, out, err = convert(lanebus, "native", "001", stdin)
    assert (code, out, err.count("\n")) == (6, "", 2)
    assert err.startswith(expected)


@pytest.mark.parametrize("source", SOURCES)
def test_foreign_messages_cause_no_traceback(lanebus: CommandLine, source: str) -> None:
    for stdin in ("7", "{}", '{"role":7}', '{"type":"x","role":"user"}', "[[]]", '{"role":"user","content":{}}'):
        code, _, err = convert(lanebus, source, "native", stdin)
        assert "Traceback" not in err, stdin
        assert code in {0, 6}, stdin


def test_wrong_usage_exits_with_code_2(lanebus: CommandLine) -> None:
    said = json.dumps(SAID)
    for source, target, stdin, *more, reason in (
        ("native", "001", "", ""),
        ("native", "anthropic", said, "--model"),
        ("native", "001", said, "--model", "m", ""),
        ("anthropic", "001", said, ""),
        ("native", "native", said, "--author", "anthropic", "PROVIDER/MODEL"),
    ):
        code, out, err = convert(lanebus, source, target, stdin, *more)
        assert (code, out, reason in err) == (2, "", True)


def test_an_input_over_the_limit_is_refused() -> None:
    with pytest.raises(InputTooLarge, match="10 bytes"):
        read_values(b'{"a":"bbbbbbbbbbb"}', limit_bytes=10)
    with pytest.raises(BadInput):
        read_values(b"{", limit_bytes=10)


# --- pi -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_real_session_converts_to_every_target(lanebus: CommandLine, seed_data: Path, target: str) -> None:
    stdin = (seed_data / "data" / "pi-session.jsonl").read_bytes()
    code, out, _ = convert(lanebus, "pi", target, stdin, "--lossy")
    assert code == 0
    found = read_values(out.encode())
    assert found.form == ("one" if target in {"anthropic", "openai-chat", "openai-responses", "gemini"} else "lines")
