"""The command line as a whole: help, settings, exit codes and signals."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from lanebus.handlers.cli import access
from lanebus.handlers.cli.group import COMMANDS, load_command, run_command_line
from tests.support.cli.command_line import CommandLine, without_hint
from tests.support.paths import ROOT

__all__ = ()

SILENT = (
    "error: the server did not answer within 0.2 s\nhint: check that it runs, or wait until it has loaded its log\n"
)
NAMES = [name for group in COMMANDS.values() for name in group]


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_help_lists_every_command(lanebus: CommandLine) -> None:
    shown = lanebus("--help")
    assert shown.code == 0
    for group in COMMANDS.values():
        for name, text in group.items():
            assert f"  {name} " in shown.out
            assert text in shown.out


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_help_loads_neither_the_bus_nor_pydantic(tmp_path: Path, mode: int) -> None:
    """Also in a folder that has to be judged, because other users may write to it."""
    tmp_path.chmod(mode)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = (
        "import sys\nfrom lanebus.handlers.cli.group import run_command_line as r\nr(['--help'])\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert loaded & {"pydantic", "bus", "redis", "anyio", "asyncio", "starlette"} == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_command_has_an_example(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    for each in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert f"Example: lanebus {name}" in (each.help or "")


SESSION = '{"role":"user","content":"hi"}'
FRESH: dict[str, tuple[list[str], int, str]] = {
    "demo": (["--once", "--json"], 0, "391"),
    "help": (["exit-codes"], 0, "Ended by Ctrl-C"),
    "completion": (["bash"], 0, "_LANEBUS_COMPLETE"),
    "config": (["show"], 0, '"setting":"worker.group"'),
    "acl": ([], 0, "ACL SETUSER lanebus-bus on"),
    "alerts": ([], 0, "alert: LanebusLogLost"),
    "doctor": ([], 0, '"check":"rights"'),
    "sessions": ([], 0, '"session":"s"'),
    "show": (["s"], 0, "User"),
    "tail": (["s"], 0, '"position":1'),
    "turns": (["s"], 0, ""),
    "usage": (["s"], 0, '"total_tokens":0'),
    "context": (["s", "--model", "m"], 0, '"messages":'),
    "top": (["--once"], 0, '"groups":[]'),
    "publish": (["s", "one"], 0, '"is_duplicate":false'),
    "control": (["s", "pause"], 0, '"is_duplicate":false'),
    "import": (["-", "--session", "s"], 6, "unknown transcript format"),
    "export": (["s"], 0, '"type":"lanebus.export"'),
    "convert": (["--from", "native", "--to", "native"], 0, '"hi"'),
    "verify": (["--all"], 0, '"is_whole":true'),
    "namespace": (["accept", "--yes"], 0, '"accepted":[]'),
    "replay": (["s"], 0, '"projection":"usage"'),
    "fork": (["s", "--id", "f"], 0, '"parent":"s"'),
    "archive": (["s", "--archive", "{folder}"], 0, '"position":1'),
    "dead": (["list"], 0, ""),
    "projections": (["list", "s"], 0, ""),
    "groups": (["status"], 0, ""),
    "agents": ([], 0, '"agent":"agent"'),
    "hand-over": (["s", "billing"], 0, '"agent":"billing"'),
    "trim": (["s", "--before", "1"], 0, '"first_kept":1'),
    "erase": (["s", "--yes"], 0, '"is_erased":true'),
    "close": (["s"], 0, '"is_closed":true'),
    "reopen": (["s"], 0, '"is_closed":false'),
    "acp": (["nosuch:agent"], 2, "no agent at 'nosuch:agent'"),
    "mcp": (["--name", ""], 2, "--name is"),
    "worker": (["nosuch:agent"], 2, "no agent at 'nosuch:agent'"),
    "serve": (["--port", "{port}"], 2, "is in use"),
    "token": (["key", "{folder}/key"], 0, "wrote"),
    "server": (["status"], 0, '"state":'),
}
"""command → its arguments, its exit code and a part of its output, if session `s` has one entry"""


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_each_command_works_in_a_fresh_python_process(lanebus: CommandLine, tmp_path: Path, name: str) -> None:
    assert lanebus("publish", "s", "hi").code == 0
    words, code, expected = FRESH[name]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = lanebus.anew(name, *(word.format(folder=tmp_path, port=port) for word in words), stdin=SESSION)
    assert (answer.code, expected in answer.out + answer.err) == (code, True), answer


@pytest.mark.full
def test_version_prints_one_line(lanebus: CommandLine) -> None:
    answer = lanebus("--version")
    assert (answer.code, answer.out.count("\n"), answer.out.split()[0]) == (0, 1, "lanebus")


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_bus_options_work_before_and_after_the_command(lanebus: CommandLine, tmp_path: Path) -> None:
    elsewhere = {"LANEBUS_DATA_DIR": str(tmp_path / "never-made")}
    assert lanebus("publish", "s", "one", "--data-dir", lanebus.data_dir, env=elsewhere).code == 0
    assert lanebus("--data-dir", lanebus.data_dir, "sessions", env=elsewhere).object["session"] == "s"
    # The option after the command overrides the one before it.
    assert lanebus("--data-dir", tmp_path / "no", "sessions", "--data-dir", lanebus.data_dir).object["session"] == "s"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_options_of_the_output_work_before_and_after_the_command(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    for option in ("--json", "--table", "--wide"):
        after = lanebus("sessions", option)
        assert (after.code, lanebus(option, "sessions")) == (0, after)
    assert lanebus("--table", "sessions").out != lanebus("--json", "sessions").out
    assert lanebus("projections", "--json", "list", "s").code == 0


@pytest.mark.full
def test_bus_options_work_before_and_after_a_subcommand(lanebus: CommandLine) -> None:
    for words in (["server", "--data-dir", "/x", "status"], ["server", "status", "--data-dir", "/x"]):
        assert lanebus(*words).object["data_dir"] == "/x"


@pytest.mark.full
def test_a_typed_directory_overrides_a_url_of_the_environment(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    nowhere = {"LANEBUS_URL": "redis://127.0.0.1:1"}
    assert lanebus("sessions", "--data-dir", lanebus.data_dir, env=nowhere).code == 0
    # A directory of the environment does not: a container image may set a default.
    assert lanebus("sessions", env=nowhere).code == 5


@pytest.mark.full
def test_a_typed_url_and_a_typed_directory_exclude_each_other(lanebus: CommandLine) -> None:
    answer = lanebus("--url", "redis://127.0.0.1:1", "sessions", "--data-dir", "x")
    assert answer.code == 2
    assert "exclude each other" in answer.err


@pytest.mark.full
def test_namespaces_do_not_see_each_other(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one", "--namespace", "other")
    assert lanebus("sessions").out == ""
    assert lanebus("sessions", env={"LANEBUS_NAMESPACE": "other"}).object["session"] == "s"


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_error_message_contains_no_control_characters(lanebus: CommandLine) -> None:
    answer = lanebus("publish", "s", "--json", stdin='{"role":"user","content":"a","x\\u001b[31m":1}')
    assert answer.code == 6
    assert answer.err.startswith("error: line 1: x\\x1b[31m: ")


@pytest.mark.full
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_under_stdout_is_an_error(lanebus: CommandLine) -> None:
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
    assert (done.returncode, without_hint(done.stderr)) == (
        1,
        "error: the output could not be written: No space left on device\n"
        "hint: free space, or write to another place\n",
    )


# --- signals and pipes --------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_without_output(unopened: CommandLine, number: signal.Signals, code: int) -> None:
    unopened("publish", "s", "one")
    with unopened.running("tail", "s", "--follow") as process:
        assert process.stdout is not None
        assert "one" in process.stdout.readline()
        process.send_signal(number)
        assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == code
    unopened.wait_stopped()


@pytest.mark.full
@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_a_command_ends_without_output_when_its_reader_closes_the_pipe(lanebus: CommandLine, follow: list[str]) -> None:
    text = 20_000 * "x"  # five of them do not fit into a pipe
    assert lanebus("publish", "s", "--json", stdin=5 * f'{{"role":"user","content":"{text}"}}\n').code == 0
    with lanebus.running("tail", "s", *follow) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


@pytest.mark.full
def test_a_command_ends_without_output_if_its_pipe_has_no_reader(lanebus: CommandLine) -> None:
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
    assert (done.returncode, without_hint(done.stderr)) == (141, "")


@pytest.mark.full
def test_a_follower_ends_when_its_reader_closes_the_pipe_even_without_new_entries(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    with lanebus.running("tail", "s", "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


def wait_ready(server: subprocess.Popen[str]) -> None:
    """Wait until a redis-server accepts connections."""
    assert server.stdout is not None
    assert any("ready to accept" in line.lower() for line in server.stdout)


@pytest.mark.full
def test_a_silent_server_is_an_error_and_a_retry_with_a_key_adds_nothing(
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
            assert run_command_line(publish) == 5
            assert capsys.readouterr() == ("", SILENT)
            server.send_signal(signal.SIGCONT)
            assert lanebus(*publish).object == {"session": "s", "positions": [1], "is_duplicate": True}
        finally:
            server.kill()


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "warns"), [(["publish", "s", "one"], False), (["sessions"], False), (["verify", "s"], True)]
)
def test_a_server_without_an_append_only_file_causes_a_warning_where_it_matters(
    command: list[str], warns: bool, lanebus: CommandLine, redis_server: Path, tmp_path: Path
) -> None:
    socket = lanebus.data_dir.parent / "redis.sock"
    words = [redis_server, "--port", "0", "--unixsocket", socket, "--appendonly", "no", "--save", "", "--dir", tmp_path]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as server:
        try:
            wait_ready(server)
            code = "import sys\nfrom lanebus.handlers.cli import main\nmain()"
            done = subprocess.run(
                [sys.executable, "-c", code, *command, "--url", f"unix://{socket}"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            server.kill()
    warning = "warning: the server keeps no append-only file: acknowledged messages may be lost\n"
    assert done.stderr.startswith(warning) is warns
