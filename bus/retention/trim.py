"""Trim a session: remove its oldest entries from both lanes, if no holder needs them.

A long trim runs in small steps, so that it never blocks the server for long. Each step is atomic, so the head and the
streams always agree. If a trim is interrupted, the entries of its completed steps are trimmed and the others are kept.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import (
    CursorTrimmed,
    EntriesMissing,
    ForgedEntry,
    LogRolledBack,
    SessionErased,
    TrimRefused,
    WrongAgent,
)
from lanebus.bus.log.log import Script
from lanebus.bus.log.reading import read_pages
from lanebus.bus.messages.events import AgentStarted
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import VERSION, Selection, seed_of
from lanebus.bus.wire.envelope import Cursor
from lanebus.bus.wire.keys import DEFAULT_AGENT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.calls import Argument
    from lanebus.bus.wire.envelope import Envelope


TRIMMED = "session.trimmed"
"""the kind of the extension message that a forced trim appends"""

_TRIM = Script("trim", shares=("damage", "proofs"))

_FARTHEST = 10**15
"""Lua numbers are exact up to this number. No session has so many entries."""


class Trimmed(NamedTuple):
    """The result of `Session.trim`: what was trimmed, or what would be trimmed if `dry_run` was given."""

    entries: int
    """number of trimmed entries of both lanes"""
    size_bytes: int
    """bytes of JSON of the trimmed messages"""
    first_kept: int
    """the first position that is kept. It is below `before` if a new holder, such as a fork, ended the trim early"""
    holders: Mapping[str, int]
    """the readers, forks and other holders that need some of the trimmed entries; `force` trims these entries
    nevertheless. Name, see `TrimRefused` → the position up to which the holder needs no entries"""


class _Answer(NamedTuple):
    outcome: str
    keep: int
    trimmed: int
    entries: int
    bytes: int
    holders: dict[str, int]
    agent: str


async def trim(
    log: Log,
    session: str,
    before: int,
    *,
    force: bool = False,
    dry_run: bool = False,
    holders: Mapping[str, int] | None = None,
    agent: str | None = None,
    known: Collection[str] | None = None,
) -> Trimmed:
    """See `Session.trim`.

    Args:
        log: the log.
        session: id of the session.
        before: first position to keep.
        force: trim even if holders need the entries.
        dry_run: change nothing.
        holders: more holders, besides those that the server knows: name → last position that the holder does not need.
        agent: the agent that the session must belong to; None means any.
        known: names of the forks that `force` may take entries from; None means any.
    """
    more, allowed = json.dumps(dict(holders or {})), "" if known is None else json.dumps(dict.fromkeys(known, True))
    mode = "look" if dry_run else "force" if force else "trim"
    keep, done, entries, size, attempts = min(max(before, 1), _FARTHEST), 0, 0, 0, 0
    found: dict[str, int] = {}
    believed = agent or DEFAULT_AGENT  # a guess, mostly right
    while True:
        answer = await _step(
            log,
            session,
            mode=mode,
            keep=keep,
            start=done + 1,
            announced=found,
            agent=believed,
            more=more,
            known=allowed,
        )
        if answer.outcome == "agent":
            if agent is not None:
                raise WrongAgent(session, agent, answer.agent)
            believed = answer.agent  # its order is among the keys of the next attempt
            continue
        if answer.outcome == "erased":
            raise SessionErased(session)
        if answer.outcome == "forged":
            ids = await log.quarantine(session, Lane.EXTENSION)
            attempts += 1
            if attempts > log.bounds.quarantine_attempts:
                raise ForgedEntry(f"{session}:{Lane.EXTENSION}", f"{ids}", "in the way of the note of a trim")
            continue
        found |= answer.holders
        if answer.outcome == "held" and not entries:
            raise TrimRefused(session, answer.keep, answer.holders)
        keep, done, entries, size = answer.keep, answer.trimmed, entries + answer.entries, size + answer.bytes
        if answer.outcome == "held" or answer.trimmed >= keep - 1:
            return Trimmed(entries, size, answer.trimmed + 1, found)


async def _step(
    log: Log,
    session: str,
    *,
    mode: str,
    keep: int,
    start: int,
    announced: Mapping[str, int],
    agent: str,
    more: str,
    known: str,
) -> _Answer:
    """Run one step of a trim.

    Args:
        log: the log.
        session: id of the session.
        mode: "trim", "force", or "look". "look" changes nothing.
        keep: first position to keep.
        start: position to start at, used only by "look".
        announced: holders that an earlier `session.trimmed` message of this trim has named.
        agent: the agent that the session is believed to belong to.
        more: holders that the server does not know, as JSON.
        known: forks that "force" may take entries from, as the keys of a JSON object; "" means any.
    """
    keys = log.keys
    bucket = keys.bucket(session)
    names = (
        keys.head(session),
        keys.lane(session, Lane.LLM),
        keys.lane(session, Lane.EXTENSION),
        *(keys.checkpoints(session), keys.index(bucket), keys.sessions(bucket)),
        *(keys.order(bucket, agent), keys.woken(bucket), keys.groups(bucket)),
    )
    bounds = log.bounds
    words: Sequence[Argument] = (session, keep, mode, start, token_urlsafe(6), VERSION, token_urlsafe(6))
    words = (*words, *log.work.notice_trim, bounds.incarnations)
    words = (*words, bounds.trim_entries, bounds.trim_bytes, bounds.trim_chunk)
    words = (*words, seed_of(VERSION, "log", Lane.EXTENSION), agent, more, known)
    reply = await log.run(_TRIM, names, (*words, *announced))
    return _Answer(**json.loads(cast("bytes", reply)))


_CONTEXT = Selection.of({Lane.LLM})
_LOOPS = Selection.of({Lane.EXTENSION}, {AgentStarted.KIND})


async def context_holder(log: Log, session: str, before: int) -> Mapping[str, int]:
    """Return the entries that the workers of a session's agent still need, as `{"a:<agent>": position}`.

    The workers need the entries after this position. The mapping is empty if they need no entries.

    A worker without the session in memory reads the LLM lane from its first entry. The workers need no entry if no
    worker has run a loop in the session, or if the context is already incomplete.

    Args:
        log: the log.
        session: id of the session.
        before: first position to keep.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    while True:
        head = await log.head(session)
        own = head.own_start.position
        # A worker takes the lease before it runs a loop. Sessions without one are not searched.
        if not head.epoch or head.trimmed_llm > max(head.archived, own):
            return {}
        start = max(head.trimmed, own)
        try:
            first = await _first(log, session, _CONTEXT, start, before - 1)
            if first is None:
                return {}
            # The start of a loop may be in the archive alone. The archive is not searched: a loop is assumed.
            is_assumed = head.trimmed > own and head.archived > own
            if not is_assumed and await _first(log, session, _LOOPS, start, None) is None:
                return {}
        except EntriesMissing:  # the context is incomplete, and stays so
            return {}
        except (CursorTrimmed, LogRolledBack):  # another client trimmed meanwhile
            continue
        return {f"a:{head.agent}": first.position - 1}


async def _first(log: Log, session: str, selection: Selection, start: int, until: int | None) -> Envelope | None:
    """Return the first selected entry after one position and up to another position; None if no entry is selected."""
    async with aclosing(read_pages(log, session, selection, Cursor(start), until)) as pages:
        async for page in pages:
            if page.envelopes:
                return page.envelopes[0]
    return None
