"""Environment variables of the command line: unknown ones are errors, and lanebus refuses none that it reads itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lanebus.handlers.cli.group import COMMANDS
from lanebus.handlers.cli.settings_model import SettingsRefused, known_keys, refuse_unknown
from lanebus.handlers.cli.sources import PREFIX, SHORT, is_foreign, unexplained_variables, variable_of
from tests.support.cli.command_line import CommandLine
from tests.support.paths import ROOT

__all__ = ()

UNREFUSED = {"help", "completion"}

FOLDERS = ("bus", "handlers", "lanebus", "examples", "bench", "docs", "tests")


@pytest.mark.full
@pytest.mark.parametrize("name", [name for group in COMMANDS.values() for name in group])
def test_each_command_refuses_an_unknown_variable_except_help_and_completion(unopened: CommandLine, name: str) -> None:
    env = {"LANEBUS_WORKER__GROP": "x"}
    answer = unopened(name, *(["bash"] if name == "completion" else []), env=env)
    if name in UNREFUSED:
        assert (answer.code, answer.err) == (0, "")
    else:
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.splitlines() == [
            "error: the environment: LANEBUS_WORKER__GROP: there is no such setting",
            "hint: did you mean LANEBUS_WORKER__GROUP?",
        ]
    helped = unopened(name, "--help", env=env)
    assert (helped.code, helped.err) == (0, "")


@pytest.mark.full
def test_a_shell_completes_with_an_unknown_variable(unopened: CommandLine) -> None:
    env = {"LANEBUS_URLL": "x", "_LANEBUS_COMPLETE": "bash_complete", "COMP_WORDS": "lanebus ser", "COMP_CWORD": "1"}
    answer = unopened(env=env)
    assert (answer.out.split(), answer.err) == (["plain,serve", "plain,server"], "")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("LANEBUS_URLL", "LANEBUS_URL"),
        ("LANEBUS_CONFG", "LANEBUS_CONFIG"),
        ("LANEBUS_SERVE_PORT", "LANEBUS_SERVE__PORT"),
        ("LANEBUS_GRUP", "LANEBUS_WORKER__GROUP"),
        ("LANEBUS_LOGLEVEL", "LANEBUS_LOG_LEVEL"),
        ("LANEBUS_BOUNDS__LOG__HEDS", "LANEBUS_BOUNDS__LOG__HEADS"),
        ("LANEBUS_PORT", "LANEBUS_SERVE__PORT"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    assert unexplained_variables({name: "1", "PATH": "x", "LANEBUS_URL": "x"}) == [name]
    with pytest.raises(SettingsRefused) as caught:
        refuse_unknown([variable_of("serve.port"), name])
    assert (caught.value.where, caught.value.key) == ("the environment", name)
    assert caught.value.remedy == f"did you mean {nearest}?"


def test_a_variable_that_resembles_none_is_refused_with_the_command_that_lists_them() -> None:
    with pytest.raises(SettingsRefused, match="LANEBUS_ZZZZZZ: there is no such setting: `lanebus config show`"):
        refuse_unknown(["LANEBUS_ZZZZZZ"])


def test_the_variable_of_each_setting_is_known() -> None:
    refuse_unknown([variable_of(key) for key in known_keys()])
    refuse_unknown(["LANEBUS_WORKER__AGENTS__billing", *SHORT])
    assert {key for keys in SHORT.values() for key in keys} <= {*known_keys()}


def test_each_variable_that_the_tree_names_is_known() -> None:
    """Also those of the tests, the examples and docker-compose.yml."""
    files = [
        *(file for folder in FOLDERS for file in _texts(ROOT / folder) if file.name != Path(__file__).name),
        *(ROOT / name for name in ("README.md", "Makefile", "Dockerfile", "docker-compose.yml")),
    ]
    found = {
        name
        for file in files
        for name in re.findall(rf"(?<![A-Z_]){PREFIX}[A-Z_]*[A-Z](?![A-Za-z_])", file.read_text(encoding="utf-8"))
    }
    assert {"LANEBUS_URL", "LANEBUS_SEED", "LANEBUS_AGENT", "LANEBUS_TEST_SECONDS"} <= found
    refuse_unknown(unexplained_variables(dict.fromkeys(found, "x")))


def _texts(folder: Path) -> list[Path]:
    return [file for end in ("py", "md") for file in folder.rglob(f"*.{end}")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LANEBUS_PORT", "tcp://10.0.0.7:8420"),
        ("LANEBUS_SERVICE_HOST", "10.0.0.7"),
        ("LANEBUS_SERVICE_PORT_HTTP", "8420"),
        ("LANEBUS_WEB_PORT_8420_TCP", "tcp://10.0.0.7:8420"),
        ("LANEBUS_WEB_PORT_8420_TCP_ADDR", "10.0.0.7"),
    ],
)
def test_variables_that_kubernetes_adds_for_a_service_are_not_refused(name: str, value: str) -> None:
    assert is_foreign(name, value)
    assert unexplained_variables({name: value}) == []


@pytest.mark.full
def test_known_variables_load_no_settings(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom lanebus.handlers.cli.group import run_command_line as r\n"
        "r(['help', 'options'])\nr(['publish', '--help'])\nprint('\\n', *sys.modules)"
    )
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "LANEBUS_URL": "x", "LANEBUS_SEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "lanebus.handlers.cli.settings_model" not in done.stdout.splitlines()[-1].split()
