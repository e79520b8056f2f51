"""`lanebus doctor`: its findings, their remedies and its exit code."""

import re
import socket
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from pydantic import JsonValue

from lanebus.bus.servers import acl_users
from lanebus.bus.wire import Keys
from lanebus.handlers.cli.commands.doctor import check_imports, check_versions, try_store
from lanebus.handlers.cli.server_checks import (
    SETTINGS,
    ServerFacts,
    check_clock,
    check_replica,
    check_server,
    needed_commands,
)
from tests.support.cli.command_line import CommandLine, objects
from tests.support.paths import ROOT
from tests.support.servers.clusters import at_free_port, real_cluster, wait_until
from tests.support.servers.real import RealServer, one_server, real_server
from tests.support.suite.needs import find


def levels(lines: str) -> dict[str, str]:
    """Return the worst level of each check."""
    found: dict[str, str] = {}
    for line in objects(lines):
        order = ("ok", "warning", "error")
        found[str(line["check"])] = max(found.get(str(line["check"]), "ok"), str(line["level"]), key=order.index)
        assert bool(line["remedy"]) == (line["level"] != "ok")
    return found


def check(lines: str, name: str) -> dict[str, JsonValue]:
    """Return the only line of a check."""
    (found,) = [line for line in objects(lines) if line["check"] == name]
    return found


def keys_of(server: RealServer) -> list[str]:
    keys = server.do("KEYS", "*")
    assert isinstance(keys, list)
    return sorted(map(str, keys))


def worst(lines: str) -> list[tuple[object, object]]:
    """Return the check and the node of each error."""
    return [(line["check"], line["node"]) for line in objects(lines) if line["level"] == "error"]


@pytest.mark.full
def test_embedded_server_has_no_finding(lanebus: CommandLine) -> None:
    answer = lanebus("doctor")
    assert (answer.code, answer.err) == (0, "")
    assert set(levels(answer.out).values()) == {"ok"}
    assert "Valkey 9" in answer.out


@pytest.mark.full
@pytest.mark.needs("redis-server")
def test_unsafe_server_and_a_user_without_rights_are_errors(lanebus: CommandLine) -> None:
    binary = find("redis-server")
    assert binary is not None
    with real_server(binary, "--appendonly", "no", "--maxmemory-policy", "allkeys-lru") as server:
        unsafe = lanebus("doctor", "--url", server.url)
        rights = ("resetkeys", "~lanebus:*", "&*", "+@all", "-zadd", "-script", "-acl", "-config")
        server.do("ACL", "SETUSER", "default", "on", "nopass", *rights)
        weak = lanebus("doctor", "--url", server.url)
    assert (unsafe.code, weak.code) == (7, 7)
    assert levels(unsafe.out) == {
        **dict.fromkeys(("versions", "imports", "server", "encryption", "rights"), "ok"),
        **dict.fromkeys(("log", "replicas", "default user", "clock", "namespace", "memory", "disk", "clients"), "ok"),
        **dict.fromkeys(("timeout", "output buffer", "bulk length"), "ok"),
        "security": "warning",  # Debian keeps the version number when it fixes a hole
        **dict.fromkeys(("appendonly", "maxmemory-policy"), "error"),
    }
    found = check(weak.out, "rights")
    assert found["text"] == "the user 'default' may not run script|load, zadd on keys of 'lanebus'"
    assert str(found["remedy"]).startswith("run `lanebus acl --namespace lanebus`, apply what it prints, then ACL SAVE")


@pytest.mark.full
def test_a_wrong_password_is_corrected_in_its_place(lanebus: CommandLine, valkey: RealServer, tmp_path: Path) -> None:
    valkey.do("ACL", "SETUSER", "app", "on", ">pass", "~*", "+@all", "-xadd")
    wrong, right = (f"unix://app:{password}@{valkey.socket}" for password in ("wrong", "pass"))
    assert objects(lanebus("doctor", "--url", wrong).out)[-1]["remedy"] == "correct the user or the password in the URL"
    assert check(lanebus("doctor", "--url", right).out, "rights")["text"] == (
        "the user 'app' may not run xadd on keys of 'lanebus'"
    )
    valkey.do("ACL", "SETUSER", "app", "+xadd")
    file, words = tmp_path / "password", ("--url", f"unix://app@{valkey.socket}?password_file={tmp_path / 'password'}")
    file.write_text("wrong")
    file.chmod(0o644)
    remedy, exposed = f"correct the password in {file}, or the user in the URL", "may be read or written by other users"
    found = lanebus("doctor", *words)
    assert objects(found.out)[-1]["remedy"] == remedy
    assert f"password file {file} {exposed}: run `chmod 600 {file}`" in found.err
    assert f"hint: {remedy}\n" in lanebus("sessions", *words).err
    file.chmod(0o666)
    text = f"password file {file} is not used (has mode 0666, so other users may write to it)"
    assert objects(lanebus("doctor", *words).out)[-1]["text"] == text
    file.chmod(0o600)
    file.write_text("pass")
    found = lanebus("doctor", *words)
    assert (found.code, found.err) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize("command", ["doctor", "verify --all", "sessions", "publish s a"])
def test_a_user_of_another_namespace_is_told_to_name_it(lanebus: CommandLine, valkey: RealServer, command: str) -> None:
    user = acl_users("shop")[1]
    valkey.do("ACL", "SETUSER", user.name, *user.rules, ">pass")
    words = (*command.split(), "--url", f"unix://{user.name}:pass@{valkey.socket}")
    found = lanebus(*words)
    assert "the namespace that the user is for" in found.out + found.err
    assert "`lanebus acl --namespace lanebus`" in found.out + found.err
    assert "`lanebus doctor`" not in found.out + found.err
    assert lanebus(*words, "--namespace", "shop").code in {0, 3}


@pytest.mark.full
def test_a_user_that_may_only_read_is_fine_and_told_how_to_write(lanebus: CommandLine, valkey: RealServer) -> None:
    for user in acl_users("lanebus"):
        valkey.do("ACL", "SETUSER", user.name, *user.rules, ">pass")
    url = f"unix://lanebus-reader:pass@{valkey.socket}"
    found = lanebus("doctor", "--url", url)
    assert (found.code, check(found.out, "settings")["level"]) == (0, "warning")  # unknown settings
    line = check(found.out, "rights")
    assert (line["level"], line["remedy"]) == ("ok", None)
    assert line["text"] == "this user may only read; use lanebus-bus of `lanebus acl` to write"
    valkey.do("ACL", "SETUSER", "lanebus-reader", "+xadd")
    mixed = lanebus("doctor", "--url", url)
    assert (mixed.code, levels(mixed.out)["rights"], "~lanebus:*" in mixed.out) == (7, "error", False)
    tried = lanebus("doctor", "--write", "--url", f"unix://lanebus-bus:pass@{valkey.socket}")
    line = check(tried.out, "write")  # the trial writes to another namespace
    assert (tried.code, line["level"], "is unknown" in str(line["text"])) == (0, "warning", True)
    assert all(name in str(check(tried.out, "settings")["text"]) for name in SETTINGS)


@pytest.mark.full
def test_server_that_is_not_there_is_an_error_with_its_cause(lanebus: CommandLine) -> None:
    answer = lanebus("doctor", "--url", "redis://127.0.0.1:1")
    assert answer.code == 7
    assert objects(answer.out)[-1] == {
        "level": "error",
        "check": "server",
        "text": "server at 127.0.0.1:1: Connection refused",
        "remedy": "check its address, and that it runs",
        "node": "127.0.0.1:1",
    }
    shown = lanebus("doctor", "--url", "redis://127.0.0.1:1", "--table").out.splitlines()
    assert shown[-2].startswith("error    server ")
    assert shown[-1].strip().startswith("hint: check its address")


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "check", "code"),
    [({"maxmemory": "1mb"}, "memory", "OOM"), ({"min-replicas-to-write": "1"}, "replicas", "NOREPLICAS")],
)
def test_a_server_that_refuses_each_publish_is_an_error_and_a_trial_says_so_too(
    lanebus: CommandLine, valkey: RealServer, settings: dict[str, str], check: str, code: str
) -> None:
    for name, value in settings.items():
        valkey.do("CONFIG", "SET", name, value)
    refused = lanebus("publish", "s", "hi", "--url", valkey.url)
    assert (refused.code, code in refused.err) == (5, True)
    found = lanebus("doctor", "--url", valkey.url)
    assert (found.code, worst(found.out)) == (7, [(check, str(valkey.socket))])
    tried = lanebus("doctor", "--url", valkey.url, "--write")
    assert worst(tried.out) == [(check, str(valkey.socket)), ("write", None)]
    assert code in str(objects(tried.out)[-1]["text"])
    assert f"{valkey.socket}: " in lanebus("doctor", "--url", valkey.url, "--table").out


@pytest.mark.full
@pytest.mark.parametrize(("schema", "said"), [("99", "a newer package"), ("1", "lanebus export"), ("x", "a number")])
def test_an_unreadable_namespace_is_an_error(lanebus: CommandLine, valkey: RealServer, schema: str, said: str) -> None:
    valkey.do("HSET", "lanebus:config", "schema", schema, "buckets", "64")
    found = lanebus("doctor", "--url", valkey.url)
    assert (found.code, worst(found.out)) == (7, [("namespace", None)])
    assert said in str(objects(found.out)[-1]["remedy"]) + str(objects(found.out)[-1]["text"])
    assert lanebus("sessions", "--url", valkey.url).code == 2
    assert worst(lanebus("doctor", "--url", valkey.url, "--namespace", "other").out) == []


@pytest.mark.full
@pytest.mark.parametrize("what", ["archive", "media"])
def test_a_store_that_cannot_be_written_is_an_error_and_nothing_is_left_in_one_that_can(
    lanebus: CommandLine, tmp_path: Path, what: str
) -> None:
    (tmp_path / "file").write_text("")
    bad = lanebus("doctor", f"--{what}", tmp_path / "file" / "store")
    assert (bad.code, worst(bad.out)) == (7, [(what, None)])
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert worst(lanebus("doctor", f"--{what}", tmp_path / "open").out) == [(what, None)]
    (tmp_path / "own").mkdir(0o700)
    for place in (tmp_path / "own", tmp_path / "missing" / "store"):
        good = lanebus("doctor", f"--{what}", place)
        assert (good.code, levels(good.out)[what]) == (0, "ok")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "open", "own"]


async def test_an_object_store_is_written_only_if_that_is_wanted_and_one_that_does_not_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [(await try_store("media", "memory:///", seconds=60.0, writes=writes)).text for writes in (False, True)]
    assert texts == ["the store answers; --write tries to write to it", "the store can be written, read and cleared"]
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = {"ENDPOINT": address, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "REGION": "r"}
        for name, value in {**settings, "ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        found = await try_store("media", "s3://bucket", seconds=0.2, writes=False)
    assert (found.level, "did not answer within 0.2 s" in found.text) == ("error", True)
    found = await try_store("archive", "nosuch://bucket", seconds=5.0, writes=True)
    assert (found.level, "unknown scheme" in found.text) == ("error", True)


@pytest.mark.full
def test_a_trial_writes_to_a_namespace_of_its_own_and_leaves_no_key(lanebus: CommandLine, valkey: RealServer) -> None:
    assert lanebus("publish", "s", "hi", "--url", valkey.url).code == 0
    keys = keys_of(valkey)
    found = lanebus("doctor", "--write", "--url", valkey.url)
    assert (found.code, found.err, check(found.out, "write")["level"]) == (0, "", "ok")
    assert keys_of(valkey) == keys


@pytest.mark.full
def test_a_replica_that_loses_messages_as_a_primary_is_an_error(lanebus: CommandLine) -> None:
    with at_free_port() as (primary, port):
        bad = ("--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
        with at_free_port("--replicaof", f"127.0.0.1 {port}", *bad) as (replica, other):
            wait_until(lambda: "state=online" in str(primary.do("INFO", "replication")))
            for url in (f"redis://127.0.0.1:{port}", primary.url):
                found = worst(lanebus("doctor", "--url", url).out)
                assert found == [("appendonly", f"127.0.0.1:{other}"), ("maxmemory-policy", f"127.0.0.1:{other}")]
            replica.do("CONFIG", "SET", "requirepass", "secret")
            unknown = lanebus("doctor", "--url", primary.url)
            (line,) = [line for line in objects(unknown.out) if line["check"] == "replica"]
            assert (line["level"], line["node"]) == ("warning", f"127.0.0.1:{other}")
            assert "its settings are unknown" in str(line["text"])


@pytest.mark.full
@pytest.mark.cluster("each of its servers is looked at")
def test_each_server_of_a_cluster_is_named_and_one_that_is_gone_hides_no_other(lanebus: CommandLine) -> None:
    with real_cluster() as cluster:
        cluster.nodes[1].do("CONFIG", "SET", "timeout", "300")
        first, second, third = (f"127.0.0.1:{port}" for port in cluster.ports)
        found = objects(lanebus("doctor", "--write", "--url", cluster.url).out)
        assert [line["node"] for line in found if line["check"] == "timeout"] == [first, second, third]
        assert [line["node"] for line in found if line["level"] == "warning" and line["check"] == "timeout"] == [second]
        assert (found[-1]["check"], found[-1]["level"]) == ("write", "ok"), found[-1]
        assert all(node.do("KEYS", "doctor-*") == [] for node in cluster.nodes)
        cluster.nodes[2].kill()
        gone = lanebus("doctor", "--url", cluster.url).out
        assert worst(gone)[0] == ("server", third)
        assert [line["node"] for line in objects(gone) if line["check"] == "timeout"] == [first, second]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["valkey", pytest.param("redis", marks=pytest.mark.needs("redis-server"))])
def test_too_many_clients_are_told_as_that(lanebus: CommandLine, kind: str) -> None:
    with one_server(kind) as server:
        server.do("CONFIG", "SET", "maxclients", "3")
        with server.talk() as one, server.talk() as two, server.talk() as three:
            for say in (one, two, three):
                assert say("PING") == "PONG"
            found = lanebus("doctor", "--url", server.url)
    last = objects(found.out)[-1]
    assert (found.code, str(last["text"]).endswith("it has too many clients")) == (7, True)
    assert "maxclients" in str(last["remedy"])


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


# --- settings of a server --------------------------------------------------------------------------------------


VALKEY = {"valkey_version": "9.1.2", "redis_version": "7.2.4", "aof_enabled": "1", "role": "master"}
REDIS = {"redis_version": "7.0.15", "aof_enabled": "1", "role": "master"}
SAFE = {"appendfsync": "always", "aof-load-truncated": "yes", "min-replicas-to-write": "0"}
SNAPSHOTS = {**SAFE, "save": "3600 1", "stop-writes-on-bgsave-error": "yes"}


def test_a_replica_that_is_never_promoted_may_lose_messages() -> None:
    facts = ServerFacts({**VALKEY, "role": "slave", "aof_enabled": "0", "maxmemory_policy": "allkeys-lru"}, SAFE)
    assert {each.level for each in check_replica(facts)} == {"error"}
    backup = ServerFacts({**facts.info, "slave_priority": "0"}, SAFE)
    assert [each.level for each in check_replica(backup)] == ["ok"]
    assert [each.level for each in check_replica(ServerFacts(VALKEY, SAFE))] == ["ok"]


@pytest.mark.parametrize(
    ("info", "settings", "check", "level"),
    [
        (VALKEY, SAFE, "aof-load-truncated", "ok"),
        (REDIS, SAFE, "aof-load-truncated", "error"),
        (REDIS, {**SAFE, "aof-load-truncated": "no"}, "aof-load-truncated", "ok"),
        (VALKEY, SAFE, "appendfsync", "ok"),
        (VALKEY, {**SAFE, "appendfsync": "everysec"}, "appendfsync", "warning"),
        (VALKEY, {**SAFE, "appendfsync": "no"}, "appendfsync", "error"),
        (VALKEY, None, "settings", "warning"),
        ({**VALKEY, "aof_enabled": "0"}, SAFE, "appendonly", "error"),
        ({**VALKEY, "maxmemory_policy": "volatile-lru"}, SAFE, "maxmemory-policy", "error"),
        ({**VALKEY, "role": "slave"}, SAFE, "replicas", "error"),
        ({**VALKEY, "connected_slaves": "1"}, SAFE, "replicas", "warning"),
        ({**VALKEY, "connected_slaves": "1"}, {**SAFE, "min-replicas-to-write": "1"}, "replicas", "ok"),
        ({**REDIS, "redis_version": "6.2.1"}, SAFE, "server", "error"),
        ({**VALKEY, "loading": "1"}, SAFE, "server", "error"),
        ({**VALKEY, "maxmemory": "0", "used_memory": "10"}, SAFE, "memory", "ok"),
        ({**VALKEY, "maxmemory": "100", "used_memory": "89"}, SAFE, "memory", "ok"),
        ({**VALKEY, "maxmemory": "100", "used_memory": "90"}, SAFE, "memory", "warning"),
        ({**VALKEY, "maxmemory": "100", "used_memory": "100"}, SAFE, "memory", "error"),
        ({**VALKEY, "maxmemory": "100", "used_memory": "105", "mem_not_counted_for_evict": "16"}, SAFE, "memory", "ok"),
        ({**VALKEY, "aof_last_write_status": "err"}, SAFE, "disk", "error"),
        ({**VALKEY, "aof_last_bgrewrite_status": "err"}, SAFE, "disk", "warning"),
        ({**VALKEY, "rdb_last_bgsave_status": "err"}, SAFE, "disk", "ok"),
        ({**VALKEY, "rdb_last_bgsave_status": "err"}, SNAPSHOTS, "disk", "error"),
        ({**VALKEY, "min_slaves_good_slaves": "0"}, {**SAFE, "min-replicas-to-write": "1"}, "replicas", "error"),
        ({**VALKEY, "min_slaves_good_slaves": "0"}, None, "replicas", "error"),
        ({**VALKEY, "min_slaves_good_slaves": "1"}, {**SAFE, "min-replicas-to-write": "2"}, "replicas", "error"),
        ({**VALKEY, "min_slaves_good_slaves": "2"}, {**SAFE, "min-replicas-to-write": "2"}, "replicas", "ok"),
        ({**VALKEY, "maxclients": "100", "connected_clients": "89"}, SAFE, "clients", "ok"),
        ({**VALKEY, "maxclients": "100", "connected_clients": "90"}, SAFE, "clients", "warning"),
        (VALKEY, {**SAFE, "timeout": "0"}, "timeout", "ok"),
        (VALKEY, {**SAFE, "timeout": "300"}, "timeout", "warning"),
        (VALKEY, {**SAFE, "client-output-buffer-limit": "normal 0 0 0 slave 1 1 60"}, "output buffer", "ok"),
        (VALKEY, {**SAFE, "client-output-buffer-limit": "normal 67108864 0 0"}, "output buffer", "ok"),
        (VALKEY, {**SAFE, "client-output-buffer-limit": "normal 0 33554432 10"}, "output buffer", "warning"),
        (VALKEY, {**SAFE, "client-output-buffer-limit": "normal 1048576 0 0"}, "output buffer", "error"),
        (VALKEY, {**SAFE, "proto-max-bulk-len": "536870912"}, "bulk length", "ok"),
        (VALKEY, {**SAFE, "proto-max-bulk-len": "33554432"}, "bulk length", "warning"),
        (VALKEY, {**SAFE, "proto-max-bulk-len": "1048576"}, "bulk length", "error"),
    ],
)
def test_unsafe_setting_is_found(info: dict[str, str], settings: dict[str, str] | None, check: str, level: str) -> None:
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
def test_clock_that_differs_by_too_much_is_found(times: tuple[float, float, float], level: str, text: str) -> None:
    finding = check_clock(*times)
    assert finding.level == level
    assert text in finding.text


def test_rights_are_checked_for_each_command_of_the_scripts() -> None:
    scripts = (ROOT / "bus/log/scripts").glob("*.lua")
    called = {name for path in scripts for name in re.findall(r"call\('([A-Z]+)'", path.read_text(encoding="utf-8"))}
    assert len(called) > 20
    assert called - {str(command[0]) for command in needed_commands(Keys())} == set()
