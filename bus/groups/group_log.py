"""The script calls of a consumer group, one method each. Each call may be repeated if its reply was lost.

The scripts take milliseconds; the methods take seconds.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import anyio

from lanebus.bus.errors import Refused, is_of_session
from lanebus.bus.hooks import NO_REDACTION, Redaction
from lanebus.bus.log.lease import Lease
from lanebus.bus.log.log import Script, count_in, run_script, run_scripts, send_scripts
from lanebus.bus.servers.calls import answered, call_all
from lanebus.bus.wire.keys import AgentBucket, is_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lanebus.bus.log.log import FirstPage, Log, WorkBounds
    from lanebus.bus.servers.calls import Argument, Calling, Reply
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.wire.keys import Keys


# A work item: a session that a consumer has fetched because the session has something to do.

_TENANT = re.compile(r"[-_]")


class Work(NamedTuple):
    """A work item: a session with entries to process, at least up to `position`. One consumer at a time has the
    session."""

    session: str
    position: int
    """position of the session's newest waking entry at the time of the fetch"""
    bucket: int
    order: int
    """number of the wake-up that the entry at `position` caused. A bucket numbers its wake-ups in ascending order"""
    attempt: int = 1
    """number of deliveries of the work item, including this one. It is above 1 after a consumer died or called
    `nack`"""
    error: str = ""
    """the `error` of the last `Consumer.nack`; "" if no consumer gave the work item back with an error"""
    is_retry: bool = False
    """whether the work item was delayed by `nack` or redriven from a dead letter"""
    lease: Lease | None = None
    """the session's lease, acquired by the fetch. None if the lease was not acquired, for example because another owner
    holds it or `Bus.consumer` got no `owner`"""
    page: FirstPage | None = None
    """the session's first page, read after the lease was acquired; None if the page was not requested"""
    asked: float = 0.0
    """when the fetch was sent, in seconds of the event loop's clock"""
    agent: str = ""
    """the agent that the session belongs to"""

    @property
    def place(self) -> AgentBucket:
        """The bucket and agent from which the work item was fetched."""
        return AgentBucket(self.bucket, self.agent)


class InFlight:
    """The work items that a consumer has fetched and not finished. Keeps only the newest work item of each session."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def add(self, works: Iterable[Work]) -> list[Work]:
        """Add fetched work items and return them as a list.

        A work item replaces an earlier work item of the same session. The server has ended the earlier work item, even
        if the server's reply that says so is late or lost.
        """
        added = list(works)
        self._works.update((work.session, work) for work in added)
        return added

    def drop(self, works: Iterable[Work]) -> None:
        """Remove work items; ignore work items that are not held."""
        for work in works:
            if self._works.get(work.session) == work:
                del self._works[work.session]

    def sessions(self, place: AgentBucket) -> tuple[str, ...]:
        """Return the held sessions of one agent in one bucket."""
        return tuple(work.session for work in self._works.values() if work.place == place)

    def tenants(self) -> str:
        """Return the number of held sessions of each tenant, in the form that scripts/group_fetch.lua reads.

        A session's tenant is its id up to the first "-" or "_". Ids without these characters belong to the tenant "".
        """
        counts = Counter(found[0] if len(found := _TENANT.split(name, 1)) > 1 else "" for name in self._works)
        return ",".join(f"{tenant}:{count}" for tenant, count in counts.items())

    def works(self) -> list[Work]:
        """Return all held work items."""
        return list(self._works.values())


def by_place(works: Sequence[Work]) -> list[tuple[AgentBucket, list[Work]]]:
    """Divide work items by bucket and agent. One script call can handle all work items of a pair. Pure."""
    shares: dict[AgentBucket, list[Work]] = defaultdict(list)
    for work in works:
        shares[work.place].append(work)
    return list(shares.items())


Mode = Literal["", "own", "sweep"]
"""The work items that a fetch looks for.

- "": work items of silent consumers, due work items and new work items
- "own": only work items that the server has assigned to this consumer but that the consumer does not hold
- "sweep": as for "", and the result also has the names of the consumers that have work
"""

Start = Literal["beginning", "now"]
"""Where a new group begins.

- "beginning": with every session that ever woke a worker
- "now": only with sessions that wake a worker after the group was created
"""

_log = logging.getLogger(__name__)

_FETCH, _ACK = Script("group_fetch", shares=("damage", "work", "take")), Script("group_ack", shares=("damage", "work"))
_RETRY, _DEAD = Script("group_retry", shares=("damage", "work")), Script("group_dead", shares=("damage", "work"))
_LEAVE, _BEAT = Script("group_leave", shares=("damage", "work")), Script("group_beat", shares=("damage",))


_Row = tuple[bytes, bytes, bytes, int, bytes, bytes, int]


class Fetched(NamedTuple):
    """The result of a fetch for one agent from one bucket."""

    works: list[Work]
    remaining: int
    """upper bound of the number of work items that wait in the bucket in addition to `works`"""
    due: float | None
    """seconds until the next delayed work item is due; None if no work item is delayed"""
    holders: tuple[str, ...]
    """consumers that have work. Always empty if the fetch had the mode "" and no silent consumers"""
    has_unheld: bool = False
    """whether the server has assigned work items to this consumer that this consumer does not hold. Always False if
    `holders` is always empty"""


class GroupLog:
    """The script calls of one consumer in a group."""

    def __init__(
        self,
        pool: Pool,
        keys: Keys,
        group: str,
        name: str,
        *,
        agents: Sequence[str],
        heartbeat: float,
        bounds: WorkBounds,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        """
        Args:
            agents: the agents whose sessions the consumer fetches.
            heartbeat: seconds without a heartbeat after which other consumers claim this consumer's work items.
            owner: owner of the leases that a fetch acquires for `heartbeat` seconds. "" acquires no leases.
            first_page: returns a session's first page, to read in the same call as its lease. None reads no page.
            redaction: changes the texts of errors before they are stored.
        """
        self._redaction = redaction
        self._pool, self._keys, self._group, self._name = pool, keys, group, name
        self._start, self._owner, self.bounds = start, owner, bounds
        self._first_page = first_page
        self.agents = agents
        self._heartbeat_ms = max(int(heartbeat * 1000), 1)

    async def fetch(
        self,
        connection: Calling,
        limits: Mapping[AgentBucket, int],
        held: Mapping[AgentBucket, Sequence[str]],
        *,
        mode: Mode = "",
        silent: Mapping[AgentBucket, Sequence[str]],
        named: Mapping[AgentBucket, Sequence[str]],
        tenants: str = "",
    ) -> dict[AgentBucket, Fetched]:
        """Fetch work items from buckets. The first fetch creates the group.

        Args:
            connection: where to send the calls.
            limits: for each agent and bucket, the maximum number of work items to fetch. 0 only counts work items.
            held: for each agent and bucket, the sessions that this consumer holds. Needed for the modes "own" and
                "sweep".
            mode: the work items to look for.
            silent: for each agent and bucket, the consumers whose work items may be claimed.
            named: for each agent and bucket, the sessions that wake-ups named. The fetch acquires the leases of these
                sessions. If there is only one session, the fetch also reads its first page. The first pages of several
                sessions are read later, at the same time.
            tenants: how many sessions of each tenant this consumer holds, see `InFlight.tenants`.
        """
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        start = "now" if self._start == "now" else ""
        for place, most in limits.items():
            sessions = named.get(place, ()) if self._owner else ()
            heads = (self._keys.head(session) for session in sessions)
            words: Sequence[Argument] = (most, mode, start, len(silent[place]), *silent[place])
            leases: Sequence[Argument] = (self._owner, self._heartbeat_ms, tenants, len(sessions), *sessions)
            names = (*self._names(place), *heads)
            calls.append((names, (*self._identity(place), *words, *leases, *held.get(place, ()))))
        page, now = self._page(named), anyio.current_time()
        commands = [(_FETCH, _FETCH.command(names, words)) for names, words in calls]
        replies = await send_scripts(connection, commands, page)
        fetched: dict[AgentBucket, Fetched] = {}
        for place, reply in zip(limits, replies, strict=True):
            if isinstance(reply, Refused) and is_of_session(reply):
                _log.error(
                    "the work of the agent %s in bucket %d cannot be fetched: %s", place.agent, place.bucket, reply
                )
                fetched[place] = Fetched([], 0, None, ())
            else:
                fetched[place] = self._fetched(place, answered(reply), page, now)
        return fetched

    async def ack(self, works: Sequence[Work], seen: Mapping[str, int]) -> None:
        """Finish work items.

        Args:
            works: the work items to finish.
            seen: by session, the last position read. A session that is missing was read up to `Work.position`.
        """
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for place, share in by_place(works):
            words: list[Argument] = []
            for work in share:
                words += (work.session, work.order, max(seen.get(work.session, 0), work.position))
            calls.append((self._with_heads(place, share), (*self._identity(place), *words)))
        if calls:
            await run_scripts(self._pool, _ACK, calls)

    async def lost(self, works: Sequence[Work]) -> list[Work]:
        """Return the work items that this consumer has lost. Changes nothing."""
        shares = by_place(works)
        commands = [
            ("HMGET", self._keys.open(*place, self._group), *(work.session for work in share))
            for place, share in shares
        ]
        replies = cast("list[list[bytes | None]]", await call_all(self._pool, commands))
        own, lost = f"{self._name} ".encode(), list[Work]()
        for (_, share), found in zip(shares, replies, strict=True):
            lost += [work for work, text in zip(share, found, strict=True) if not (text or b"").startswith(own)]
        return lost

    async def nack(self, tried: Sequence[tuple[Work, int]], delay: float, error: str) -> None:
        """Give work items back to the group, due in `delay` seconds.

        Args:
            tried: each work item with the number of its attempts.
            delay: seconds until the work items are due.
            error: what went wrong; `Work.error` of the next delivery.
        """
        text, ms = _short(self._redaction.error_text(error), self.bounds.error_length), max(int(delay * 1000), 0)
        attempts = dict(tried)
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for place, share in by_place([work for work, _ in tried]):
            words: list[Argument] = []
            for work in share:
                words += (work.session, max(attempts[work], 0), ms, text)
            calls.append((self._names(place), (*self._identity(place), *words)))
        await run_scripts(self._pool, _RETRY, calls)

    async def dead_letter(self, work: Work, reason: str, attempts: int, raw: bytes, seen: int) -> str:
        """Turn a work item into a dead letter. Return the letter's id, or "" if this consumer has lost the work
        item."""
        bounds, place = self.bounds, work.place
        text = _short(self._redaction.error_text(reason), bounds.reason_length)
        names = (*self._with_heads(place, (work,)), self._keys.dead(place.bucket, self._group))
        arguments = (
            *self._identity(place),
            *(work.session, work.order, max(seen, work.position), max(attempts, 0)),
            *(text, raw[: bounds.raw_bytes], len(raw), bounds.dead_letters),
        )
        letter = cast("bytes", await run_script(self._pool, _DEAD, names, arguments)).decode()
        return f"{place.bucket}:{letter}" if letter else ""

    async def deregister(self) -> int:
        """Give back all work items of this consumer and forget its name. Return the number of these work items."""
        places = [AgentBucket(bucket, agent) for bucket in range(self._keys.buckets) for agent in self.agents]
        calls = [(self._names(place), self._identity(place)) for place in places]
        count = sum(cast("list[int]", await run_scripts(self._pool, _LEAVE, calls)))
        await self._beat(0, is_leaving=True)
        return count

    async def beat(self, sessions: int) -> dict[str, LastHeartbeat]:
        """Send a heartbeat, and return the newest heartbeat of each consumer.

        Args:
            sessions: how many sessions this consumer holds.
        """
        words = await self._beat(sessions, is_leaving=False)
        heartbeats: dict[str, LastHeartbeat] = {}
        for name, field in zip(words[::2], words[1::2], strict=True):
            count, _, heartbeat, *_ = field.split(b" ")
            heartbeats[name.decode(errors="replace")] = LastHeartbeat(count_in(count), count_in(heartbeat) / 1000)
        return heartbeats

    async def _beat(self, sessions: int, *, is_leaving: bool) -> list[bytes]:
        forget = int(self.bounds.forget_seconds * 1000)
        leaving = "1" if is_leaving else ""
        arguments = (self._name, self._heartbeat_ms, sessions, forget, leaving, ",".join(self.agents))
        names = (self._keys.consumers(self._group),)
        return cast("list[bytes]", await run_script(self._pool, _BEAT, names, arguments))

    def _page(self, named: Mapping[AgentBucket, Sequence[str]]) -> FirstPage | None:
        if self._first_page is None or sum(map(len, named.values())) != 1:
            return None
        return next(self._first_page(session) for sessions in named.values() for session in sessions)

    def _fetched(self, place: AgentBucket, reply: Reply, page: FirstPage | None, sent_at: float) -> Fetched:
        remaining, due, holders = cast("tuple[int, int, bytes]", tuple(cast("list[Reply]", reply)[:3]))
        works: list[Work] = []
        rows = cast("list[_Row]", cast("list[Reply]", reply)[3:])
        for session, position, order, attempt, error, flags, epoch in rows:
            if not is_session_id(session):
                continue  # a foreign client wrote this name
            name = session.decode()
            text = error.decode(errors="replace")
            lease = Lease(name, self._owner, epoch, place.agent) if epoch else None
            own = page if lease and page and page.session == name else None
            retry = b"r" in flags
            work = Work(name, int(position), place.bucket, int(order), attempt, text, retry, lease, own, sent_at)
            works.append(work._replace(agent=place.agent))
        names = tuple(holders.decode(errors="replace").split())
        return Fetched(works, remaining, None if due < 0 else due / 1000, names, self._name in names)

    def _names(self, place: AgentBucket) -> tuple[str, ...]:
        return self._keys.group_work(*place, self._group)

    def _with_heads(self, place: AgentBucket, works: Sequence[Work]) -> tuple[str, ...]:
        return (*self._names(place), *(self._keys.head(work.session) for work in works))

    def _identity(self, place: AgentBucket) -> tuple[Argument, ...]:
        return (f"{place.agent}:{self._group}", self._name, *self.bounds.wake_up_trim)


def _short(text: str, length: int) -> str:
    """Return the first `length` characters of `text`. Unpaired surrogates, which UTF-8 cannot encode, are replaced."""
    return text[:length].encode(errors="replace").decode()


# Find the consumers of a group that have fallen silent, without trusting the server's clock.
#
# Each heartbeat of a consumer raises the consumer's count. The observer records on its own monotonic clock when it saw
# a count change. A consumer is silent if its count has not changed for its heartbeat period. Pure: the caller passes in
# the time, in seconds.


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The newest heartbeat of a consumer."""

    count: int
    """how many heartbeats the consumer has sent"""
    seconds: float
    """seconds without another heartbeat after which the consumer is silent"""


@dataclass(slots=True)
class _Observed:
    heartbeat: LastHeartbeat
    since: float


class Liveness:
    """The heartbeats that one consumer has observed of the other consumers in its group."""

    def __init__(self, own: str, heartbeat: float) -> None:
        """
        Args:
            own: name of the observing consumer, which is never silent.
            heartbeat: seconds after which a consumer that has work but never sent a heartbeat is silent.
        """
        self._own, self._unknown = own, LastHeartbeat(-1, heartbeat)
        self._observed: dict[str, _Observed] = {}
        self._holders: dict[str, _Observed] = {}

    def note(self, heartbeats: Mapping[str, LastHeartbeat], now: float) -> None:
        """Record the newest heartbeat of every consumer in the group."""
        observed: dict[str, _Observed] = {}
        for name, heartbeat in heartbeats.items():
            previous = self._observed.get(name)
            if previous is None or previous.heartbeat != heartbeat:
                previous = _Observed(heartbeat, now)
            observed[name] = previous
        self._observed = observed

    def note_holders(self, names: Iterable[str], now: float) -> None:
        """Begin to observe consumers that have work but never sent a heartbeat. They become silent if no heartbeat
        arrives.

        Args:
            names: the consumers that have work.
            now: the present time.
        """
        for name in names:
            if name not in self._observed:
                self._holders.setdefault(name, _Observed(self._unknown, now))

    def restart(self, now: float) -> None:
        """Measure every consumer's silence from `now` on. For use after the server was unreachable, when no consumer
        could send a heartbeat."""
        for observed in (*self._observed.values(), *self._holders.values()):
            observed.since = now

    def silent(self, now: float) -> frozenset[str]:
        """Return the consumers whose work items may be claimed."""
        for name in self._holders.keys() & self._observed.keys():
            del self._holders[name]
        return frozenset(
            name
            for known in (self._observed, self._holders)
            for name, observed in known.items()
            if name != self._own and now - observed.since >= observed.heartbeat.seconds
        )

    def next_silence(self, now: float) -> float | None:
        """Return the seconds until the next consumer becomes silent; None if no other consumer can become silent."""
        left = (
            observed.since + observed.heartbeat.seconds - now
            for known in (self._observed, self._holders)
            for name, observed in known.items()
            if name != self._own
        )
        return min((seconds for seconds in left if seconds > 0), default=None)


_FINISH = Script("finish_recorded")


async def finish_recorded(log: Log, lease: Lease, position: int) -> None:
    """Record that nothing is left to do in a session up to a position, if no worker serves the session's agent.

    Do nothing if a group has fetched work of the agent, if the lease is over, or if a later entry woke the session.

    Args:
        log: the log of the bus.
        lease: the lease under which the work was done, with the session's agent.
        position: position up to which the work is done.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server did not answer.
    """
    keys, session, agent = log.keys, lease.session, lease.agent
    bucket = keys.bucket(session)
    names = (keys.order(bucket, agent), keys.woken(bucket), keys.groups(bucket), keys.head(session))
    await log.run(_FINISH, names, (session, agent, lease.epoch, position))
