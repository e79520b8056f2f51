"""The steps of consumer groups, one function each. All of them may run twice.

Milliseconds stop here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import anyio

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.groups.liveness import Sign
from lanebus.bus.groups.work import Work, by_bucket
from lanebus.bus.log.lease import Lease
from lanebus.bus.log.script import Script, run_script, run_scripts
from lanebus.bus.servers.replies import call_all
from lanebus.bus.wire.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.replies import Calling
    from lanebus.bus.servers.topology import Argument, Pool, Reply
    from lanebus.bus.wire.keys import Keys

__all__ = ("Fetched", "GroupLog", "Mode", "Start")

Mode = Literal["", "own", "sweep"]
"""What a fetch looks at: all; only what is with this consumer and not in hand; all, and who has work."""

Start = Literal["beginning", "now"]
"""Where a group begins that is new: with all sessions that ever woke a worker, or behind them."""

_FETCH, _ACK = Script("group_fetch", shares=("work", "take")), Script("group_ack", shares=("work",))
_RETRY, _DEAD = Script("group_retry", shares=("work",)), Script("group_dead", shares=("work",))
_LEAVE, _BEAT = Script("group_leave", shares=("work",)), Script("group_beat")


_Given = tuple[bytes, bytes, bytes, int, bytes, bytes, int]


class Fetched(NamedTuple):
    """What a fetch from a bucket gave."""

    works: list[Work]
    left: int
    """how much there is, or may be, beside that"""
    due: float | None
    """seconds until open work is due that nobody has; None if there is none"""
    holders: tuple[str, ...]
    """consumers that have work, where that was asked for"""
    is_more_ours: bool = False
    """a sweep: this consumer has work that is not in hand"""


class GroupLog:
    """The steps of one consumer of a group."""

    def __init__(
        self,
        pool: Pool,
        keys: Keys,
        group: str,
        name: str,
        *,
        heartbeat: float,
        bounds: WorkBounds,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
    ) -> None:
        """
        Args:
            heartbeat: seconds after which a silent consumer's work is given to others.
            owner: of the leases that are taken with work, for a heartbeat; "" takes none.
            first_page: of a session, to be read with its lease; None reads none.
        """
        self._pool, self._keys, self._group, self._name = pool, keys, group, name
        self._start, self._owner, self.bounds = start, owner, bounds
        self._first_page = first_page
        self._heartbeat_ms = max(int(heartbeat * 1000), 1)

    async def fetch(
        self,
        link: Calling,
        asked: Mapping[int, int],
        in_hand: Mapping[int, Sequence[str]],
        *,
        mode: Mode = "",
        silent: Mapping[int, Sequence[str]],
        named: Mapping[int, Sequence[str]],
    ) -> dict[int, Fetched]:
        """Fetch work from buckets. A group that is not there is made.

        Args:
            asked: how much to give of each bucket; 0 only counts.
            in_hand: the sessions of each bucket that this consumer has in hand, for the modes "own" and "sweep".
            silent: of each bucket, the consumers whose work is given to others.
            named: of each bucket, the sessions that wake-ups named: their leases are taken with them. Of a single one
                the first page is read too: of several, what they are worked on with is read at the same time anyway.
        """
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        start = "now" if self._start == "now" else ""
        for bucket, most in asked.items():
            sessions = named.get(bucket, ()) if self._owner else ()
            heads = (self._keys.head(session) for session in sessions)
            words: Sequence[Argument] = (most, mode, start, len(silent[bucket]), *silent[bucket])
            leases: Sequence[Argument] = (self._owner, self._heartbeat_ms, len(sessions), *sessions)
            names = (*self._names(bucket), *heads)
            calls.append((names, (*self._who(), *words, *leases, *in_hand.get(bucket, ()))))
        page, now = self._page(named), anyio.current_time()
        replies = await run_scripts(link, _FETCH, calls, page)
        return {bucket: self._fetched(bucket, reply, page, now) for bucket, reply in zip(asked, replies, strict=True)}

    async def ack(self, works: Sequence[Work], seen: Mapping[str, int]) -> None:
        """Done with them.

        Args:
            seen: up to which position sessions were looked at; of others, up to that of the work.
        """
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for bucket, share in by_bucket(works):
            words: list[Argument] = []
            for work in share:
                words += (work.session, work.order, max(seen.get(work.session, 0), work.position))
            calls.append((self._with_heads(bucket, share), (*self._who(), *words)))
        if calls:
            await run_scripts(self._pool, _ACK, calls)

    async def lost(self, works: Sequence[Work]) -> list[Work]:
        """Those that are no longer this consumer's. It changes nothing."""
        shares = by_bucket(works)
        commands = [
            ("HMGET", self._keys.open(bucket, self._group), *(work.session for work in share))
            for bucket, share in shares
        ]
        replies = cast("list[list[bytes | None]]", await call_all(self._pool, commands))
        own, lost = f"{self._name} ".encode(), list[Work]()
        for (_, share), found in zip(shares, replies, strict=True):
            lost += [work for work, text in zip(share, found, strict=True) if not (text or b"").startswith(own)]
        return lost

    async def put_off(self, tried: Sequence[tuple[Work, int]], delay: float, error: str) -> None:
        """Give works again after `delay` seconds, each with how often it was tried."""
        text, ms = _short(error, self.bounds.error_length), max(int(delay * 1000), 0)
        attempts = dict(tried)
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for bucket, share in by_bucket([work for work, _ in tried]):
            words: list[Argument] = []
            for work in share:
                words += (work.session, max(attempts[work], 0), ms, text)
            calls.append((self._names(bucket), (*self._who(), *words)))
        await run_scripts(self._pool, _RETRY, calls)

    async def dead_letter(self, work: Work, reason: str, attempts: int, raw: bytes, seen: int) -> str:
        """Make a dead letter of it; gives its id, or "" if the work is not this consumer's any more."""
        bounds, bucket = self.bounds, work.bucket
        names = (*self._with_heads(bucket, (work,)), self._keys.dead(bucket, self._group))
        arguments = (
            *self._who(),
            *(work.session, work.order, max(seen, work.position), max(attempts, 0)),
            *(_short(reason, bounds.reason_length), raw[: bounds.raw_bytes], len(raw), bounds.dead_letters),
        )
        return cast("bytes", await run_script(self._pool, _DEAD, names, arguments)).decode()

    async def deregister(self) -> int:
        """Hand back all that this consumer has, and forget its name; gives how much it was."""
        calls = [(self._names(bucket), self._who()) for bucket in range(self._keys.buckets)]
        count = sum(cast("list[int]", await run_scripts(self._pool, _LEAVE, calls)))
        await self._beat(0, is_leaving=True)
        return count

    async def beat(self, sessions: int) -> dict[str, Sign]:
        """A sign of life; gives the newest of each consumer.

        Args:
            sessions: how many this consumer has in hand.
        """
        words = await self._beat(sessions, is_leaving=False)
        signs: dict[str, Sign] = {}
        for name, field in zip(words[::2], words[1::2], strict=True):
            count, _, heartbeat, _ = (int(word) for word in field.split(b" "))
            signs[name.decode(errors="replace")] = Sign(count, heartbeat / 1000)
        return signs

    async def _beat(self, sessions: int, *, is_leaving: bool) -> list[bytes]:
        forget = int(self.bounds.forget * 1000)
        arguments = (self._name, self._heartbeat_ms, sessions, forget, "1" if is_leaving else "")
        names = (self._keys.consumers(self._group),)
        return cast("list[bytes]", await run_script(self._pool, _BEAT, names, arguments))

    def _page(self, named: Mapping[int, Sequence[str]]) -> FirstPage | None:
        if self._first_page is None or sum(map(len, named.values())) != 1:
            return None
        return next(self._first_page(session) for sessions in named.values() for session in sessions)

    def _fetched(self, bucket: int, reply: Reply, page: FirstPage | None, asked: float) -> Fetched:
        left, due, holders = cast("tuple[int, int, bytes]", tuple(cast("list[Reply]", reply)[:3]))
        works: list[Work] = []
        given = cast("list[_Given]", cast("list[Reply]", reply)[3:])
        for session, position, order, attempt, error, flags, epoch in given:
            try:
                name = check_session_id(session.decode())
            except (UnicodeDecodeError, InvalidSessionId):
                continue  # somebody else's
            text, lease = error.decode(errors="replace"), Lease(name, self._owner, epoch) if epoch else None
            own = page if lease and page and page.session == name else None
            works.append(Work(name, int(position), bucket, int(order), attempt, text, b"r" in flags, lease, own, asked))
        names = tuple(holders.decode(errors="replace").split())
        return Fetched(works, left, None if due < 0 else due / 1000, names, self._name in names)

    def _names(self, bucket: int) -> tuple[str, ...]:
        return self._keys.group_work(bucket, self._group)

    def _with_heads(self, bucket: int, works: Sequence[Work]) -> tuple[str, ...]:
        return (*self._names(bucket), *(self._keys.head(work.session) for work in works))

    def _who(self) -> tuple[Argument, ...]:
        return (self._group, self._name, *self.bounds.wake_up_trim)


def _short(text: str, length: int) -> str:
    """Its beginning, as any server and any terminal can take it."""
    return text[:length].encode(errors="replace").decode()
