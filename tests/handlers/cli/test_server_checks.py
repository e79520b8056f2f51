"""What `lanebus doctor` finds in the settings of a server."""

import re

import pytest

from lanebus.bus.wire import Keys
from lanebus.handlers.cli.server_checks import (
    ServerFacts,
    check_clock,
    check_replica,
    check_server,
    needed_commands,
)
from tests.support.paths import ROOT

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
