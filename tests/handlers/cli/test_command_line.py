"""The command line as a whole: its help, its settings, its exit codes, its end."""

import os
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from lanebus.handlers.cli import access
from lanebus.handlers.cli.entry import run_command_line
from lanebus.handlers.cli.group import COMMANDS, module_of
from tests.support.cli.command_line import CommandLine
from tests.support.paths import ROOT

__all__ = ()

SILENT = "error: the server has not answered for 0.2 s; is it stopped, or loading a large log?\n"
NAMES = [name for group in COMMANDS.values() for name in group]


# --- help ---------------------------------------------------------------------------------------------------------


def test_help_names_every_command(lanebus: CommandLine) -> None:
    shown = lanebus("--help")
    assert shown.code == 0
    for group in COMMANDS.values():
        for name, text in group.items():
            assert f"  {name} " in shown.out
            assert text in shown.out


def test_help_loads_neither_the_bus_nor_pydantic() -> None:
    code = (
        "import sys\nfrom lanebus.handlers.cli.entry import run_command_line as r\nr(['--help'])\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert loaded & {"pydantic", "bus", "redis", "anyio", "asyncio", "starlette"} == set()


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_a_help_with_an_example(name: str) -> None:
    command: object = import_module(module_of(name)).command
    assert isinstance(command, click.Command)
    assert command.name == name
    for each in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert f"Example: lanebus {name}" in (each.help or "")


SESSION = '{"role":"user","content":"hi"}'
ANEW: dict[str, tuple[list[str], int, str]] = {
    "demo": (["--once", "--json"], 0, "391"),
    "sessions": ([], 0, '"session":"s"'),
    "tail": (["s"], 0, '"position":1'),
    "turns": (["s"], 0, ""),
    "usage": (["s"], 0, '"total_tokens":0'),
    "context": (["s", "--model", "m"], 0, '"messages":'),
    "top": (["--once"], 0, '"groups":[]'),
    "publish": (["s", "one"], 0, '"is_duplicate":false'),
    "control": (["s", "pause"], 0, '"is_duplicate":false'),
    "import": (["-", "--session", "s"], 1, "unknown transcript format"),
    "export": (["s"], 0, '"type":"lanebus.export"'),
    "convert": (["--from", "native", "--to", "native"], 0, '"hi"'),
    "verify": (["--all"], 0, '"is_whole":true'),
    "replay": (["s"], 0, '"projection":"usage"'),
    "fork": (["s", "--id", "f"], 0, '"parent":"s"'),
    "archive": (["s", "--archive", "{folder}"], 0, '"position":1'),
    "dead": (["list"], 0, ""),
    "projections": (["list", "s"], 0, ""),
    "groups": (["status"], 0, ""),
    "trim": (["s", "--before", "1"], 0, '"first_kept":1'),
    "erase": (["s", "--yes"], 0, '"is_erased":true'),
    "close": (["s"], 0, '"is_closed":true'),
    "reopen": (["s"], 0, '"is_closed":false'),
    "worker": (["nosuch:agent"], 2, "no agent at 'nosuch:agent'"),
    "serve": (["--port", "{port}"], 2, "is in use"),
    "server": (["status"], 0, '"state":'),
}
"""command → its arguments, the exit code and a part of what it says, with one entry in session `s`"""


@pytest.mark.drawn("name")
@pytest.mark.parametrize("name", NAMES)
def test_each_command_works_in_a_python_that_has_imported_nothing_else(
    lanebus: CommandLine, tmp_path: Path, name: str
) -> None:
    assert lanebus("publish", "s", "hi").code == 0
    words, code, said = ANEW[name]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = lanebus.anew(name, *(word.format(folder=tmp_path, port=port) for word in words), stdin=SESSION)
    assert (answer.code, said in answer.out + answer.err) == (code, True), answer


def test_an_unknown_command_is_a_wrong_usage(lanebus: CommandLine) -> None:
    answer = lanebus("tial")
    assert answer.code == 2
    assert "No such command 'tial'" in answer.err


def test_the_version_is_one_line(lanebus: CommandLine) -> None:
    answer = lanebus("--version")
    assert (answer.code, answer.out.count("\n"), answer.out.split()[0]) == (0, 1, "lanebus")


# --- settings -----------------------------------------------------------------------------------------------------


def test_the_bus_may_be_named_before_and_after_the_command(lanebus: CommandLine, tmp_path: Path) -> None:
    elsewhere = {"LANEBUS_DATA_DIR": str(tmp_path / "never-made")}
    assert lanebus("publish", "s", "one", "--data-dir", lanebus.data_dir, env=elsewhere).code == 0
    assert lanebus("--data-dir", lanebus.data_dir, "sessions", env=elsewhere).object["session"] == "s"
    # The one after it is the nearer one.
    assert lanebus("--data-dir", tmp_path / "no", "sessions", "--data-dir", lanebus.data_dir).object["session"] == "s"
    assert list(tmp_path.iterdir()) == []


def test_a_group_of_commands_takes_the_settings_too(lanebus: CommandLine) -> None:
    for words in (["server", "--data-dir", "/x", "status"], ["server", "status", "--data-dir", "/x"]):
        assert lanebus(*words).object["data_dir"] == "/x"


def test_a_typed_directory_wins_over_an_url_of_the_environment(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    nowhere = {"LANEBUS_URL": "redis://127.0.0.1:1"}
    assert lanebus("sessions", "--data-dir", lanebus.data_dir, env=nowhere).code == 0
    # Not so one of the environment: an image may name it for whoever gives no URL.
    assert lanebus("sessions", env=nowhere).code == 1


def test_an_url_and_a_directory_exclude_each_other(lanebus: CommandLine) -> None:
    answer = lanebus("--url", "redis://127.0.0.1:1", "sessions", "--data-dir", "x")
    assert answer.code == 2
    assert "exclude each other" in answer.err


def test_namespaces_do_not_see_each_other(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one", "--namespace", "other")
    assert lanebus("sessions").out == ""
    assert lanebus("sessions", env={"LANEBUS_NAMESPACE": "other"}).object["session"] == "s"


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tail", "nosuch"], 1, "session 'nosuch' has no entries"),
        (["turns", "nosuch"], 1, "session 'nosuch' has no entries"),
        (["usage", "nosuch"], 1, "session 'nosuch' has no entries"),
        (["context", "nosuch"], 1, "session 'nosuch' has no entries"),
        (["tail", "a b"], 1, "session id 'a b' does not match"),
        (["publish", "ä", "hi"], 1, "session id 'ä' does not match"),
        (["tail", "s", "--after", "x"], 1, "'x' is not a cursor"),
        (["sessions", "--url", "redis://127.0.0.1:1"], 1, "server"),
        (["sessions", "--url", "http://127.0.0.1"], 2, "redis://"),
        (["sessions", "--data-dir", "/tmp/" + 120 * "x"], 2, "use a shorter directory"),  # noqa: S108  # not made
    ],
)
def test_an_expected_error_is_one_line_and_a_code(lanebus: CommandLine, words: list[str], code: int, said: str) -> None:
    answer = lanebus(*words)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err


def test_an_error_cannot_speak_to_the_terminal(lanebus: CommandLine) -> None:
    answer = lanebus("publish", "s", "--json", stdin='{"role":"user","content":"a","x\\u001b[31m":1}')
    assert answer.code == 1
    assert answer.err.startswith("error: line 1: x[31m: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_answer_that_cannot_be_written_is_an_error(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lanebus.handlers.cli", "tail", "s", "--data-dir", lanebus.data_dir],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "error: what was to be said could not be written: No space left on device\n",
    )


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_at_once_and_in_silence(
    unopened: CommandLine, number: signal.Signals, code: int
) -> None:
    unopened("publish", "s", "one")
    with unopened.running("tail", "s", "--follow") as process:
        assert process.stdout is not None
        assert "one" in process.stdout.readline()
        process.send_signal(number)
        assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == code
    unopened.wait_stopped()


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_reader_that_goes_away_ends_a_command_in_silence(lanebus: CommandLine, follow: list[str]) -> None:
    text = 20_000 * "x"  # a pipe holds less than the five of them
    assert lanebus("publish", "s", "--json", stdin=5 * f'{{"role":"user","content":"{text}"}}\n').code == 0
    with lanebus.running("tail", "s", *follow) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


def test_a_reader_that_was_never_there_ends_a_command_in_silence(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "so little that it is written only at the end")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lanebus.handlers.cli", "tail", "s", "--data-dir", lanebus.data_dir],
            cwd=ROOT,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_follower_ends_when_its_reader_does_also_where_nothing_comes(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    with lanebus.running("tail", "s", "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


def wait_ready(server: subprocess.Popen[str]) -> None:
    """Until a redis-server takes connections."""
    assert server.stdout is not None
    assert any("ready to accept" in line.lower() for line in server.stdout)


def test_a_server_that_does_not_answer_is_told_and_nothing_is_doubled(
    lanebus: CommandLine,
    redis_server: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    socket = lanebus.data_dir.parent / "redis.sock"
    words = [redis_server, "--port", "0", "--unixsocket", socket, "--appendonly", "yes", "--dir", tmp_path]
    words += ["--aof-load-truncated", "no"]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as server:
        try:
            wait_ready(server)
            publish = ["publish", "s", "one", "--key", "k", "--url", f"unix://{socket}"]
            assert lanebus(*publish).object["is_duplicate"] is False
            server.send_signal(signal.SIGSTOP)
            monkeypatch.setattr(access, "OPEN_SECONDS", 0.2)
            assert run_command_line(publish) == 1
            assert capsys.readouterr() == ("", SILENT)
            server.send_signal(signal.SIGCONT)
            assert lanebus(*publish).object == {"session": "s", "positions": [1], "is_duplicate": True}
        finally:
            server.kill()


def test_a_server_that_may_lose_the_log_is_warned_of_in_one_line(
    lanebus: CommandLine, redis_server: Path, tmp_path: Path
) -> None:
    socket = lanebus.data_dir.parent / "redis.sock"
    words = [redis_server, "--port", "0", "--unixsocket", socket, "--appendonly", "no", "--save", "", "--dir", tmp_path]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as server:
        try:
            wait_ready(server)
            code = "import sys\nfrom lanebus.handlers.cli import main\nmain()"
            done = subprocess.run(
                [sys.executable, "-c", code, "publish", "s", "one", "--url", f"unix://{socket}"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            server.kill()
    assert done.returncode == 0
    assert done.stderr == "warning: the server keeps no append-only file: acknowledged messages may be lost\n"
