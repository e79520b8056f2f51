"""Wrong usages of the command line: each has its exit code, its reason and its next step."""

import re
from pathlib import Path

import anyio
import pytest

from lanebus import Bus
from lanebus.handlers.cli.exits import ExitCode
from tests.support.cli.command_line import CommandLine
from tests.support.paths import ROOT

__all__ = ()

pytestmark = pytest.mark.full

USAGE, NOT_FOUND, REFUSED = ExitCode.USAGE, ExitCode.NOT_FOUND, ExitCode.REFUSED
UNAVAILABLE, INVALID = ExitCode.UNAVAILABLE, ExitCode.INVALID
NOWHERE = "redis://127.0.0.1:1"

WRONG: dict[str, tuple[ExitCode, str, str]] = {
    # commands
    "tial": (USAGE, "no such command 'tial'", "did you mean tail?"),
    "sesions": (USAGE, "no such command 'sesions'", "did you mean sessions?"),
    "xyz": (USAGE, "no such command 'xyz'", "`lanebus --help` lists the commands"),
    "dead": (USAGE, "lanebus dead needs a command", "write one of list, redrive, show"),
    "dead shwo": (USAGE, "no such command 'shwo'", "did you mean show?"),
    "groups xyz": (USAGE, "no such command 'xyz'", "`lanebus groups --help` lists the commands"),
    "help exit-code": (USAGE, "there is no help on 'exit-code'", "did you mean exit-codes?"),
    "help dead xyz": (USAGE, "there is no help on 'xyz'", "`lanebus dead --help` lists the commands"),
    # options and arguments
    "tail s --json --table": (USAGE, "--json and --table exclude each other", "give one of them"),
    "--json tail s --table": (USAGE, "--json and --table exclude each other", "give one of them"),
    "--json demo --once": (
        USAGE,
        "--json does not stand before demo",
        "write `lanebus demo --json`, after the command",
    ),
    "--wide worker a:b": (USAGE, "--wide does not stand before worker", "leave it out"),
    "--follow tail s": (
        USAGE,
        "no such option '--follow'",
        "write it after the command, such as `lanebus tail --follow`",
    ),
    "dead --yes redrive": (
        USAGE,
        "no such option '--yes'",
        "write it after the command, such as `lanebus dead redrive --yes`",
    ),
    "tail s --folow": (USAGE, "no such option '--folow'", "did you mean --follow?"),
    "sessions --name-space x": (USAGE, "no such option '--name-space'", "did you mean --namespace?"),
    "--ulr x sessions": (USAGE, "no such option '--ulr'", "did you mean --url?"),
    "sessions --data-dir=": (USAGE, "--data-dir is empty", "give it a value, or leave it out"),
    "tail s --kind=": (USAGE, "--kind is empty", "give it a value, or leave it out"),
    "--namespace= sessions": (USAGE, "--namespace is empty", "give it a value, or leave it out"),
    "tail s -x": (USAGE, "no such option '-x'", "`lanebus tail --help` lists the options"),
    "tail": (USAGE, "missing argument 'SESSION'", "write lanebus tail [OPTIONS] SESSION"),
    "tail s t": (USAGE, "got unexpected extra argument (t)", "`lanebus tail --help` shows how to use it"),
    "tail s --after": (USAGE, "option '--after' requires an argument", "`lanebus tail --help` shows how to use it"),
    "convert --to native": (
        USAGE,
        "missing option '--from'",
        "write lanebus convert [OPTIONS]",
    ),
    "tail s -n x": (USAGE, "invalid value for '-n' / '--lines': 'x' is not a valid integer", "`lanebus tail --help`"),
    "tail s --lane lmm": (USAGE, "'lmm' is not one of 'llm', 'extension'", "did you mean llm?"),
    "control s abrot": (USAGE, "'abrot' is not one of", "did you mean abort?"),
    "control s xyz": (USAGE, "'xyz' is not one of", "`lanebus control --help` shows how to use it"),
    "control s steer": (USAGE, "steer needs TEXT after its name", "write lanebus control SESSION steer TEXT"),
    "control s pause --to ann": (USAGE, "pause has no option --to", "leave it out"),
    "control s steer hi --when turn": (USAGE, "steer cannot be sent with --when turn", "use --when next or now"),
    "verify": (USAGE, "SESSION and --all: one of them is needed", "give either SESSION or --all"),
    "archive s": (USAGE, "no archive is set", "name one with --archive or LANEBUS_ARCHIVE"),
    "erase s": (USAGE, "nothing was erased: there is no terminal to ask on", "confirm with --yes"),
    "publish s": (USAGE, "the message is empty", "write its text as TEXT or on stdin"),
    "publish s hi --json": (USAGE, "--json reads messages from stdin", "leave out TEXT"),
    "demo --json": (USAGE, "--json needs --once", "add --once"),
    "serve --token a --reader-token a": (USAGE, "--reader-token and --token are the same", "use two different tokens"),
    "serve --port 0 --allow-host http://x": (USAGE, "'http://x' is no host", "leave out the scheme and the path: x"),
    "serve --port 0 --monitor 127.0.0.1:0 --monitor-allow-host http://x": (
        USAGE,
        "'http://x' is no host",
        "leave out the scheme and the path: x",
    ),
    "worker lanebus.handlers.agent.demo:agent --monitor 127.0.0.1:0 --monitor-allow-host *.x": (
        USAGE,
        "'*.x' is no host",
        "name each host; several are allowed by several options",
    ),
    "serve --port 0 --trusted-proxy 0.0.0.0/0": (USAGE, "'0.0.0.0/0' is no address of a proxy", "name your proxies"),
    "serve --port 0 --uploads /dev/null/u": (
        USAGE,
        "upload directory /dev/null/u cannot be created: Not a directory",
        "choose another directory",
    ),
    "serve --port 0 --data-dir /dev/null/d": (
        USAGE,
        "data directory /dev/null/d cannot be created",
        "choose another directory",
    ),
    "replay s --projection usge": (USAGE, "'usge' is no projection", "did you mean usage?"),
    "projections remove s usage": (USAGE, "'usage' is not a projection", "write NAME@VERSION"),
    f"projections remove s usage@{'9' * 5_000}": (USAGE, "is not a projection", "write NAME@VERSION"),
    f"serve --port 0 --monitor 127.0.0.1:{'9' * 5_000}": (USAGE, "is no address", "write HOST:PORT"),
    f"context s --turn main.1#{'9' * 5_000}": (USAGE, "invalid value", "`lanebus context --help` shows how to use it"),
    "context s --at 1 --turn main.1#0": (USAGE, "--at and --turn exclude each other", "give one of them"),
    "context s --turn x": (USAGE, "invalid value: 'x'", "`lanebus context --help` shows how to use it"),
    "import nosuch.jsonl": (USAGE, "File 'nosuch.jsonl' does not exist", "`lanebus import --help` shows how to use it"),
    "worker nosuch:agent": (USAGE, "no agent at 'nosuch:agent': there is no module 'nosuch'", "write module:attribute"),
    "worker a:b --agent c": (USAGE, "--agent 'c' names no agent", "write --agent NAME=MODULE:ATTRIBUTE"),
    # ids, settings and what is not there
    "tail a!b": (USAGE, "session id 'a!b' does not match", "use letters, digits, _ and -"),
    "tail s --after x": (USAGE, "'x' is not a cursor", 'use a position, or copy "cursor"'),
    "dead show x": (USAGE, "'x' is not the id of a dead letter", "use "),
    "sessions --namespace a{b": (USAGE, "namespace 'a{b' is not allowed", "use 1 to 64 letters"),
    "sessions --url http://localhost": (USAGE, "server URL: unknown scheme", "begin with one of redis://"),
    f"sessions --url {NOWHERE} --data-dir x": (USAGE, "--url and --data-dir exclude each other", "use --url for"),
    "sessions --url redis://localhost:port": (
        USAGE,
        "server URL: its host or port is not valid",
        "write redis://[USER:PASSWORD@]HOST:PORT",
    ),
    "sessions --data-dir /dev/null/d": (
        USAGE,
        "data directory /dev/null/d cannot be created",
        "choose another directory",
    ),
    "archive --all --archive /dev/null/a": (
        USAGE,
        "archive directory /dev/null/a cannot be cr",
        "choose another directory",
    ),
    "server status --url redis://x": (USAGE, "controls the embedded server only", "leave out --url"),
    "tail nosuch": (NOT_FOUND, "session 'nosuch' has no entries", "`lanebus sessions` lists the sessions that exist"),
    "tail s --after 9": (NOT_FOUND, "session 's' has no entry 9", "use a position up to 1"),
    "context s --turn main.9#0": (NOT_FOUND, "the request of turn s.main.9#0", "`lanebus turns s` lists the turns"),
    "replay s --until 9": (NOT_FOUND, "session 's' has no entry 9", "use a position up to 1"),
    "dead show 1:1-0": (NOT_FOUND, "there is no dead letter 1:1-0", "`lanebus dead list` lists the ids"),
    "groups remove none --yes": (NOT_FOUND, "there is no consumer group 'none'", "the groups are crew"),
    "dead list --group none": (NOT_FOUND, "there is no consumer group 'none'", "the groups are crew"),
    "dead show 1:1-0 --group none": (NOT_FOUND, "there is no consumer group 'none'", "the groups are crew"),
    "dead redrive --group none --yes": (NOT_FOUND, "there is no consumer group 'none'", "the groups are crew"),
    "agents --group none": (NOT_FOUND, "there is no consumer group 'none'", "the groups are crew"),
    "top --once --group none": (NOT_FOUND, "there is no consumer group 'none'", "the groups are crew"),
    "projections remove s x@1": (NOT_FOUND, "session 's' stores no projection 'x@1'", "`lanebus projections list s`"),
    "publish s hi --expected 7": (
        REFUSED,
        "session 's' is at position 1, expected 7",
        '--expected and the "cursor"',
    ),
    "publish shut hi": (REFUSED, "session 'shut' is closed", "`lanebus reopen shut` opens it again"),
    f"sessions --url {NOWHERE}": (UNAVAILABLE, "127.0.0.1:1: Connection refused", "check its address"),
    "control s pause --wait 0": (UNAVAILABLE, "no worker answered the command", "start one with `lanebus worker`"),
    "publish s --extension k {": (INVALID, "not JSON", "correct the input and try again"),
}
"""arguments → exit code, a part of the reason, and the beginning of the next step, if sessions `s` and `shut` exist"""


@pytest.fixture(scope="module")
def wrong(module_lanebus: CommandLine) -> CommandLine:
    """A bus with the sessions that the wrong usages name."""
    module_lanebus("publish", "s", "hi")
    module_lanebus("publish", "shut", "hi")
    module_lanebus("close", "shut")
    anyio.run(_make_group, module_lanebus)
    return module_lanebus


async def _make_group(lanebus: CommandLine) -> None:
    """Make the group `crew`."""
    async with Bus.open(data_dir=lanebus.data_dir) as bus, bus.consumer("crew", "w1", heartbeat=600) as consumer:
        with anyio.fail_after(120):
            await consumer.fetch(1)
        await consumer.deregister()


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_usage_has_its_exit_code_its_reason_and_a_next_step(wrong: CommandLine, line: str) -> None:
    code, reason, next_step = WRONG[line]
    answer = wrong(*line.split())
    assert (answer.code, answer.out) == (code, "")
    assert re.fullmatch("error: .+\nhint: .+\n", answer.err), answer.err
    error, hint = answer.err.splitlines()
    assert reason in error
    assert hint.removeprefix("hint: ").startswith(next_step) or next_step in hint


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (f"serve --port 0 --wait 0 --url {NOWHERE}", UNAVAILABLE, "127.0.0.1:1: Connection refused"),
        (f"sessions --url {NOWHERE}", UNAVAILABLE, "127.0.0.1:1: Connection refused"),
        ("serve --port 0", USAGE, "data directory ~"),
        ("sessions", USAGE, "data directory ~"),
        ("server status", USAGE, "data directory ~"),
    ],
)
def test_only_a_command_that_needs_a_home_directory_is_refused_without_one(
    wrong: CommandLine, words: str, code: ExitCode, reason: str
) -> None:
    answer = wrong(*words.split(), env={"HOME": "", "XDG_DATA_HOME": "", "LANEBUS_DATA_DIR": ""})
    assert answer.code == code, answer.err
    assert reason in answer.err
    if code == USAGE:
        assert "LANEBUS_DATA_DIR" in answer.err


def test_lanebus_alone_prints_its_help(wrong: CommandLine) -> None:
    answer = wrong()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == wrong("--help").out


def test_a_module_that_raises_is_shown_by_its_own_traceback_alone(wrong: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def load():\n    return 1 / 0\n\n\nagent = load()\n")
    for words in (
        ("worker", f"{tmp_path}/broken.py:agent"),
        ("replay", "s", "--projection", f"{tmp_path}/broken.py:agent"),
    ):
        answer = wrong(*words)
        assert (answer.code, answer.out) == (1, "")
        files = re.findall('File "([^"]+)"', answer.err)
        assert files == 2 * [f"{tmp_path}/broken.py"]
        assert str(ROOT) not in answer.err
        error, hint = answer.err.splitlines()[-2:]
        assert error == f"error: {tmp_path}/broken.py:agent raised ZeroDivisionError while it was imported"
        assert hint.startswith("hint: ")


def test_a_module_with_a_syntax_error_names_the_line(wrong: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("agent = = 1\n")
    answer = wrong("worker", f"{tmp_path}/broken.py:agent")
    assert answer.code == 1
    assert re.findall('File "([^"]+)", line (.)', answer.err) == [(f"{tmp_path}/broken.py", "1")]


def test_an_error_of_the_bus_in_a_module_is_no_traceback(wrong: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("from lanebus.agent import load_model\n\nagent = load_model('nobody/x')\n")
    answer = wrong("worker", f"{tmp_path}/broken.py:agent")
    assert answer.code == 2
    assert answer.err.startswith("error: no model at 'nobody/x'\nhint: write api/name")
