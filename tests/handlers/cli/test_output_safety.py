"""No command prints a character that a terminal obeys, or a password of a server's URL."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.support.cli.command_line import Answer, CommandLine
from tests.support.paths import ROOT

pytestmark = pytest.mark.full

BAD = "\x1b[2K\x07\x9b\x7f\r\b\u202e\u200b\u2066\u2028\U000e0041\t"
"""characters that control a terminal, change the direction of text, or are not seen"""

WRITERS = {
    "output.py": "the writer, and a screen that it draws with codes of its own around escaped lines",
    "commands/transcripts.py": "draws with codes of its own, and only numbers",
    "arguments.py": "asks an escaped question",
    "commands/help.py": "prints a constant script for a shell",
}


def unsafe(text: str) -> set[str]:
    """Return the characters of an output that no terminal should get."""
    return {each for each in text if each != "\n" and not each.isprintable()}


def assert_safe(answer: Answer, words: object) -> None:
    assert (words, unsafe(answer.out), unsafe(answer.err)) == (words, set(), set())
    assert "Traceback" not in answer.err, answer.err


def event(kind: str, **data: JsonValue) -> JsonValue:
    return {"role": "extension", "kind": f"agent.{kind}", "data": data}


def hostile() -> list[str]:
    """Return a session with unsafe characters in each text that a message has, as lines of JSON."""
    turn: JsonValue = {"loopId": f"s.main{BAD}.1", "turnIndex": 0}
    about: dict[str, JsonValue] = {"turnId": turn, "toolCallId": f"c1{BAD}", "toolName": f"run{BAD}"}
    call: dict[str, JsonValue] = {"type": "toolCall", "id": f"c1{BAD}", "name": f"run{BAD}"}
    picture = {"mimeType": "image/png", "data": "iVBORw0KGgo=", "filename": f"a{BAD}.png"}
    said = f"text{BAD}\n```{BAD}\ncode{BAD}\n```\n[a{BAD}](https://example.com/{BAD})"
    entries: list[JsonValue] = [
        {"role": "user", "content": [{"type": "text", "text": f"title{BAD}"}, {"type": "image", **picture}]},
        event("started", loopId=f"s.main{BAD}.1", agent=f"a{BAD}"),
        event("turn.started", turnId=turn, prompts=[1]),
        {
            "role": "assistant",
            "model": f"m{BAD}",
            "provider": f"p{BAD}",
            "content": [
                {"type": "thinking", "thinking": f"thought{BAD}"},
                {"type": "text", "text": said},
                {**call, "arguments": {f"key{BAD}": [f"value{BAD}"]}},
                {**call, "id": "c2", "arguments": {f"k{BAD}": f"a\n{BAD}"}},
            ],
            "stopReason": "toolUse",
        },
        event("tool.started", **about),
        {"role": "toolResult", **about, "content": f"r{BAD}", "isError": True},
        event("tool.ended", **about, isError=True, outcome="timed_out", position=6),
        event("tool.waiting", **about),
        event("turn.ended", turnId=turn, stopReason=f"odd{BAD}", usage={"total_tokens": 1}, message=4),
        event("input.rejected", reason=f"r{BAD}", position=1),
        event("ended", loopId=f"s.main{BAD}.1", stopReason=f"why{BAD}", rejection=f"r{BAD}", turns=1),
        {"role": "extension", "kind": f"note{BAD}", "data": {f"k{BAD}": f"v{BAD}"}},
        {"role": "compaction", "summary": f"s{BAD}", "firstKept": 4},
        {"role": "assistant", "stopReason": "error", "error_message": f"no{BAD}", "content": []},
    ]
    return [json.dumps(entry) for entry in entries]


@pytest.fixture(scope="module")
def filled(module_lanebus: CommandLine) -> CommandLine:
    """Return a command line whose session `s` has every hostile entry that a bus accepts."""
    for line in hostile():
        answer = module_lanebus("publish", "s", "--json", stdin=line)
        assert_safe(answer, line[:80])
        assert answer.code in {0, 6}, answer.err
    assert int(str(module_lanebus("sessions").object["position"])) > 9
    return module_lanebus


READING = (
    *("show s", "show s --full", "tail s --table", "tail s --table --all", "tail s --json", "sessions --table"),
    *("sessions", "turns s --table", "turns s --loops --table", "turns s", "usage s --table", "usage s --tree --table"),
    *("context s --provider anthropic", "context s --table --provider openai", "agents --table", "top --once --table"),
    *("verify --table", "replay s --table", "replay s", "export s", "groups status --table", "dead list --table"),
    *("projections list s --table", "doctor --table", "config show --table", "fork s --at 3", "close s", "reopen s"),
)


def test_a_hostile_session_controls_no_terminal(filled: CommandLine) -> None:
    for words in READING:
        assert_safe(filled(*words.split()), words)
    for words in ("show s", "tail s --json", "turns s", "sessions"):
        shown = filled.at_terminal(*words.split(), columns=200).out
        for colour in ("\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[31m", "\x1b[0m"):
            shown = shown.replace(colour, "")
        assert (words, unsafe(shown)) == (words, set())


GIVEN: tuple[tuple[str, ...], ...] = (
    *(("show", BAD), ("publish", BAD, "x"), ("tail", "s", "--kind", BAD), ("tail", "s", "--after", BAD), (BAD,)),
    *((f"--{BAD}",), ("sessions", "--namespace", BAD), ("sessions", "--url", f"redis://{BAD}"), ("dead", "show", BAD)),
    *(("worker", f"{BAD}:x"), ("worker", f"{BAD}.py:x"), ("import", BAD), ("sessions", "--config", BAD)),
    *(("control", "s", "approve", f"{BAD}#0", BAD), ("control", "s", BAD), ("context", "s", "--model", BAD)),
    *(("sessions", "--redact", f"{BAD}:x"), ("archive", "s", "--archive", f"s3://{BAD}"), ("help", BAD)),
    *(("groups", "remove", BAD, "--yes"), ("projections", "remove", "s", BAD), ("serve", "--host", BAD)),
    *(("token", "sign", "--key-file", BAD, "--name", "x"), ("convert", "--from", BAD), ("agents", "default", BAD)),
)


def test_an_error_that_quotes_an_argument_controls_no_terminal(filled: CommandLine) -> None:
    for words in GIVEN:
        assert_safe(filled(*words), words)


def test_an_unexpected_error_is_printed_without_control_characters_and_passwords(tmp_path: Path) -> None:
    code = (
        "from lanebus.handlers.cli import group as entry\nimport logging\n"
        "def fail(*_, **__):\n    logging.getLogger('lanebus.x').error('token redis://u:CANARY@h \\x1b')\n"
        "    try:\n        raise OSError('redis://u:CANARY#1@h \\x1b[2K')\n"
        "    except OSError as error:\n        raise ValueError('password=CANARY\\x9b') from error\n"
        "entry.lanebus.main = fail\nentry.run_command_line([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    text = done.stderr.decode()
    assert done.returncode == 1
    assert text.startswith("token redis://***@h \\x1b\nTraceback")
    assert "OSError: redis://***@h \\x1b[2K" in text
    assert "ValueError: password=***" in text
    assert ("CANARY" in text.replace("u:CANARY#", "").replace("password=CANARY", ""), unsafe(text)) == (False, set())


def writes(path: Path) -> Iterator[int]:
    """Yield each line of a module that prints, or writes to stdout or stderr."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in {"print", "click.echo", "click.secho", "click.confirm", "click.prompt", "click.style"}:
                yield node.lineno
            if name.startswith(("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer")):
                yield node.lineno


def test_only_the_writer_writes_to_the_terminal() -> None:
    folder = ROOT / "handlers/cli"
    found = {str(path.relative_to(folder)): [*writes(path)] for path in folder.rglob("*.py")}
    assert {name for name, lines in found.items() if lines} == {*WRITERS}


CANARY = "hunter2CANARY"

URLS = (
    *("redis://u:{}@127.0.0.1:1", "redis://u:{}#1@127.0.0.1:1", "redis://u:{}/x@127.0.0.1:1"),
    *("redis://u:{}?x@127.0.0.1:1", "redis://u:12/{}@127.0.0.1:1", "redis://u:12#{}@127.0.0.1:1"),
    *("redis://u:12?{}=1@127.0.0.1:1", "redis://u:a@{}@127.0.0.1:1", "redis://u:a@b/{}@127.0.0.1:1"),
    *("redis://u:%40{}@127.0.0.1:1", "redis://u:{} 1@127.0.0.1:1"),
    *("redis://127.0.0.1:1/0?username=u&password={}", "redis://127.0.0.1:1/0?password=a'{}#1"),
    *("rediss://:{}@127.0.0.1:1", "rediss+sentinel://127.0.0.1:1/m?sentinel_username=s&sentinel_password={}"),
    *("redis+sentinel://u:{}/1@127.0.0.1:1/m", "redis+cluster://u:{}?1@127.0.0.1:1", "unix://u:{}#@/none"),
    *("http://u:{}@127.0.0.1:1", "redis://u:\u2100{}@127.0.0.1:1"),
    *(f"redis://u:a{mark}{{}}@127.0.0.1:1" for mark in ("',b", '",', "\t", "\n", "\u00a0", "\u2028")),
    *("u:{}@127.0.0.1:1", "redis:/u:{}@127.0.0.1", "redis://127.0.0.1:1/0?pass={}", "redis://u:{}"),
)

COMMANDS = (
    *("sessions", "doctor", "config show", "verify", "serve --port 0 --wait 0"),
    "worker lanebus.handlers.agent.demo:agent --wait 0",
)


@pytest.mark.parametrize("url", URLS)
def test_no_command_prints_a_password_of_the_server_s_url(unopened: CommandLine, url: str, tmp_path: Path) -> None:
    secret, settings = url.format(CANARY), tmp_path / "lanebus.toml"
    settings.write_text(f"url = {json.dumps(secret)}\n")
    calls = [(*words.split(), "--url", secret) for words in COMMANDS]
    calls.append(("config", "show", "--config", str(settings)))
    # In a text, some characters end a URL, and one without :// or with other parameters is not known as one.
    if not any(mark in secret for mark in (*' \t\n\u00a0\u2028",', "pass=")) and "@" in secret.partition("://")[2]:
        calls += [("sessions", secret), ("sessions", "--namespace", secret), ("worker", secret)]
    for words in calls:
        answer = unopened(*words)
        assert (words[:2], CANARY in answer.out, CANARY in answer.err) == (words[:2], False, False)
        assert "Traceback" not in answer.err, answer.err
