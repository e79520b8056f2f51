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


@pytest.mark.parametrize(
    ("product", "number", "ids"),
    [
        ("Redis", (6, 2, 19), ["CVE-2025-49844", JULY]),
        ("Redis", (6, 2, 20), [JULY]),
        ("Redis", (6, 2, 23), []),
        ("Redis", (7, 0, 15), ["CVE-2025-49844", JULY]),
        ("Redis", (7, 2, 10), ["CVE-2025-49844", JULY]),
        ("Redis", (7, 2, 11), [JULY]),
        ("Redis", (7, 2, 15), []),
        ("Redis", (7, 4, 5), ["CVE-2025-49844", JULY]),
        ("Redis", (7, 4, 10), []),
        ("Redis", (8, 0, 3), ["CVE-2025-49844", JULY]),
        ("Redis", (8, 0, 4), [JULY]),
        ("Redis", (8, 2, 1), ["CVE-2025-49844", JULY]),
        ("Redis", (8, 2, 2), [JULY]),
        ("Redis", (8, 2, 8), []),
        ("Redis", (8, 6, 4), [JULY]),
        ("Redis", (8, 6, 5), []),
        ("Redis", (8, 8, 0), [JULY]),
        ("Redis", (8, 8, 1), []),
        ("Redis", (8, 10, 0), []),
        ("Valkey", (7, 2, 10), ["CVE-2025-49844", "CVE-2026-23479"]),
        ("Valkey", (7, 2, 11), ["CVE-2026-23479"]),
        ("Valkey", (7, 2, 13), []),
        ("Valkey", (8, 0, 5), ["CVE-2025-49844", "CVE-2026-23479"]),
        ("Valkey", (8, 0, 9), []),
        ("Valkey", (8, 1, 3), ["CVE-2025-49844", "CVE-2026-23479"]),
        ("Valkey", (8, 1, 7), []),
        ("Valkey", (9, 0, 2), ["CVE-2026-23479", "CVE-2026-27623"]),
        ("Valkey", (9, 0, 3), ["CVE-2026-23479"]),
        ("Valkey", (9, 0, 4), []),
        ("Valkey", (9, 1, 0), []),
        ("Redis", (0, 0), []),
    ],
)
def test_version_shows_the_holes_of_its_server(product: str, number: tuple[int, ...], ids: list[str]) -> None:
    holes = known_holes(ServerVersion(product, number))
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
