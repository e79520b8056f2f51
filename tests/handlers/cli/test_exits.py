"""Exit codes: the table, what prints it, and the code of each error."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.site.tables import fill_in
from lanebus.bus import errors
from lanebus.bus.errors import BusError, releases_of
from lanebus.handlers.cli.errors import SessionEmpty, next_step
from lanebus.handlers.cli.exits import ExitCode, code_of, exit_code
from tests.support.cli.command_line import CommandLine
from tests.support.paths import ROOT


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
