"""Have servers rewrite their append-only files, and wait until they have.

A rewrite that is under way when a session is erased may have copied the session already, so only a rewrite that starts
later counts. Each server counts the rewrites that it started. Callers that erase at the same time share one rewrite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from lanebus.bus.errors import Refused, RewriteUnfinished
from lanebus.bus.servers.durability import server_infos

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanebus.bus.log.log import Log

__all__ = ("rewrite_files",)


async def rewrite_files(log: Log) -> None:
    """Have every primary rewrite its append-only file. Return after rewrites that started after this call have ended.

    A primary without an append-only file is left alone.

    Raises:
        RewriteUnfinished: a rewrite failed, or the rewrites took longer than `LogBounds.rewrite_seconds`.
        Refused: the user may not run BGREWRITEAOF or INFO.
        Unavailable: a server cannot be reached.
    """
    bounds = log.bounds
    with anyio.move_on_after(bounds.rewrite_seconds):
        await _rewrite(log)
        return
    raise RewriteUnfinished(f"it took longer than {bounds.rewrite_seconds:g} s")


async def _rewrite(log: Log) -> None:
    earlier: dict[str, int] = {}  # by process of a server: the rewrites that it had started when it was first seen
    was_asked = False
    while True:
        infos = [info for info in (await server_infos(log.pool)).values() if info.get("aof_enabled") == "1"]
        # A server that restarted, or took over, has a file of its own that no rewrite of its predecessor changed.
        due = [info for info in infos if _started(info) <= earlier.setdefault(info["run_id"], _started(info))]
        if not any(map(_is_rewriting, infos)):
            if was_asked and any(info.get("aof_last_bgrewrite_status") != "ok" for info in infos):
                raise RewriteUnfinished("it failed, see the server's log")
            if not due:
                return
            was_asked = True
            if await _ask(log):
                continue  # the next INFO shows it
        await anyio.sleep(log.bounds.rewrite_pause_seconds)


async def _ask(log: Log) -> bool:
    """Ask the servers to start a rewrite. Return whether none refused.

    A server refuses with ERR if another caller was faster or if the rewrite could not start. INFO tells which.
    """
    try:
        await log.call_each("BGREWRITEAOF")
    except Refused as refusal:
        if refusal.code != "ERR":
            raise
        return False
    return True


def _started(info: Mapping[str, str]) -> int:
    return int(info.get("aof_rewrites", "0"))


def _is_rewriting(info: Mapping[str, str]) -> bool:
    return info.get("aof_rewrite_in_progress") == "1" or info.get("aof_rewrite_scheduled") == "1"
