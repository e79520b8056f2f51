"""A namespace as a whole: the catalog of its sessions, and whether its log was emptied or went back.

A cursor, a projection and a producer notice that *their session* lost entries, see `lineage.py`. But an empty
server has no session to notice it in, and a restored one looks healthy to a process that has just started. So the
namespace's config has two more facts:

- `generation`, a random text, written once with the namespace. Another one means that the namespace was **emptied** and
  begun anew.
- `looks`, a counter that each worker and each server of the page raises every few seconds. A lower count in the same
  generation means that the log was **rolled back**: an older copy was restored, or a crash or failover lost its end.

A process remembers both, and may keep them in a `StateFile` for the next process on its machine. Publishes are not
slower, as they touch neither. The rejected alternatives: INFO's `run_id` changes with each restart that loses nothing,
and a stored time would be overtaken by the first process that looks after a restore, so that the others miss it.

Between two looks of one process, a loss of fewer looks than other processes add meanwhile stays unseen here. On a
cluster, the config is on one primary, and only its loss is seen here. Sessions notice their own losses in both cases.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import time
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nsmallest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, cast

from lanebus.bus.errors import BusError, InvalidCursor, InvalidSessionId, LogEmptied, Refused, SetupError
from lanebus.bus.log.log import Script, batched, count_in, run_scripts
from lanebus.bus.servers.calls import call_all
from lanebus.bus.wire.keys import check_agent, check_session_id, is_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.errors import HeadMissing, SessionDamaged
    from lanebus.bus.log.log import Log, SessionHead
    from lanebus.bus.servers.calls import Argument
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.storage.blobs import StateFile
    from lanebus.bus.wire.keys import Keys


SCHEMA = 3
"""The version of the stored form that this package writes."""

BEGINS: ContextVar[bool] = ContextVar("lanebus_begins", default=True)
"""Whether opening a bus begins a namespace that is missing. Commands that only read leave it missing: otherwise a
misspelt name would look like a namespace without sessions from then on."""

LossKind = Literal["emptied", "rolled_back"]

_log = logging.getLogger(__name__)

_FIELDS = ("schema", "generation", "looks", "looked", "accepted", "lost")
_LOST = re.compile(rb"(emptied|rolled_back)((?: [0-9]{1,13}){4})")


class SeenLog(NamedTuple):
    """What a process knows of the namespace's log since its last look."""

    generation: str
    looks: int
    looked: int
    """when a process last looked, by its clock, milliseconds"""


class LogLoss(NamedTuple):
    """A loss of the namespace's log."""

    kind: LossKind
    seen: int
    """the number of looks of the log that was known"""
    found: int
    """the number of looks of the log that the server has now"""
    seen_at: int
    """when the log that was known was last looked at, milliseconds"""
    found_at: int
    """when the log that the server has now was last looked at before the loss, milliseconds; 0 if unknown"""

    @property
    def text(self) -> str:
        """What is lost, in words for people."""
        until = f", which was here at {moment_of(self.seen_at) or 'an unknown time'},"
        if self.kind == "emptied":
            return f"the log was emptied: the one that was known{until} is gone, and another one began in its place"
        of = moment_of(self.found_at) or "an unknown time"
        return f"the log is an older copy, of {of}: the one that was known{until} had more"

    def remedy(self, namespace: str) -> str:
        """What to do about it, in words for people."""
        accept = f"`lanebus namespace accept --namespace {namespace}`"
        if self.kind == "emptied":
            return LogEmptied(namespace).remedy
        return f"restore a newer backup if there is one; to acknowledge the loss, run {accept}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNamespace:
    """The facts of a namespace's config that show a loss. Those that are missing or damaged are "", 0 or None."""

    exists: bool = False
    generation: str = ""
    looks: int = 0
    looked: int = 0
    accepted: str = ""
    lost: LogLoss | None = None
    """the loss that a process has recorded, unless a person has accepted it"""

    @classmethod
    def parse(cls, fields: Sequence[bytes | None]) -> StoredNamespace:
        """Return the facts in the values of `_FIELDS`."""
        schema, generation, looks, looked, accepted, lost = fields
        recorded = _LOST.fullmatch(lost or b"")
        loss = None
        if recorded is not None:
            loss = LogLoss(cast("LossKind", recorded[1].decode()), *map(int, recorded[2].split()))
        return cls(
            exists=schema is not None,
            generation=(generation or b"").decode(errors="replace"),
            looks=count_in(looks),
            looked=count_in(looked),
            accepted=(accepted or b"").decode(errors="replace"),
            lost=loss,
        )

    @property
    def is_accepted(self) -> bool:
        """Whether a person has accepted this generation in place of an earlier one."""
        return bool(self.generation) and self.accepted == self.generation


def moment_of(milliseconds: int) -> str:
    """Return a time in ISO 8601, UTC, to the second; "" if it is 0 or cannot be one."""
    try:
        return datetime.fromtimestamp(milliseconds // 1_000, UTC).isoformat() if milliseconds else ""
    except (OverflowError, ValueError, OSError):
        return ""


def loss_of(known: SeenLog | None, stored: StoredNamespace) -> LogLoss | None:
    """Return the loss that a process sees; None if there is none. Pure.

    Args:
        known: what the process knows; None if neither it nor an earlier process of its machine has looked. Such a
            process believes what another one has recorded of an emptied log.
        stored: what the server has.
    """
    if known is None:
        is_believed = stored.lost is not None and stored.lost.kind == "emptied"
        return stored.lost if is_believed else None
    times = (known.looks, stored.looks, known.looked, stored.looked)
    if not stored.exists or stored.generation not in {"", known.generation}:
        return None if stored.is_accepted else LogLoss("emptied", *times)
    # Without a generation, this is a copy of the time before there were any: an older one, too.
    if stored.looks >= known.looks:
        return None
    loss = LogLoss("rolled_back", *times)
    if stored.looked > known.looked:  # by a process that looked after the loss; one that found it has kept the time
        loss = loss._replace(found_at=stored.lost.found_at if stored.lost is not None else 0)
    return loss


class NamespaceLog:
    """What one process knows of the namespace's log: looks at it, and tells of losses. One for each bus."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            log: the namespace's log. While it is emptied, its publishes are refused.
            clock: returns the time in seconds UTC, for the times that people are told.
        """
        self._log, self._clock = log, clock
        self._known: SeenLog | None = None
        self._state: StateFile | None = None
        self._may_write, self._has_seen = True, False
        self.losses: Counter[LossKind] = Counter({"emptied": 0, "rolled_back": 0})
        """how many losses of each kind the looks of this process have found"""

    @property
    def name(self) -> str:
        """The prefix of all keys."""
        return self._log.keys.namespace

    @property
    def emptied(self) -> LogEmptied | None:
        """The error with which publishes are refused; None unless a look found that the log was emptied."""
        return LogEmptied(self.name) if self._log.is_emptied else None

    async def remember(self, state: StateFile) -> None:
        """Begin with what earlier processes of this machine have seen, and keep there what the looks see.

        If the file cannot be used, a warning is logged, and the process remembers in its memory only.

        Args:
            state: the file.
        """
        try:
            values = await state.read()
        except SetupError as error:
            self.warn(error)
            return
        self._state = state
        match values:
            case {"generation": str() as generation, "looks": int() as looks, "looked": int() as looked}:
                self._known = SeenLog(generation, looks, looked)
            case _:
                pass

    async def look(self) -> LogLoss | None:
        """Compare the log with what is known. Return a loss that this call found, and None if it was found before.

        An emptied log is not adopted before a person accepts it: its `emptied` refuses publishes until then, and the
        known log may still be restored. An older copy is adopted once it was told. If a running process finds a loss,
        it records it in the namespace, for processes that have never seen the lost log.

        Raises:
            Refused: the server's user may not read the config.
            Unavailable: the server did not answer. A cancelled or unanswered look may have raised the counter.
        """
        stored = await self._read()
        loss = loss_of(self._known, stored)
        if loss is None or loss.kind == "rolled_back":
            if loss is not None:
                await self._write((self._record(loss),))
            await self._adopt(stored)
            self._log.is_emptied = False
        elif self._log.is_emptied:
            return None
        else:
            if self._has_seen:  # a state file proves less: another server may have got the address of the known one
                await self._write((*_begin(self._log.keys), self._record(loss)))
            self._log.is_emptied = True
        if loss is not None:
            self.losses[loss.kind] += 1
        return loss

    async def unaccepted(self) -> tuple[LogLoss, ...]:
        """Return the losses that no person has accepted: the recorded one, and the one that the state file shows.

        Nothing is written.

        Raises:
            Unavailable: the server did not answer.
        """
        stored = await self._read()
        found = [loss for loss in (stored.lost, loss_of(self._known, stored)) if loss is not None]
        return tuple({loss.kind: loss for loss in reversed(found)}.values())

    async def accept(self) -> tuple[LogLoss, ...]:
        """Accept the log that the server has, in place of any that a process knew. Return the accepted losses.

        Raises:
            Refused: the server's user may not write.
            Unavailable: the server did not answer.
        """
        losses, config = await self.unaccepted(), self._log.keys.config
        await call_all(self._log, _begin(self._log.keys))
        stored = await self._read()
        behind = max((loss.seen for loss in losses if loss.kind == "rolled_back"), default=0) - stored.looks
        if behind > 0:  # state files of other machines know the higher count
            await self._log.call("HINCRBY", config, "looks", behind)
        await call_all(self._log, [("HSET", config, "accepted", stored.generation), ("HDEL", config, "lost")])
        self._log.is_emptied = False
        return losses

    async def _read(self) -> StoredNamespace:
        fields = await self._log.call("HMGET", self._log.keys.config, *_FIELDS)
        return StoredNamespace.parse(cast("Sequence[bytes | None]", fields))

    async def _adopt(self, stored: StoredNamespace) -> None:
        """Raise the counter, and remember what it is then."""
        config, now = self._log.keys.config, int(self._clock() * 1_000)
        generation = stored.generation or (self._known.generation if self._known else "")
        if not stored.generation and await self._write(
            [("HSETNX", config, "generation", generation or token_urlsafe(9))]
        ):
            generation = (await self._read()).generation  # another process may have been first
        looks = stored.looks
        match await self._write((("HINCRBY", config, "looks", 1), ("HSET", config, "looked", now))):
            case [int() as looks, *_] if looks <= stored.looks:
                return  # the log went back in between; the next look tells of it
            case _:
                pass
        if not generation:
            return  # a user that may only read, in a namespace of an earlier version
        self._known, self._has_seen = SeenLog(generation, looks, now), True
        if self._state is not None:
            try:
                await self._state.write({"namespace": self.name, **self._known._asdict()})
            except SetupError as error:
                self._state = None
                self.warn(error)

    async def _write(self, commands: Sequence[Sequence[Argument]]) -> Sequence[object]:
        """Send commands. A user without the right to write can only compare, and is asked once."""
        if not self._may_write:
            return ()
        try:
            return await call_all(self._log, commands)
        except Refused as refusal:
            if refusal.code != "NOPERM":
                raise
            self._may_write = False
            return ()

    def _record(self, loss: LogLoss) -> Sequence[Argument]:
        text = f"{loss.kind} {loss.seen} {loss.found} {loss.seen_at} {loss.found_at}"
        return ("HSETNX", self._log.keys.config, "lost", text)

    def warn(self, error: SetupError) -> None:
        """Log that only this process's memory knows which log it has seen, and why."""
        _log.warning("a lost log is noticed only while a process runs: %s", error)


def _begin(keys: Keys) -> Sequence[Sequence[Argument]]:
    """Return the commands that begin a namespace, unless it has begun."""
    return (
        ("HSETNX", keys.config, "buckets", keys.buckets),
        ("HSETNX", keys.config, "generation", token_urlsafe(9)),
        ("HSETNX", keys.config, "schema", SCHEMA),
    )


async def begin_namespace(pool: Pool, keys: Keys) -> tuple[bytes, bytes, bytes | None]:
    """Return the namespace's number of buckets, its schema and its default agent. Begin the namespace if it is missing,
    unless `BEGINS` is False.

    They are read first, so that a user without the right to write can open a bus.

    Args:
        pool: connections to the servers.
        keys: the names of the keys. A new namespace gets their number of buckets.

    Raises:
        Refused: the server's user may not read the config, or may not begin the namespace.
        Unavailable: the server did not answer.
    """
    while True:
        reply = cast("list[bytes | None]", await pool.call("HMGET", keys.config, "buckets", "schema", "agent"))
        match reply:
            case [bytes() as buckets, bytes() as schema, agent]:
                return buckets, schema, agent
            case [None, None, agent] if not BEGINS.get():
                return str(keys.buckets).encode(), str(SCHEMA).encode(), agent
            case _:
                for command in _begin(keys):
                    await pool.call(*command)


# The catalog of a namespace: its sessions, the most recently changed first, a page at a time.
#
# The order is that of the heads' `updated`. The first page is read from the newest change notices, if these name enough
# sessions. Else the server selects the newest of each bucket, so that a page of 100,000 sessions needs no read of
# 100,000 heads.

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
