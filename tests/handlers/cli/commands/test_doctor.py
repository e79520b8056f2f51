"""`lanebus doctor`: its findings, their remedies and its exit code."""

import socket
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from pydantic import JsonValue

from lanebus.bus.servers import acl_users
from lanebus.handlers.cli.commands.doctor import check_imports, check_versions, try_store
from lanebus.handlers.cli.server_checks import (
    SETTINGS,
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
