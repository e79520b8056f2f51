"""The command line as a whole: help, options, wrong usages, errors, signals and pipes."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import click
import pytest

from docs.site.tables import fill_in
from lanebus.bus import Bus, errors
from lanebus.bus.embedded.server import find_binary
from lanebus.bus.errors import BusError, releases_of
from lanebus.handlers.cli import access
from lanebus.handlers.cli.errors import SessionEmpty, next_step
from lanebus.handlers.cli.exits import ExitCode, code_of, exit_code
from lanebus.handlers.cli.group import COMMANDS, load_command, run_command_line
from tests.support.cli.command_line import CommandLine, complete, without_hint
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer, real_server

SILENT = (
    "error: the server did not answer within 0.2 s\nhint: check that it runs, or wait until it has loaded its log\n"
)
NAMES = [name for group in COMMANDS.values() for name in group]


# --- help ---------------------------------------------------------------------------------------------------------


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


def test_the_help_of_each_command_has_an_example() -> None:
    for name in NAMES:
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


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_options_work_before_and_after_the_command_typed_ones_first(lanebus: CommandLine, tmp_path: Path) -> None:
    shown, version = lanebus("--help"), lanebus("--version")
    assert lanebus() == shown
    assert all(
        f"  {name} " in shown.out and text in shown.out for group in COMMANDS.values() for name, text in group.items()
    )
    assert (version.code, version.out.count("\n"), version.out.split()[0]) == (0, 1, "lanebus")
    elsewhere = {"LANEBUS_DATA_DIR": str(tmp_path / "never-made")}
    nowhere = {"LANEBUS_URL": "redis://127.0.0.1:1"}
    place = ("--data-dir", lanebus.data_dir)
    assert lanebus("publish", "s", "one", *place, env=elsewhere).code == 0
    for words, env in (
        ((*place, "sessions"), elsewhere),
        # The option after the command overrides the one before it.
        (("--data-dir", tmp_path / "no", "sessions", *place), {}),
        # A typed directory overrides a URL of the environment.
        (("sessions", *place), nowhere),
    ):
        assert lanebus(*words, env=env).object["session"] == "s"
    assert list(tmp_path.iterdir()) == []
    # A directory of the environment does not: a container image may set a default.
    assert lanebus("sessions", env=nowhere).code == 5
    for status in ("server --data-dir /x status", "server status --data-dir /x"):
        assert lanebus(*status.split()).object["data_dir"] == "/x"
    lanebus("publish", "t", "one", "--namespace", "other")
    assert lanebus("sessions").object["session"] == "s"
    assert lanebus("sessions", env={"LANEBUS_NAMESPACE": "other"}).object["session"] == "t"


@pytest.mark.full
def test_options_of_the_output_work_before_and_after_the_command(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "one")
    for option in ("--json", "--table", "--wide"):
        after = lanebus("sessions", option)
        assert (after.code, lanebus(option, "sessions")) == (0, after)
    assert lanebus("--table", "sessions").out != lanebus("--json", "sessions").out
    assert lanebus("projections", "--json", "list", "s").code == 0


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_output_that_cannot_be_written_is_an_error_and_a_pipe_without_a_reader_is_none(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "so little that it is written only at the end")
    command = [sys.executable, "-m", "lanebus.handlers.cli", "tail", "s", "--data-dir", str(lanebus.data_dir)]

    def tail_to(stdout: int) -> tuple[int, str]:
        done = subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
        os.close(stdout)
        return done.returncode, without_hint(done.stderr)

    reading, writing = os.pipe()
    os.close(reading)
    assert tail_to(writing) == (141, "")
    if Path("/dev/full").exists():
        assert tail_to(os.open("/dev/full", os.O_WRONLY)) == (
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
        assert "one" in process.out.readline()
        process.send_signal(number)
        assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == code
    unopened.wait_stopped()


@pytest.mark.full
@pytest.mark.parametrize(("words", "size"), [([], 20_000), (["--follow"], 20_000), (["--follow"], 1)])
def test_a_command_ends_silently_when_its_pipe_closes(lanebus: CommandLine, words: list[str], size: int) -> None:
    text = size * "x"  # five of the large ones do not fit into a pipe
    assert lanebus("publish", "s", "--json", stdin=5 * f'{{"role":"user","content":"{text}"}}\n').code == 0
    with lanebus.running("tail", "s", *words) as process:
        process.out.readline()
        process.out.close()
        assert process.wait(60) == 141
        assert process.err.read() == ""


@pytest.mark.full
def test_a_silent_server_is_an_error_and_a_retry_with_a_key_adds_nothing(
    lanebus: CommandLine, valkey: RealServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish = ["publish", "s", "one", "--key", "k", "--url", valkey.url]
    assert lanebus(*publish).object["is_duplicate"] is False
    valkey.pause()
    monkeypatch.setattr(access, "OPEN_SECONDS", 0.2)
    assert run_command_line(publish) == 5
    assert capsys.readouterr() == ("", SILENT)
    valkey.resume()
    assert lanebus(*publish).object == {"session": "s", "positions": [1], "is_duplicate": True}


@pytest.mark.full
def test_a_server_without_an_append_only_file_causes_a_warning_where_it_matters() -> None:
    code = "import sys\nfrom lanebus.handlers.cli import main\nmain()"
    warning = "warning: the server keeps no append-only file: acknowledged messages may be lost\n"
    with real_server(find_binary(), "--appendonly", "no") as server:
        for words, warns in ((["publish", "s", "one"], False), (["sessions"], False), (["verify", "s"], True)):
            command = [sys.executable, "-c", code, *words, "--url", server.url]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.stderr.startswith(warning) is warns


NOWHERE = "redis://127.0.0.1:1"

WRONG: dict[str, tuple[int, str, str]] = {
    # commands
    "tial": (2, "no such command 'tial'", "did you mean tail?"),
    "sesions": (2, "no such command 'sesions'", "did you mean sessions?"),
    "xyz": (2, "no such command 'xyz'", "`lanebus --help` lists the commands"),
    "dead": (2, "lanebus dead needs a command", "write one of list, redrive, show"),
    "dead shwo": (2, "no such command 'shwo'", "did you mean show?"),
    "groups xyz": (2, "no such command 'xyz'", "`lanebus groups --help` lists the commands"),
    "help exit-code": (2, "there is no help on 'exit-code'", "did you mean exit-codes?"),
    "help dead xyz": (2, "there is no help on 'xyz'", "`lanebus dead --help` lists the commands"),
    # options and arguments
    "tail s --json --table": (2, "--json and --table exclude each other", "give one of them"),
    "--json tail s --table": (2, "--json and --table exclude each other", "give one of them"),
    "--json demo --once": (2, "--json does not stand before demo", "write `lanebus demo --json`, after the command"),
    "--wide worker a:b": (2, "--wide does not stand before worker", "leave it out"),
    "--follow tail s": (2, "no such option '--follow'", "write it after the command, such as `lanebus tail --follow`"),
    "dead --yes redrive": (2, "no such option '--yes'", "such as `lanebus dead redrive --yes`"),
    "tail s --folow": (2, "no such option '--folow'", "did you mean --follow?"),
    "sessions --name-space x": (2, "no such option '--name-space'", "did you mean --namespace?"),
    "--ulr x sessions": (2, "no such option '--ulr'", "did you mean --url?"),
    "sessions --data-dir=": (2, "--data-dir is empty", "give it a value, or leave it out"),
    "tail s --kind=": (2, "--kind is empty", "give it a value, or leave it out"),
    "--namespace= sessions": (2, "--namespace is empty", "give it a value, or leave it out"),
    "tail s -x": (2, "no such option '-x'", "`lanebus tail --help` lists the options"),
    "tail": (2, "missing argument 'SESSION'", "write lanebus tail [OPTIONS] SESSION"),
    "tail s t": (2, "got unexpected extra argument (t)", "`lanebus tail --help` shows how to use it"),
    "tail s --after": (2, "option '--after' requires an argument", "`lanebus tail --help` shows how to use it"),
    "convert --to native": (2, "missing option '--from'", "write lanebus convert [OPTIONS]"),
    "tail s -n x": (2, "invalid value for '-n' / '--lines': 'x' is not a valid integer", "`lanebus tail --help`"),
    "tail s --lane lmm": (2, "'lmm' is not one of 'llm', 'extension'", "did you mean llm?"),
    "control s abrot": (2, "'abrot' is not one of", "did you mean abort?"),
    "control s xyz": (2, "'xyz' is not one of", "`lanebus control --help` shows how to use it"),
    "control s steer": (2, "steer needs TEXT after its name", "write lanebus control SESSION steer TEXT"),
    "control s pause --to ann": (2, "pause has no option --to", "leave it out"),
    "control s steer hi --when turn": (2, "steer cannot be sent with --when turn", "use --when next or now"),
    "verify": (2, "SESSION and --all: one of them is needed", "give either SESSION or --all"),
    "archive s": (2, "no archive is set", "name one with --archive or LANEBUS_ARCHIVE"),
    "erase s": (2, "nothing was erased: there is no terminal to ask on", "confirm with --yes"),
    "publish s": (2, "the message is empty", "write its text as TEXT or on stdin"),
    "publish s hi --json": (2, "--json reads messages from stdin", "leave out TEXT"),
    "demo --json": (2, "--json needs --once", "add --once"),
    "serve --token a --reader-token a": (2, "--reader-token and --token are the same", "use two different tokens"),
    "serve --port 0 --allow-host http://x": (2, "'http://x' is no host", "the path: x"),
    "serve --port 0 --monitor 127.0.0.1:0 --monitor-allow-host http://x": (2, "'http://x' is no host", "the path: x"),
    "worker lanebus.handlers.agent.demo:agent --monitor 127.0.0.1:0 --monitor-allow-host *.x": (
        2,
        "'*.x' is no host",
        "name each host",
    ),
    "serve --port 0 --trusted-proxy 0.0.0.0/0": (2, "'0.0.0.0/0' is no address of a proxy", "name your proxies"),
    "serve --port 0 --uploads /dev/null/u": (2, "directory /dev/null/u cannot be created: Not", "choose another"),
    "serve --port 0 --data-dir /dev/null/d": (2, "directory /dev/null/d cannot be created", "choose another"),
    "replay s --projection usge": (2, "'usge' is no projection", "did you mean usage?"),
    "projections remove s usage": (2, "'usage' is not a projection", "write NAME@VERSION"),
    f"projections remove s usage@{'9' * 5_000}": (2, "is not a projection", "write NAME@VERSION"),
    f"serve --port 0 --monitor 127.0.0.1:{'9' * 5_000}": (2, "is no address", "write HOST:PORT"),
    f"context s --turn main.1#{'9' * 5_000}": (2, "invalid value", "`lanebus context --help` shows how to use it"),
    "context s --at 1 --turn main.1#0": (2, "--at and --turn exclude each other", "give one of them"),
    "context s --turn x": (2, "invalid value: 'x'", "`lanebus context --help` shows how to use it"),
    "import nosuch.jsonl": (2, "File 'nosuch.jsonl' does not exist", "`lanebus import --help` shows how to use it"),
    "worker nosuch:agent": (2, "no agent at 'nosuch:agent': there is no module 'nosuch'", "write module:attribute"),
    "worker a:b --agent c": (2, "--agent 'c' names no agent", "write --agent NAME=MODULE:ATTRIBUTE"),
    # ids, settings and what is not there
    "tail a!b": (2, "session id 'a!b' does not match", "use letters, digits, _ and -"),
    "tail s --after x": (2, "'x' is not a cursor", 'use a position, or copy "cursor"'),
    "dead show x": (2, "'x' is not the id of a dead letter", "use "),
    "sessions --namespace a{b": (2, "namespace 'a{b' is not allowed", "use 1 to 64 letters"),
    "sessions --url http://localhost": (2, "server URL: unknown scheme", "begin with one of redis://"),
    f"sessions --url {NOWHERE} --data-dir x": (2, "--url and --data-dir exclude each other", "use --url for"),
    "sessions --url redis://localhost:port": (2, "server URL: its host or port is not valid", "write redis://"),
    "sessions --data-dir /dev/null/d": (2, "directory /dev/null/d cannot be created", "choose another"),
    "archive --all --archive /dev/null/a": (2, "directory /dev/null/a cannot be cr", "choose another"),
    "server status --url redis://x": (2, "controls the embedded server only", "leave out --url"),
    "tail nosuch": (3, "session 'nosuch' has no entries", "`lanebus sessions` lists the sessions that exist"),
    "tail s --after 9": (3, "session 's' has no entry 9", "use a position up to 1"),
    "context s --turn main.9#0": (3, "the request of turn s.main.9#0", "`lanebus turns s` lists the turns"),
    "replay s --until 9": (3, "session 's' has no entry 9", "use a position up to 1"),
    "dead show 1:1-0": (3, "there is no dead letter 1:1-0", "`lanebus dead list` lists the ids"),
    "groups remove none --yes": (3, "there is no consumer group 'none'", "the groups are crew"),
    "dead list --group none": (3, "there is no consumer group 'none'", "the groups are crew"),
    "dead show 1:1-0 --group none": (3, "there is no consumer group 'none'", "the groups are crew"),
    "dead redrive --group none --yes": (3, "there is no consumer group 'none'", "the groups are crew"),
    "agents --group none": (3, "there is no consumer group 'none'", "the groups are crew"),
    "top --once --group none": (3, "there is no consumer group 'none'", "the groups are crew"),
    "projections remove s x@1": (3, "session 's' stores no projection 'x@1'", "`lanebus projections list s`"),
    "publish s hi --expected 7": (4, "session 's' is at position 1, expected 7", '--expected and the "cursor"'),
    "publish shut hi": (4, "session 'shut' is closed", "`lanebus reopen shut` opens it again"),
    f"sessions --url {NOWHERE}": (5, "127.0.0.1:1: Connection refused", "check its address"),
    "control s pause --wait 0": (5, "no worker answered the command", "start one with `lanebus worker`"),
    "publish s --extension k {": (6, "not JSON", "correct the input and try again"),
}
"""arguments → exit code, a part of the reason, and the beginning of the next step, if sessions `s` and `shut` exist"""


@pytest.fixture(scope="module")
def wrong(module_lanebus: CommandLine) -> CommandLine:
    """A bus with the sessions and the group that the wrong usages name."""
    module_lanebus("publish", "s", "hi")
    module_lanebus("publish", "shut", "hi")
    module_lanebus("close", "shut")

    async def make_group() -> None:
        async with Bus.open(data_dir=module_lanebus.data_dir) as bus, bus.consumer("crew", "w1") as consumer:
            with anyio.fail_after(120):
                await consumer.fetch(1)
            await consumer.deregister()

    anyio.run(make_group)
    return module_lanebus


@pytest.mark.full
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_usage_has_its_exit_code_its_reason_and_a_next_step(wrong: CommandLine, line: str) -> None:
    code, reason, next_step = WRONG[line]
    answer = wrong(*line.split())
    assert (answer.code, answer.out) == (code, "")
    assert re.fullmatch("error: .+\nhint: .+\n", answer.err), answer.err
    error, hint = answer.err.splitlines()
    assert reason in error
    assert hint.removeprefix("hint: ").startswith(next_step) or next_step in hint


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (f"serve --port 0 --wait 0 --url {NOWHERE}", 5, "127.0.0.1:1: Connection refused"),
        (f"sessions --url {NOWHERE}", 5, "127.0.0.1:1: Connection refused"),
        ("serve --port 0", 2, "data directory ~"),
        ("sessions", 2, "data directory ~"),
        ("server status", 2, "data directory ~"),
    ],
)
def test_a_command_that_needs_a_home_is_refused_without(wrong: CommandLine, words: str, code: int, reason: str) -> None:
    answer = wrong(*words.split(), env={"HOME": "", "XDG_DATA_HOME": "", "LANEBUS_DATA_DIR": ""})
    assert answer.code == code, answer.err
    assert reason in answer.err
    if code == 2:
        assert "LANEBUS_DATA_DIR" in answer.err


@pytest.mark.full
@pytest.mark.full
def test_a_module_that_raises_is_shown_by_its_own_traceback_alone(wrong: CommandLine, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def load():\n    return 1 / 0\n\n\nagent = load()\n")
    for words in (("worker", f"{broken}:agent"), ("replay", "s", "--projection", f"{broken}:agent")):
        answer = wrong(*words)
        assert (answer.code, answer.out, str(ROOT) in answer.err) == (1, "", False)
        assert re.findall('File "([^"]+)"', answer.err) == 2 * [str(broken)]
        error, hint = answer.err.splitlines()[-2:]
        assert error == f"error: {broken}:agent raised ZeroDivisionError while it was imported"
        assert hint.startswith("hint: ")
    broken.write_text("agent = = 1\n")
    answer = wrong("worker", f"{broken}:agent")
    assert (answer.code, re.findall('File "([^"]+)", line (.)', answer.err)) == (1, [(str(broken), "1")])
    # An error of the bus in a module is no traceback.
    broken.write_text("from lanebus.agent import load_model\n\nagent = load_model('nobody/x')\n")
    answer = wrong("worker", f"{broken}:agent")
    assert (answer.code, answer.err.startswith("error: no model at 'nobody/x'\nhint: write api/name")) == (2, True)


# --- completion ------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_commands_options_choices_sessions_agents_and_groups_are_completed(lanebus: CommandLine) -> None:
    for shell in ("bash", "zsh", "fish"):
        answer = lanebus("completion", shell)
        assert (answer.code, answer.err, f"_LANEBUS_COMPLETE={shell}_complete" in answer.out) == (0, "", True)
    for session, agent in (("support-1", "agent"), ("support-2", "agent"), ("other", "support")):
        lanebus("publish", session, "hi", "--agent", agent)

    async def work(forks: int) -> None:
        async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("crew", "w1") as consumer:
            with anyio.fail_after(120):
                await consumer.fetch(1)  # the group begins with its first fetch
            for number in range(forks):
                await bus.session("other").fork(1, id=f"fork-{number:03}")

    anyio.run(work, 0)
    for words, offered in (
        ("tai", ["tail"]),
        ("tail s --fol", ["--follow"]),
        ("sessions --name", ["--namespace"]),
        ("control s ab", ["abort"]),
        ("tail sup", ["support-1", "support-2"]),
        ("verify other sup", ["support-1", "support-2"]),
        ("tail none", []),
        ("hand-over s sup", ["support"]),
        ("sessions --agent ", ["agent", "support"]),
        ("top --group cr", ["crew"]),
        ("dead list --group cr", ["crew"]),
        ("groups remove cr", ["crew"]),
    ):
        assert (words, complete(lanebus, "lanebus", *words.split(" "))) == (words, offered)
    anyio.run(work, 101)
    assert complete(lanebus, "lanebus", "tail", "fork-") == [f"fork-{number:03}" for number in range(100)]  # at most


@pytest.mark.full
def test_a_silent_server_completes_nothing_and_an_unsafe_one_only_names(lanebus: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for url in (f"redis://127.0.0.1:{silent.getsockname()[1]}", "redis://127.0.0.1:1", "nonsense"):
            assert complete(lanebus, "lanebus", "--url", url, "tail", "s") == []
    with real_server(find_binary(), "--appendonly", "no") as server:
        lanebus("publish", "support-1", "hi", "--url", server.url)
        assert complete(lanebus, "lanebus", "--url", server.url, "tail", "sup") == ["support-1"]


# --- exit codes ------------------------------------------------------------------------------------------------


def test_help_and_reference_print_each_exit_code_with_its_meaning(lanebus: CommandLine) -> None:
    shown = " ".join(lanebus("help", "exit-codes").out.split())
    page = fill_in((ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8"))
    for code in ExitCode:
        assert f"{int(code)} {code.meaning}" in shown
        assert f"| `{int(code)}` | {code.meaning} |" in page


def below(kind: type[BusError]) -> Iterator[type[BusError]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def test_each_branch_of_errors_has_one_code_unless_a_case_of_its_own() -> None:
    codes = {
        errors.SetupError("x"): ExitCode.USAGE,
        errors.MessageError("x"): ExitCode.INVALID,
        errors.StreamError("x"): ExitCode.REFUSED,
        errors.Closed("bus"): ExitCode.REFUSED,
        errors.Unavailable("x"): ExitCode.UNAVAILABLE,
        errors.InvalidSessionId("x y"): ExitCode.USAGE,
        errors.EntryDamaged("s", "llm", 1): ExitCode.FAULTS,
        SessionEmpty("s"): ExitCode.NOT_FOUND,
    }
    assert {error: code_of(error) for error in codes} == codes


def test_every_error_has_a_next_step_and_an_unexpected_one_is_not_hidden() -> None:
    for kind in (errors.SetupError, errors.MessageError, errors.StreamError, errors.Unavailable):
        assert next_step(kind("it does not work"))
        assert next_step(kind("it does not work", "do this")) == "do this"
    step = next_step(errors.TrimRefused("s", 9, {"p:usage@4": 1, "g:agents": 3}))
    assert "`lanebus groups remove GROUP` or `lanebus projections remove SESSION NAME@VERSION`" in step
    assert exit_code(ValueError("a bug")) is None


@pytest.mark.parametrize("holder", ["a:agent", "f:fork", "g:agents", "p:usage@4"])
def test_the_error_and_the_command_line_say_the_same_release(lanebus: CommandLine, holder: str) -> None:
    (release,) = releases_of([holder, "r:reader"])
    error = errors.TrimRefused("s", 9, {holder: 1, "r:reader": 1})
    assert f"trim less, {release.words}, or trim by force" in error.remedy
    assert f"release them with `lanebus {release.command}`" in next_step(error)
    words = release.command.split()
    asked = next(at for at, word in enumerate(words) if word.isupper())
    shown = " ".join(lanebus(*words[:asked], "--help").out.split())
    assert all(word.split("@")[0] in shown for word in words[asked:] if word != "FORK")


def test_the_text_of_an_error_is_its_fault_and_its_remedy() -> None:
    error = errors.SessionClosed("s")
    assert (error.fault, str(error)) == ("session 's' is closed", f"{error.fault}: {error.remedy}")
    assert [each for each in below(BusError) if "fault" in vars(each) or "remedy" in vars(each)] == []


@pytest.mark.parametrize("words", [["--help"], ["help", "exit-codes"], ["help", "options"], ["tial"]])
def test_help_and_wrong_usage_load_neither_the_bus_nor_pydantic(words: list[str]) -> None:
    code = (
        "import sys\nfrom lanebus.handlers.cli.group import run_command_line as r\n"
        f"r({words!r})\nprint('\\n', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    heavy = {"pydantic", "redis", "anyio", "asyncio", "starlette", "pydantic_settings", "tomllib", "lanebus.bus.bus"}
    assert loaded & heavy == set()


def test_module_and_console_script_are_the_same(lanebus: CommandLine) -> None:
    words = [[str(Path(sys.executable).with_name("lanebus"))], [sys.executable, "-m", "lanebus"]]
    done = [subprocess.run([*each, "tial"], cwd=ROOT, capture_output=True, text=True, check=False) for each in words]
    assert {(each.returncode, each.stderr) for each in done} == {(2, lanebus("tial").err)}
