"""`lanebus doctor`: its findings, their remedies and its exit code."""

import re
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import anyio
import pytest

from lanebus.bus.servers.endpoint import Endpoint
from lanebus.bus.servers.rights import acl_users
from lanebus.bus.wire.keys import Keys
from lanebus.handlers.cli.doctor.installation import check_imports, check_versions
from lanebus.handlers.cli.doctor.rights import needed_commands
from lanebus.handlers.cli.doctor.server import ServerFacts, check_clock, check_server
from tests.support.cli.command_line import CommandLine, objects
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

__all__ = ()


def wait_ready(server: subprocess.Popen[str]) -> None:
    """Wait until a redis-server accepts connections."""
    assert server.stdout is not None
    assert any("ready to accept" in line.lower() for line in server.stdout)


VALKEY = {"valkey_version": "9.1.2", "redis_version": "7.2.4", "aof_enabled": "1", "role": "master"}
REDIS = {"redis_version": "7.0.15", "aof_enabled": "1", "role": "master"}
SAFE = {"appendfsync": "always", "aof-load-truncated": "yes", "min-replicas-to-write": "0"}


def levels(lines: str) -> dict[str, str]:
    """Return the worst level of each check."""
    found: dict[str, str] = {}
    for line in objects(lines):
        order = ("ok", "warning", "error")
        found[str(line["check"])] = max(found.get(str(line["check"]), "ok"), str(line["level"]), key=order.index)
        assert bool(line["remedy"]) == (line["level"] != "ok")
    return found


def test_embedded_server_has_no_finding(lanebus: CommandLine) -> None:
    answer = lanebus("doctor")
    assert (answer.code, answer.err) == (0, "")
    assert set(levels(answer.out).values()) == {"ok"}
    assert "Valkey 9" in answer.out


def test_unsafe_server_and_a_user_without_rights_are_errors(
    lanebus: CommandLine, redis_server: Path, tmp_path: Path
) -> None:
    socket = lanebus.data_dir.parent / "redis.sock"
    words = [redis_server, "--port", "0", "--unixsocket", socket, "--appendonly", "no", "--save", "", "--dir", tmp_path]
    words += ["--maxmemory-policy", "allkeys-lru"]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as server:
        try:
            wait_ready(server)
            unsafe = lanebus("doctor", "--url", f"unix://{socket}")
            rights = ("resetkeys", "~lanebus:*", "&*", "+@all", "-zadd", "-script", "-acl", "-config")
            anyio.run(Endpoint.at_socket(str(socket)).ask, ("ACL", "SETUSER", "default", "on", "nopass", *rights))
            weak = lanebus("doctor", "--url", f"unix://{socket}")
        finally:
            server.kill()
    assert unsafe.code == 7
    assert levels(unsafe.out) == {
        **dict.fromkeys(("versions", "imports", "server", "encryption", "rights"), "ok"),
        **dict.fromkeys(("log", "replicas", "default user", "clock"), "ok"),
        "security": "warning",  # Debian keeps the version number when it fixes a hole
        **dict.fromkeys(("appendonly", "maxmemory-policy"), "error"),
    }
    assert weak.code == 7
    (found,) = [line for line in objects(weak.out) if line["check"] == "rights"]
    assert found["text"] == "the user 'default' may not run script|load, zadd on keys of 'lanebus'"
    assert str(found["remedy"]).startswith("run `lanebus acl --namespace lanebus`, apply what it prints, then ACL SAVE")


def test_a_wrong_password_is_to_be_corrected_in_the_url(lanebus: CommandLine, valkey: RealServer) -> None:
    valkey.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "+@all", "-xadd")
    wrong, right = (f"unix://app:{password}@{valkey.socket}" for password in ("wrong", "pass"))
    assert objects(lanebus("doctor", "--url", wrong).out)[-1]["remedy"] == "correct the user or the password in the URL"
    texts = [str(line["text"]) for line in objects(lanebus("doctor", "--url", right).out)]
    assert "the user 'app' may not run xadd on keys of 'lanebus'" in texts


def test_a_user_that_may_only_read_is_no_fault_and_is_told_how_to_write(
    lanebus: CommandLine, valkey: RealServer
) -> None:
    for user in acl_users("lanebus"):
        valkey.do("ACL", "SETUSER", user.name, *user.rules, ">pass")
    url = f"unix://lanebus-reader:pass@{valkey.socket}"
    found = lanebus("doctor", "--url", url)
    assert found.code == 0
    (line,) = [line for line in objects(found.out) if line["check"] == "rights"]
    assert (line["level"], line["remedy"]) == ("ok", None)
    assert line["text"] == "this user may only read; use lanebus-bus of `lanebus acl` to write"
    valkey.do("ACL", "SETUSER", "lanebus-reader", "+xadd")
    mixed = lanebus("doctor", "--url", url)
    assert (mixed.code, levels(mixed.out)["rights"]) == (7, "error")
    assert "~lanebus:*" not in mixed.out


def test_server_that_is_not_there_is_an_error_with_its_cause(lanebus: CommandLine) -> None:
    answer = lanebus("doctor", "--url", "redis://127.0.0.1:1")
    assert answer.code == 7
    assert objects(answer.out)[-1] == {
        "level": "error",
        "check": "server",
        "text": "server at 127.0.0.1:1: Connection refused",
        "remedy": "check its address, and that it runs",
    }
    shown = lanebus("doctor", "--url", "redis://127.0.0.1:1", "--table").out.splitlines()
    assert shown[-2].startswith("error    server ")
    assert shown[-1].strip().startswith("hint: check its address")


@pytest.mark.parametrize(
    ("info", "settings", "check", "level"),
    [
        (VALKEY, SAFE, "aof-load-truncated", "ok"),
        (REDIS, SAFE, "aof-load-truncated", "error"),
        (REDIS, {**SAFE, "aof-load-truncated": "no"}, "aof-load-truncated", "ok"),
        (VALKEY, SAFE, "appendfsync", "ok"),
        (VALKEY, {**SAFE, "appendfsync": "everysec"}, "appendfsync", "warning"),
        (VALKEY, {**SAFE, "appendfsync": "no"}, "appendfsync", "error"),
        (VALKEY, None, "appendfsync", "warning"),
        ({**VALKEY, "aof_enabled": "0"}, SAFE, "appendonly", "error"),
        ({**VALKEY, "maxmemory_policy": "volatile-lru"}, SAFE, "maxmemory-policy", "error"),
        ({**VALKEY, "role": "slave"}, SAFE, "replicas", "error"),
        ({**VALKEY, "connected_slaves": "1"}, SAFE, "replicas", "warning"),
        ({**VALKEY, "connected_slaves": "1"}, {**SAFE, "min-replicas-to-write": "1"}, "replicas", "ok"),
        ({**REDIS, "redis_version": "6.2.1"}, SAFE, "server", "error"),
    ],
)
def test_setting_that_loses_messages_is_found(
    info: dict[str, str], settings: dict[str, str] | None, check: str, level: str
) -> None:
    (finding,) = [each for each in check_server(ServerFacts(info, settings)) if each.check == check]
    assert finding.level == level
    assert bool(finding.remedy) == (level != "ok")


@pytest.mark.parametrize(
    ("times", "level", "text"),
    [
        ((10.0, 10.2, 10.4), "ok", "less than 1 s"),
        ((10.0, 13.5, 16.0), "ok", "less than 1 s"),
        ((10.0, 5.0, 10.1), "warning", "5.0 s behind"),
        ((10.0, 15.1, 10.1), "warning", "5.0 s ahead of"),
    ],
)
def test_clock_that_differs_more_than_the_journey_explains_is_found(
    times: tuple[float, float, float], level: str, text: str
) -> None:
    finding = check_clock(*times)
    assert finding.level == level
    assert text in finding.text


def test_local_module_that_hides_an_installed_one_is_found(tmp_path: Path) -> None:
    assert [each.level for each in check_imports(tmp_path)] == ["ok"]
    (tmp_path / "redis.py").write_text("")
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "__init__.py").write_text("")
    (hidden,) = check_imports(tmp_path, is_checkout=False)
    assert (hidden.level, hidden.text.split()[0]) == ("error", str(tmp_path / "redis.py"))
    levels_of = {each.text.split()[0]: each.level for each in check_imports(tmp_path, is_checkout=True)}
    assert levels_of == {str(tmp_path / "redis.py"): "error", str(tmp_path / "bus"): "warning"}
    assert [each.level for each in check_imports(ROOT)] == ["ok"]


def test_version_of_the_client_that_is_not_supported_is_found() -> None:
    def find(name: str) -> str:
        if name == "hiredis":
            raise PackageNotFoundError(name)
        return {"redis": "7.0.1"}.get(name, "1.0")

    assert [each.level for each in check_versions(find)] == ["ok", "error"]
    assert "redis[hiredis]" in check_versions(find)[1].remedy
    assert [each.level for each in check_versions()] == ["ok", "ok"]


def test_rights_are_checked_for_each_command_of_the_scripts() -> None:
    scripts = (ROOT / "bus/log/scripts").glob("*.lua")
    called = {name for path in scripts for name in re.findall(r"call\('([A-Z]+)'", path.read_text(encoding="utf-8"))}
    assert len(called) > 20
    assert called - {str(command[0]) for command in needed_commands(Keys())} == set()
