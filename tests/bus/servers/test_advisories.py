"""Server versions with published security holes cause a warning that names a fixed version."""

import logging
import sys

import anyio
import pytest

from lanebus.bus.servers import ServerVersion, known_holes
from lanebus.bus.servers.health import warn_of_advisories
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

JULY = "the security release of Redis of July 2026"
LOGGER = "lanebus.bus.servers.health"


LUA, MEMORY, RESTORE = "CVE-2025-49844", "CVE-2026-23479", "CVE-2026-27623"
VERSIONS = {
    ("Redis", LUA, JULY): "6.2.19 7.0.15 7.2.10 7.4.5 8.0.3 8.2.1",
    ("Redis", JULY): "6.2.20 7.2.11 8.0.4 8.2.2 8.6.4 8.8.0",
    ("Redis",): "6.2.23 7.2.15 7.4.10 8.2.8 8.6.5 8.8.1 8.10.0 0.0",
    ("Valkey", LUA, MEMORY): "7.2.10 8.0.5 8.1.3",
    ("Valkey", MEMORY): "7.2.11 9.0.3",
    ("Valkey", MEMORY, RESTORE): "9.0.2",
    ("Valkey",): "7.2.13 8.0.9 8.1.7 9.0.4 9.1.0",
}


@pytest.mark.parametrize(
    ("product", "number", "ids"),
    [(product, number, ids) for (product, *ids), numbers in VERSIONS.items() for number in numbers.split()],
)
def test_version_shows_the_holes_of_its_server(product: str, number: str, ids: list[str]) -> None:
    holes = known_holes(ServerVersion(product, tuple(map(int, number.split(".")))))
    assert [hole.fault.partition("(")[2].partition(",")[0].partition(")")[0] for hole in holes] == ids
    assert all(hole.remedy.startswith(f"use {product} ") for hole in holes)


def test_hole_is_logged_once_for_each_version(caplog: pytest.LogCaptureFixture) -> None:
    infos = [{"redis_version": version} for version in ("7.2.11", "7.2.12", "7.2.11")]
    with caplog.at_level(logging.WARNING, LOGGER):
        for _ in range(2):
            warn_of_advisories(infos)
    assert [record.getMessage().partition(" has")[0] for record in caplog.records] == ["Redis 7.2.11", "Redis 7.2.12"]
    assert "use Redis 6.2.23, 7.2.15, 7.4.10, 8.2.8, 8.4.5, 8.6.5, 8.8.1, or 8.9 or newer" in caplog.text


async def test_the_embedded_server_has_no_known_hole(valkey: RealServer) -> None:
    with valkey.talk() as say:
        assert known_holes(ServerVersion.of(say.info())) == ()


OPEN = """
import anyio, sys
from lanebus import Bus

async def main():
    async with Bus.open(sys.argv[1]):
        pass

anyio.run(main)
"""


@pytest.mark.full
async def test_opening_a_server_with_a_hole_warns_and_does_not_refuse(one: RealServer) -> None:
    with one.talk() as say:
        holes = known_holes(ServerVersion.of(say.info()))
    # A process of its own, because each version is reported once in a process.
    done = await anyio.run_process([sys.executable, "-c", OPEN, one.url], cwd=ROOT)
    assert done.stderr.decode().splitlines() == [f"{hole.fault}; {hole.remedy}" for hole in holes]
