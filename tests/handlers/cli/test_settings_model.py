"""Settings: arguments come before the environment, the file and defaults. An unknown variable is an error."""

import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file
from typing import cast

import click
import pytest

from docs.site.tables import fill_in
from lanebus import Bounds
from lanebus.errors import DirectoryNotOwned
from lanebus.handlers.agent import DRAIN_SECONDS, RETRY
from lanebus.handlers.cli.group import COMMANDS, load_command
from lanebus.handlers.cli.options import SHARED_OPTIONS
from lanebus.handlers.cli.settings_model import SettingsRefused, known_keys, load_configuration, refuse_unknown
from lanebus.handlers.cli.sources import (
    PREFIX,
    SHORT,
    find_settings_file,
    is_foreign,
    unexplained_variables,
    variable_of,
)
from tests.support.cli.command_line import CommandLine, objects
from tests.support.paths import ROOT

worker, serve = load_command("worker"), load_command("serve")
FILE = """
url = "redis://ann:secret@127.0.0.1:1"
namespace = "of-file"

[worker]
group = "of-file"
concurrency = 7

[serve]
token = "hidden"

[bounds.log]
heads = 9
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lanebus.toml"
    path.write_text(FILE)
    return path


def shown(lanebus: CommandLine, *words: str, env: dict[str, str] | None = None) -> dict[str, tuple[object, object]]:
    """Return each setting that is no default, with its source."""
    answer = lanebus("config", "show", *words, env=env)
    assert (answer.code, answer.err) == (0, "")
    lines = objects(answer.out)
    return {str(line["setting"]): (line["value"], line["source"]) for line in lines if line["source"] != "default"}


@pytest.mark.full
def test_each_setting_has_the_source_that_comes_first(unopened: CommandLine, file: Path) -> None:
    env = {"LANEBUS_WORKER__GROUP": "of-environment", "LANEBUS_NAMESPACE": "of-environment"}
    found = shown(unopened, "--config", str(file), "--namespace", "typed", env=env)
    assert found.pop("data_dir")[1] == "environment"
    assert found == {
        "url": ("redis://***@127.0.0.1:1", str(file)),
        "namespace": ("typed", "argument"),
        "worker.group": ("of-environment", "environment"),
        "worker.concurrency": (7, str(file)),
        "serve.token": ("***", str(file)),
        "bounds.log.heads": (9, str(file)),
    }
    named = shown(unopened, env={"LANEBUS_CONFIG": str(file)})
    assert named["namespace"] == ("of-file", str(file))


@pytest.mark.full
def test_commands_obey_the_file(lanebus: CommandLine, file: Path) -> None:
    # A directory of the environment overrides a URL of the file.
    assert lanebus("sessions", "--config", file).code == 0
    assert lanebus("sessions", "--config", file, "--url", "redis://127.0.0.1:1").code == 5
    file.write_text('namespace = "of-file"\n[worker]\ngroup = "of-file"\n')
    assert lanebus("publish", "s", "hi", "--config", file).code == 0
    assert lanebus("sessions").out == ""
    assert lanebus("sessions", "--namespace", "of-file").object["session"] == "s"
    worker = ("worker", "lanebus.handlers.agent.demo:agent", "--name", "w", "--config", str(file))
    for words, group in (((), "of-file"), (("--group", "typed"), "typed")):
        with lanebus.running(*worker, *words) as run:
            assert json.loads(run.err.readline())["group"] == group


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "reason", "next_step"),
    [
        ("nmespace = 'x'", "nmespace: there is no such setting", "did you mean namespace?"),
        ("[worker]\nconcurency = 1", "worker.concurency: there is no such setting", "did you mean worker.concurrency?"),
        ("[bounds.lgo]\nheads = 1", "bounds.lgo: there is no such setting", "did you mean bounds.log"),
        ("[bounds.publsh]\nlarge_bytes = 1", "bounds.publsh: there is no such setting", "did you mean bounds.publish?"),
        ("[worker]\nclose_seconds = 1", "worker.close_seconds: there is", "did you mean bounds.publish.close_seconds?"),
        ("a1 = 1\nnmespace = 'x'", "; nmespace: there is no such setting, did you mean namespace?", "correct these"),
        ("nmespace = 'x'\n[worker]\nconcurrency = 'x'", "; worker.concurrency: write a whole number", "correct these"),
        ("nmespace = 'x'\n[worker]\nconcurrency = true", "; worker.concurrency: the value is true", "correct these"),
        ("[serve]\nallow_host = 1", "serve.allow_host: write a list of texts", "correct this value"),
        ("[worker]\nname = 1\nattempts = 'x'", "worker.name: write a text; worker.attempts: write a whole", "correct"),
        ("zzzzzz = 1", "zzzzzz: there is no such setting", "`lanebus config show` lists the keys"),
        ("[worker]\nconcurrency = 0", "worker.concurrency: ", "correct this value"),
        ("[bounds.log]\nheads = 'x'", "bounds.log.heads: ", "correct this value"),
        ("[bounds.publish]\nbatch_count = 0", "bounds.publish.batch_count: the value is 0", "use 1 or more"),
        ("[bounds.publish]\nbatch_count = true", "bounds.publish.batch_count: the value is true", "use a number"),
        ("[worker]\nconcurrency = true", "worker.concurrency: the value is true", "use a number"),
        ("[bounds.connection]\npool_connections = 0", "bounds.connection.pool_connections: ", "use 1 or more"),
        ("[bounds.work]\nsweep_seconds = -1.0", "bounds.work.sweep_seconds: ", "use a number above 0"),
        ("[bounds.work]\nsweep_seconds = inf", "bounds.work.sweep_seconds: ", "use a number above 0"),
        ("= 1", "lanebus.toml: ", "write it as TOML"),
    ],
)
def test_a_wrong_file_names_the_key(unopened: CommandLine, file: Path, text: str, reason: str, next_step: str) -> None:
    file.write_text(text)
    answer = unopened("config", "show", "--config", file)
    assert (answer.code, answer.out) == (2, "")
    error, hint = answer.err.splitlines()
    assert error.startswith(f"error: {file}: ") or reason in error
    assert reason in error
    assert hint.startswith(f"hint: {next_step}")


def test_a_wrong_variable_is_told_from_a_wrong_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, key, reason in (
        ("LANEBUS_WORKER__CONCURRENCY", "many", "worker.concurrency", "worker.concurrency: "),
        ("LANEBUS_BOUNDS__PUBLISH__BATCH_COUNT", "0", "bounds.publish.batch_count", "bounds.publish.batch_count: "),
        ("LANEBUS_SERVE__ALLOW_HOST", "redis://u:secret@h", None, "a list or a table"),
    ):
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            with pytest.raises(SettingsRefused) as caught:
                load_configuration(file)
        text = str(caught.value)
        assert (f"the environment: {reason}" in text, "secret" in text) == (True, False)
        assert caught.value.where == "the environment"
        assert key is None or caught.value.key == key
    with pytest.raises(SettingsRefused, match="No such file"):
        load_configuration(file.with_name("none.toml"))


@pytest.mark.parametrize("kind", ["repository", "home", "neither"])
def test_the_nearest_file_is_found_up_to_the_repository_or_the_home(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    end = tmp_path / "end"
    deep = end / "a" / "b"
    deep.mkdir(parents=True)
    for root in ("", "/"):  # the root directory is no home
        monkeypatch.setenv("HOME", root)
        assert (find_settings_file(end), find_settings_file(tmp_path)) == (None, file)
    monkeypatch.setenv("HOME", str(end if kind == "home" else tmp_path / "elsewhere"))
    if kind == "repository":
        (end / ".git").touch()
    assert find_settings_file(deep) is None
    for folder in (end, end / "a", deep):
        (folder / "lanebus.toml").write_text("")
        assert find_settings_file(deep) == (None if kind == "neither" and folder != deep else folder / "lanebus.toml")


EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef hide(message): return message\n"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder into which every user may put files, with a module."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "evil.py").write_text(EVIL)
    return folder


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder. It opens no server: nothing answers at its URL."""
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(folder / "home"), "LANEBUS_URL": "redis://127.0.0.1:1"}
    command = [sys.executable, "-m", "lanebus.handlers.cli", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_a_found_file_that_others_may_write_is_refused_and_a_named_one_is_warned_of(shared: Path) -> None:
    settings = shared / "lanebus.toml"
    settings.write_text("redact = 'evil.py:hide'\n")
    settings.chmod(0o666)
    refused = run_in(shared, "sessions")
    assert refused.returncode == 2
    assert f"error: settings file {settings}: has mode 0666, so other users may write to it" in refused.stderr
    assert "--config" in refused.stderr
    assert not (shared / "ran").exists()
    named = run_in(shared, "sessions", "--config", str(settings))
    assert named.returncode == 5
    assert f"warning: settings file {settings}: has mode 0666" in named.stderr
    assert (shared / "ran").exists()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("redact = 'evil.py:hide'", "redact"),
        ("[worker.agents]\nx = 'evil.py:hide'", "worker.agents"),
        ("[serve]\nidentify = 'evil.py:hide'", "serve.identify"),
        ("[serve]\nauthorize = 'evil.py:hide'", "serve.authorize"),
        ("[serve]\nprojection = ['lanebus.projections:USAGE', 'evil.py:hide']", "serve.projection"),
        ("[serve]\ntoken_file = 'evil.py'", "serve.token_file"),
        ("[serve]\nreader_token_file = 'evil.py'", "serve.reader_token_file"),
        ("[serve]\nkey_file = 'evil.py'", "serve.key_file"),
        ("[serve]\nrevoked_file = 'evil.py'", "serve.revoked_file"),
    ],
)
def test_a_file_that_found_settings_name_counts_only_if_no_other_user_may_write_it(
    shared: Path, monkeypatch: pytest.MonkeyPatch, text: str, key: str
) -> None:
    monkeypatch.chdir(shared)
    (shared / "lanebus.toml").write_text(text)
    load_configuration(shared / "lanebus.toml", is_named=False)  # what is ours in a sticky folder is ours
    (shared / "evil.py").chmod(0o666)
    with pytest.raises(DirectoryNotOwned, match=rf"{key} in lanebus.toml names .* has mode 0666"):
        load_configuration(shared / "lanebus.toml", is_named=False)
    load_configuration(shared / "lanebus.toml")
    (shared / "evil.py").unlink()
    load_configuration(shared / "lanebus.toml", is_named=False)


@pytest.mark.parametrize("target", ["pkg.inner.access:rule", "access:rule"])
def test_a_module_that_found_settings_name_counts_only_if_no_other_user_may_write_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg" / "inner" / "__pycache__").mkdir(parents=True)
    (tmp_path / "__pycache__").mkdir()
    compiled = Path(cache_from_source(tmp_path / "access.py"))
    compiled.touch()
    for module in ("access.py", "pkg/__init__.py", "pkg/inner/access.py"):  # inner has no __init__.py
        (tmp_path / module).write_text(EVIL)
    settings = tmp_path / "lanebus.toml"
    settings.write_text(f"[serve]\nauthorize = '{target}'\nprojection = ['lanebus.projections:USAGE']")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = [*sys.path]
    of_package = ("pkg", "pkg/__init__.py", "pkg/inner", "pkg/inner/access.py", "pkg/inner/__pycache__")
    for name in ("access.py", "__pycache__", str(compiled.relative_to(tmp_path)), *of_package):
        load_configuration(settings, is_named=False)
        place = tmp_path / name
        mode, is_folder = place.stat().st_mode, place.is_dir()
        place.chmod(0o1777 if is_folder else 0o666)
        is_read = name.startswith("pkg") == target.startswith("pkg")
        kind = "folder" if is_folder else "file"
        refusal = pytest.raises(DirectoryNotOwned, match=rf"serve.authorize in lanebus.toml names a {kind} .* has mode")
        with refusal if is_read else nullcontext():
            load_configuration(settings, is_named=False)
        load_configuration(settings)
        place.chmod(mode)
    assert sys.path == before
    assert not [*tmp_path.rglob("ran")]


def test_of_a_package_in_several_folders_all_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, installed = tmp_path / "here", tmp_path / "installed"
    for folder in (here, installed):
        (folder / "plugins").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    (here / "plugins" / "access.py").write_text(EVIL)
    (here / "lanebus.toml").write_text("[serve]\nauthorize = 'plugins.access:rule'")
    load_configuration(here / "lanebus.toml", is_named=False)
    (here / "plugins").chmod(0o777)
    with pytest.raises(DirectoryNotOwned, match="has mode 0777"):
        load_configuration(here / "lanebus.toml", is_named=False)


@pytest.mark.full
def test_a_module_in_a_working_directory_that_others_may_write_is_refused(shared: Path) -> None:
    for words in (("worker", "evil:hide"), ("sessions", "--redact", "evil:hide"), ("serve", "--identify", "evil:hide")):
        refused = run_in(shared, *words)
        assert refused.returncode == 2, refused.stderr
        assert f"module 'evil' was not imported from {shared}: has mode 1777" in refused.stderr
    assert not (shared / "ran").exists()
    installed = run_in(shared, "worker", "lanebus.handlers.agent.demo:agent", "--wait", "0")
    assert installed.returncode == 5, installed.stderr
    shared.chmod(0o755)
    assert run_in(shared, "sessions", "--redact", "evil:hide").returncode == 5
    assert (shared / "ran").exists()


@pytest.mark.full
def test_a_named_file_in_such_a_directory_imports_nothing_beside_it(shared: Path) -> None:
    (shared / "json5.py").write_text(EVIL)
    (shared / "mine.py").write_text("import json5\n")
    planted = Path(cache_from_source(str(shared / "own.py")))
    planted.parent.mkdir()
    (shared / "own.py").write_text("hide = print\n")
    compile_file(str(shared / "evil.py"), cfile=str(planted), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    own = run_in(shared, "sessions", "--redact", "own.py:hide")
    assert own.returncode == 5, own.stderr
    assert "warning: own.py cannot import modules of its folder, which has mode 1777" in own.stderr
    beside = run_in(shared, "sessions", "--redact", "mine.py:hide")
    assert "No module named 'json5'" in beside.stderr
    assert not (shared / "ran").exists()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nothing"])
def test_what_is_no_file_is_refused_and_nothing_waits_for_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lanebus.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/none")
    refused = run_in(tmp_path, "sessions")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert str(path) in refused.stderr
    assert run_in(tmp_path, "--help").returncode == 0


def test_defaults_are_those_of_the_options_and_the_parts_and_are_documented() -> None:
    configuration, _ = load_configuration(None)
    assert configuration.bounds == Bounds()
    assert (configuration.worker.drain, configuration.worker.attempts) == (DRAIN_SECONDS, RETRY.attempts)
    assert parameters(worker, "m:a") == {**configuration.worker.model_dump(), "agents": ()}
    assert parameters(serve) == configuration.serve.model_dump()
    page = fill_in((ROOT / "docs/reference/settings.md").read_text(encoding="utf-8"))
    assert [key for key in known_keys() if f"| `{key}` | " not in page] == []
    assert "| `worker.concurrency` | `32` | Most sessions that run at a time. |" in page


WITHOUT_SETTING = {"help"}
"""options of `worker` and `serve` that no file sets. Shared options, such as --url, have settings of their own"""


def options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def option_key(option: click.Option) -> str:
    """The key of an option, in its command's table."""
    name = option.opts[0].removeprefix("--").replace("-", "_")
    return {"agent": "agents"}.get(name, name)


def test_each_option_has_a_setting_and_each_setting_an_option() -> None:
    for command in (worker, serve):
        keys = {key.removeprefix(f"{command.name}.") for key in known_keys() if key.startswith(f"{command.name}.")}
        assert {option_key(option) for option in options(command)} - WITHOUT_SETTING == keys
    shared = {option.name.replace("-", "_") for option in SHARED_OPTIONS if option.variable}
    assert shared - {"config"} == {key for key in known_keys() if "." not in key}


WORKER_FILE = """
[worker]
group = "g"
name = "n"
concurrency = 7
heartbeat = 8.5
drain = 9.5
attempts = 10
retry_base = 11.5
wait = 12.5
monitor = "127.0.0.1:0"
monitor_allow_host = ["m"]
log_level = "error"
log_format = "text"

[worker.agents]
billing = "agents:billing"
"Support.2" = "agents.py:support"
"""

SERVE_FILE = """
[serve]
host = "::1"
port = 7
token = "t"
token_file = "tokens"
reader_token = "r"
reader_token_file = "readers"
key_file = "key"
revoked_file = "revoked"
audience = "a"
identify = "hooks:identify"
authorize = "hooks:authorize"
allow_host = ["a"]
allow_origin = ["https://a.example"]
allow_media_url = ["https://cdn.example/public"]
trusted_proxy = ["10.0.0.0/8"]
base_path = "/a"
mcp = "read"
projection = ["m:words"]
uploads = "uploads"
wait = 12.5
monitor = "127.0.0.1:0"
monitor_allow_host = ["m"]
log_level = "error"
log_format = "json"
"""


def parameters(command: click.Command, *words: str) -> dict[str, object]:
    with command.make_context(command.name, [*words]) as context:
        return {option_key(option): context.params[option.name] for option in options(command)}


@pytest.mark.parametrize(("command", "text"), [(worker, WORKER_FILE), (serve, SERVE_FILE)], ids=["worker", "serve"])
def test_each_setting_of_a_command_reaches_its_option(command: click.Command, text: str, file: Path) -> None:
    file.write_text(text)
    given = tomllib.loads(text)[str(command.name)]
    agents = ["m:a"] if command is worker else []
    found = parameters(command, *agents, "--config", str(file))
    assert found.keys() == given.keys()
    for name, value in found.items():
        if name == "agents":
            assert value == tuple(f"{key}={target}" for key, target in given[name].items())
        elif isinstance(given[name], list):
            assert value == tuple(cast("list[str]", given[name]))
        else:
            assert value == given[name], name
    if command is worker:  # a typed option replaces the list or table of the file
        typed = ("--agent", "own=m:b", "--monitor-allow-host", "own")
        found = parameters(worker, "m:a", "--config", str(file), *typed)
        assert (found["agents"], found["monitor_allow_host"]) == (("own=m:b",), ("own",))


@pytest.mark.full
def test_a_short_variable_gives_a_setting_and_a_long_one_comes_before_it(
    unopened: CommandLine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(SERVE_FILE)
    env = {
        "LANEBUS_CONFIG": str(file),
        "LANEBUS_TOKEN": "of-environment",
        "LANEBUS_LOG_LEVEL": "debug",
        "LANEBUS_WORKER__LOG_LEVEL": "warning",
        "LANEBUS_MONITOR": "",
        "LANEBUS_WORKER__AGENTS__billing": "agents:billing",
    }
    found = shown(unopened, env=env)
    assert found["serve.token"] == ("***", "environment")
    assert found["serve.log_level"] == ("debug", "environment")
    assert found["worker.log_level"] == ("warning", "environment")
    assert found["serve.monitor"] == ("127.0.0.1:0", str(file))
    assert found["worker.agents"] == ({"billing": "agents:billing"}, "environment")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert (parameters(serve)["token"], parameters(serve)["log_level"]) == ("of-environment", "debug")
    assert parameters(worker, "m:a")["log_level"] == "warning"


@pytest.mark.full
def test_each_command_refuses_an_unknown_variable_except_help_and_completion(unopened: CommandLine) -> None:
    env = {"LANEBUS_WORKER__GROP": "x"}
    for name in [name for group in COMMANDS.values() for name in group]:
        answer = unopened(name, *(["bash"] if name == "completion" else []), env=env)
        if name in {"help", "completion"}:
            assert (answer.code, answer.err) == (0, "")
        else:
            assert (answer.code, answer.out) == (2, "")
            assert answer.err.splitlines() == [
                "error: the environment: LANEBUS_WORKER__GROP: there is no such setting",
                "hint: did you mean LANEBUS_WORKER__GROUP?",
            ]
        helped = unopened(name, "--help", env=env)
        assert (helped.code, helped.err) == (0, "")
    shell = {"_LANEBUS_COMPLETE": "bash_complete", "COMP_WORDS": "lanebus ser", "COMP_CWORD": "1"}
    completed = unopened(env={**env, **shell})
    assert (completed.out.split(), completed.err) == (["plain,serve", "plain,server"], "")


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    for name, remedy in (
        ("LANEBUS_URLL", "did you mean LANEBUS_URL?"),
        ("LANEBUS_CONFG", "did you mean LANEBUS_CONFIG?"),
        ("LANEBUS_SERVE_PORT", "did you mean LANEBUS_SERVE__PORT?"),
        ("LANEBUS_GRUP", "did you mean LANEBUS_WORKER__GROUP?"),
        ("LANEBUS_LOGLEVEL", "did you mean LANEBUS_LOG_LEVEL?"),
        ("LANEBUS_BOUNDS__LOG__HEDS", "did you mean LANEBUS_BOUNDS__LOG__HEADS?"),
        ("LANEBUS_PORT", "did you mean LANEBUS_SERVE__PORT?"),
        ("LANEBUS_ZZZZZZ", "`lanebus config show` lists"),
    ):
        assert unexplained_variables({name: "1", "PATH": "x", "LANEBUS_URL": "x"}) == [name]
        with pytest.raises(SettingsRefused) as caught:
            refuse_unknown([variable_of("serve.port"), name])
        assert (caught.value.where, caught.value.key) == ("the environment", name)
        assert caught.value.remedy.startswith(remedy)


def test_the_variable_of_each_setting_is_known() -> None:
    refuse_unknown([variable_of(key) for key in known_keys()])
    refuse_unknown(["LANEBUS_WORKER__AGENTS__billing", *SHORT])
    assert {key for keys in SHORT.values() for key in keys} <= {*known_keys()}


def test_each_variable_that_the_tree_names_is_known() -> None:
    """Also those of the tests, the examples and docker-compose.yml."""
    folders = ("bus", "handlers", "lanebus", "examples", "bench", "docs", "tests")
    files = [ROOT / name for name in ("README.md", "Makefile", "Dockerfile", "docker-compose.yml")]
    files += [file for folder in folders for end in ("py", "md") for file in (ROOT / folder).rglob(f"*.{end}")]
    found = {
        name
        for file in files
        if file != Path(__file__)
        for name in re.findall(rf"(?<![A-Z_]){PREFIX}[A-Z_]*[A-Z](?![A-Za-z_])", file.read_text(encoding="utf-8"))
    }
    assert {"LANEBUS_URL", "LANEBUS_SEED", "LANEBUS_AGENT", "LANEBUS_TEST_SECONDS"} <= found
    refuse_unknown(unexplained_variables(dict.fromkeys(found, "x")))


def test_variables_that_kubernetes_adds_for_a_service_are_not_refused() -> None:
    added = {
        "LANEBUS_PORT": "tcp://10.0.0.7:8420",
        "LANEBUS_SERVICE_HOST": "10.0.0.7",
        "LANEBUS_SERVICE_PORT_HTTP": "8420",
        "LANEBUS_WEB_PORT_8420_TCP": "tcp://10.0.0.7:8420",
        "LANEBUS_WEB_PORT_8420_TCP_ADDR": "10.0.0.7",
    }
    assert all(is_foreign(name, value) for name, value in added.items())
    assert unexplained_variables(added) == []


@pytest.mark.full
def test_commands_without_a_file_load_no_settings(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom lanebus.handlers.cli.group import run_command_line as r\n"
        "r(['server', 'status', '--data-dir', 'x'])\nr(['help', 'options'])\nr(['publish', '--help'])\n"
        "print('\\n', *sys.modules)"
    )
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "LANEBUS_NAMESPACE": "n"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"pydantic_settings", "lanebus.handlers.cli.settings_model"}
