"""The catalog of a namespace: its sessions, the most recently changed first, a page at a time.

The order is that of the heads' `updated`. The first page is read from the newest change notices, if these name enough
sessions. Else the server selects the newest of each bucket, so that a page of 100,000 sessions needs no read of
100,000 heads.
"""

from __future__ import annotations

import base64
import json
import math
from heapq import nsmallest
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, cast

from lanebus.bus.errors import BusError, InvalidCursor, InvalidSessionId
from lanebus.bus.log.batches import batched
from lanebus.bus.log.script import Script, run_scripts
from lanebus.bus.wire.keys import check_agent, check_session_id, is_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.errors import HeadMissing, SessionDamaged
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.replies import Argument

__all__ = ("CatalogCursor", "CatalogPage", "SessionCatalog", "SessionState")

SessionState = Literal["any", "open", "closed", "forked", "trimmed", "archived"]
"""Which sessions to list. A closed session may be forked, trimmed or archived too; "open" means not closed."""

_NEWEST = Script("newest", shares=("damage",))


class CatalogCursor(NamedTuple):
    """A session's place in the list: what follows it, whatever becomes of the session. Its text is opaque, and has the
    form of the cursors of `GET /api/sessions`."""

    time: int
    """time of the session's last append when it was listed, ms"""
    session: str

    def __str__(self) -> str:
        data = json.dumps(["activity", False, -self.time / 1000, self.session], separators=(",", ":"))
        return base64.urlsafe_b64encode(data.encode()).decode("ascii").rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a cursor. Raises InvalidCursor if it is none."""
        try:
            found: object = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
            match found:
                case ["activity", False, (int() | float()) as age, str(session)] if math.isfinite(age):
                    return cls(round(-age * 1000), check_session_id(session))
                case _:
                    pass
        except (ValueError, OverflowError, RecursionError, InvalidSessionId):
            pass
        raise InvalidCursor(text, "use the cursor of the previous page, as it was returned")


class CatalogPage(NamedTuple):
    """A part of the list of sessions."""

    heads: tuple[SessionHead, ...]
    """heads of the page's sessions, the most recently changed first"""
    cursors: tuple[CatalogCursor, ...]
    """the place of each session in the list. A head may be newer: it is read after the place was found"""
    matching: int | None
    """number of all sessions of the agent in the wanted state; None if they were not counted"""
    has_more: bool
    """whether the list continues with older sessions"""
    damaged: tuple[SessionDamaged | HeadMissing, ...] = ()
    """the errors of sessions that are left out because their heads cannot be read, as far as they were looked at"""
    end: CatalogCursor | None = None
    """the place after which the next page begins; None if the list ends here"""


class _Found(NamedTuple):
    """A session and its place in the order."""

    age: int
    """minus the time of the last append, ms"""
    key: str
    session: str


class _Changed(NamedTuple):
    """A session and the time of its newest change notice."""

    time: int
    """ms"""
    session: str


class SessionCatalog:
    """Lists sessions. It writes nothing."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def all(self, bucket: int | None = None, agent: str | None = None) -> list[SessionHead]:
        """Return the heads of sessions, the most recently changed first.

        Args:
            bucket: only the sessions of this bucket; None means all buckets.
            agent: only the sessions of this agent; the heads of others are not read. None means all agents.

        Raises:
            Unavailable: the server cannot be reached.
        """
        heads = await self._log.heads(await self._log.sessions(bucket, agent))
        return sorted(heads, key=lambda head: head.updated, reverse=True)

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the first session ids with a prefix, in alphabetical order, at most `limit`. Raises Unavailable."""
        return nsmallest(limit, (name for name in await self._log.sessions() if name.startswith(prefix)))

    async def newest(
        self, limit: int, *, state: SessionState = "any", agent: str | None = None, after: CatalogCursor | None = None
    ) -> CatalogPage:
        """Return the most recently changed sessions, without erased sessions.

        A session that changes between two pages moves to the beginning: the next page lacks it. No other session is
        left out or repeated, whatever became of the last one of the page before.

        Args:
            limit: most sessions to return, 1 or more.
            state: only sessions in this state.
            agent: only sessions of this agent; the heads of others are not read. None means all agents.
            after: cursor of the last session of the previous page; None begins with the newest.

        Raises:
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        named = None if agent is None else check_agent(agent)
        log, place = self._log, ("", "")
        if after is None:
            page = await self._first_page(limit, state, named)
            if page is not None:
                return page
        else:
            place = (str(after.time), log.keys.head(after.session))
        matching, found, known = 0, list[_Found](), set[str]()
        for buckets in batched(range(log.keys.buckets), log.bounds.buckets):
            names = [await log.sessions(bucket, named) for bucket in buckets]
            known.update(*names)
            chunks = [chunk for bucket in names for chunk in batched(bucket, log.bounds.heads)]
            keys = [log.keys.heads(chunk) for chunk in chunks]
            answers = await self._ask(keys, (state, limit + 1, *place))
            for chunk, chunk_keys, answer in zip(chunks, keys, answers, strict=True):
                matching += answer[0]
                found += (
                    _Found(-time, chunk_keys[index - 1], chunk[index - 1])
                    for index, time in zip(answer[1::2], answer[2::2], strict=True)
                )
        newest = nsmallest(limit + 1, found)
        cursors = [CatalogCursor(-each.age, each.session) for each in newest[:limit]]
        listed = [each.session for each in cursors]
        has_more = len(newest) > limit
        if state == "any" and after is None and not has_more:  # a damaged head may have no readable time
            listed += sorted(known - {*listed})[: log.bounds.heads]
        return _page(await log.each_head(listed), cursors, matching, has_more=has_more)

    async def _first_page(self, limit: int, state: SessionState, agent: str | None) -> CatalogPage | None:
        """Return the newest sessions that the change notices name; None if these are too few for a page.

        A session without a notice among those read changed before the oldest of them. Only sessions that changed later
        than that are listed, as no other session can be newer.
        """
        notices = await self._notices()
        if notices is None:
            return None
        changed, since = notices
        some = changed[: 2 * (limit + 1)]
        since = max([since, *(each.time for each in changed[len(some) : len(some) + 1])])
        heads = await self._log.each_head([each.session for each in some])
        found = [
            head
            for head in sorted(_readable(heads), key=lambda head: (-head.updated, self._log.keys.head(head.session)))
            if round(head.updated * 1000) > since and _is_wanted(head, state, agent)
        ]
        if len(found) <= limit:
            return None
        counts = await self._log.agents() if state == "any" else None
        matching = None if counts is None else sum(counts.values()) if agent is None else counts.get(agent, 0)
        cursors = [CatalogCursor(round(head.updated * 1000), head.session) for head in found[:limit]]
        faults = [head for head in heads if isinstance(head, BusError)]
        return _page([*found[:limit], *faults], cursors, matching, has_more=True)

    async def _notices(self) -> tuple[list[_Changed], int] | None:
        """Return the sessions of the newest change notices, the newest first, and the time before which some may lack.

        None if a bucket has sessions and no notices.
        """
        log, keys = self._log, self._log.keys
        count, since, newest = log.bounds.catalog_notices, 0, dict[str, int]()
        for buckets in batched(range(keys.buckets), log.bounds.buckets):
            commands: list[Sequence[Argument]] = []
            for bucket in buckets:
                commands.append(("XREVRANGE", keys.index(bucket), "+", "-", "COUNT", count))
                commands.append(("HLEN", keys.sessions(bucket)))
            replies = await log.call_shared(commands)
            for reply, fields in zip(replies[::2], replies[1::2], strict=True):
                entries = cast("list[tuple[bytes, list[bytes]]]", reply or [])
                if not entries and fields:
                    return None
                for id, words in entries:
                    if words[0] == b"s" and is_session_id(words[1]):  # else a foreign client wrote it
                        newest.setdefault(words[1].decode(), int(id.partition(b"-")[0]))
                since = max(since, int(entries[-1][0].partition(b"-")[0]) if entries else 0)
        return sorted((_Changed(time, session) for session, time in newest.items()), reverse=True), since

    async def _ask(self, keys: Sequence[Sequence[str]], arguments: Sequence[Argument]) -> list[list[int]]:
        calls = [(each, arguments) for each in keys]
        replies = await run_scripts(self._log.pool, _NEWEST, calls) if calls else []
        return [[int(cast("bytes | int", part)) for part in cast("Sequence[object]", reply)] for reply in replies]


def _page(
    heads: Sequence[SessionHead | SessionDamaged | HeadMissing],
    cursors: Sequence[CatalogCursor],
    matching: int | None,
    *,
    has_more: bool,
) -> CatalogPage:
    """Return a page of the sessions at `cursors`, without those whose heads cannot be read."""
    by_name = {head.session: head for head in _readable(heads)}
    placed = [each for each in cursors if each.session in by_name]
    return CatalogPage(
        tuple(by_name[each.session] for each in placed),
        tuple(placed),
        matching,
        has_more,
        tuple(head for head in heads if isinstance(head, BusError)),
        cursors[-1] if has_more and cursors else None,
    )


def _readable(heads: Sequence[SessionHead | SessionDamaged | HeadMissing]) -> list[SessionHead]:
    return [head for head in heads if not isinstance(head, BusError)]


def _is_wanted(head: SessionHead, state: SessionState, agent: str | None) -> bool:
    """Whether a session is to be listed. scripts/newest.lua decides the same."""
    if head.is_erased or (agent is not None and head.agent != agent):
        return False
    return {
        "any": True,
        "open": not head.is_closed,
        "closed": head.is_closed,
        "forked": head.origin is not None,
        "trimmed": head.trimmed > 0,
        "archived": head.archived > 0,
    }[state]
