"""Warn of server versions with published security holes. The list holds only holes whose fixed versions are known.

A distribution may fix a hole and keep the version, so a server is not refused.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.servers.durability import ServerVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ("KnownHole", "known_holes", "warn_of_advisories")

_log = logging.getLogger(__name__)


class _Advisory(NamedTuple):
    product: str
    """"Valkey" or "Redis\""""
    ids: str
    effect: str
    since: tuple[int, int]
    """the first release line with the hole"""
    fixed: Mapping[tuple[int, int], int]
    """by release line, the first patch with the fix"""
    newer: tuple[int, int]
    """the first release line in which every patch has the fix"""


_LUA = "CVE-2025-49844, CVE-2025-46817, CVE-2025-46818, CVE-2025-46819"
_LUA_EFFECT = "a client that may run scripts can take over the server"

_MAY = "CVE-2026-23479, CVE-2026-25243, CVE-2026-23631"
_JULY = "the security release of Redis of July 2026"

_ADVISORIES = (
    _Advisory("Redis", _LUA, _LUA_EFFECT, (0, 1), {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2}, (8, 4)),
    _Advisory("Valkey", _LUA, _LUA_EFFECT, (0, 1), {(7, 2): 11, (8, 0): 6, (8, 1): 4}, (9, 0)),
    _Advisory(
        "Redis",
        _JULY,
        "a client may run code of its own in the server",
        (0, 1),
        {(6, 2): 23, (7, 2): 15, (7, 4): 10, (8, 2): 8, (8, 4): 5, (8, 6): 5, (8, 8): 1},
        (8, 9),
    ),
    _Advisory(
        "Valkey",
        _MAY,
        "a client may read or destroy the server's memory",
        (0, 1),
        {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4},
        (9, 1),
    ),
    _Advisory(
        "Valkey", "CVE-2026-27623", "a client without a password can end the server", (9, 0), {(9, 0): 3}, (9, 1)
    ),
)


class KnownHole(NamedTuple):
    """A published security hole of a server's version."""

    fault: str
    remedy: str


def known_holes(version: ServerVersion) -> tuple[KnownHole, ...]:
    """Return the known holes of a version."""
    return tuple(
        KnownHole(
            f"{version} has known security holes ({each.ids}): {each.effect}",
            f"use {_fixed(each)}, or a package into which your distribution ported the fix",
        )
        for each in _ADVISORIES
        if each.product == version.name
        and version.number[:2] >= each.since
        and not version.has_fix(each.fixed, newer=each.newer)
    )


def warn_of_advisories(infos: Iterable[Mapping[str, str]]) -> None:
    """Log a warning for each known hole of the servers, once in this process for each version.

    Args:
        infos: INFO of each server.
    """
    for info in infos:
        _warn(ServerVersion.of(info))


@cache
def _warn(version: ServerVersion) -> None:
    for hole in known_holes(version):
        _log.warning("%s; %s", hole.fault, hole.remedy)


def _fixed(advisory: _Advisory) -> str:
    versions = [f"{major}.{minor}.{patch}" for (major, minor), patch in sorted(advisory.fixed.items())]
    return f"{advisory.product} {', '.join(versions)}, or {'.'.join(map(str, advisory.newer))} or newer"
