"""The steps of consumer groups, one function each, as `bus/log.py` has those of the log. All of them may run twice.

Milliseconds stop here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from bus.errors import InvalidSessionId, Refused
from bus.head import answered
from bus.keys import check_session_id
from bus.log import Script
from bus.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bus.connection import Argument, Pool, Reply
    from bus.keys import Keys

__all__ = ("Beat", "Calling", "GroupLog", "Looked", "run_scripts")

ERROR_LENGTH = 500
"""characters that are kept of why work was put off"""

REASON_LENGTH = 2_000
"""characters that are kept of why work was set aside"""

RAW_BYTES = 16_384
"""bytes that a dead letter keeps of what was at fault"""

DEAD_LETTERS = 250
"""dead letters that are kept in a bucket, the newest"""

FORGET_SECONDS = 86_400.0
"""how long a consumer is listed that fell silent"""

_LOOK, _KEEP, _DONE = Script("group_look"), Script("group_keep"), Script("group_done")
_RETRY, _DEAD, _LEAVE, _BEAT = Script("group_retry"), Script("group_dead"), Script("group_leave"), Script("group_beat")


class Calling(Protocol):
    """What sends several commands at once: a link, or a pool of them."""

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | Refused]:
        """Their answers, in their order."""
        ...


class Looked(NamedTuple):
    """What a look into a bucket gave of work that is not new."""

    works: list[Work]
    left: int
    """how much there is beside that"""
    due: float | None
    """seconds until work that was put off is due; None if none is"""


class Beat(NamedTuple):
    """What a sign of life gave."""

    silent: int
    """consumers that have fallen silent a short time ago"""
    alive: int
    nearest: float | None
    """seconds until another one would count as silent; None if there is no other"""


class GroupLog:
    """The steps of one consumer of a group."""

    def __init__(self, pool: Pool, keys: Keys, group: str, name: str, heartbeat: float) -> None:
        """`heartbeat`: seconds after which a silent consumer's work is given to others."""
        self._pool, self._keys, self._group, self._name = pool, keys, group, name
        self.group = group
        self.reader: tuple[Argument, ...] = ("GROUP", group, name)
        """as which new pointers are read"""
        self._heartbeat_ms = max(int(heartbeat * 1000), 1)

    async def look(
        self,
        link: Calling,
        asked: Mapping[int, int],
        in_hand: Mapping[int, Sequence[str]],
        *,
        own: bool = False,
        note: bool = False,
        forget_idle: float | None = None,
    ) -> dict[int, Looked]:
        """Look into buckets for work that is not new. A group that is not there is made.

        Args:
            asked: how much to give of each bucket; 0 only counts.
            in_hand: the pointers of each bucket that this consumer has in hand.
            own: also what is pending with this consumer, whatever its age.
            note: note how far the group is.
            forget_idle: seconds after which consumers with nothing pending are forgotten.
        """
        forget = "" if forget_idle is None else int(forget_idle * 1000)
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for bucket, most in asked.items():
            names = (*self._names(bucket), self._keys.groups(bucket))
            arguments = (self._group, self._name, self._heartbeat_ms, most, "1" if own else "", "1" if note else "")
            calls.append((names, (*arguments, forget, *in_hand.get(bucket, ()))))
        replies = await run_scripts(link, _LOOK, calls)
        return {bucket: _looked(bucket, reply) for bucket, reply in zip(asked, replies, strict=True)}

    async def ack(self, works: Sequence[Work]) -> None:
        """Done with them."""
        commands: list[Sequence[Argument]] = []
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for bucket, share in _by_bucket(works):
            if rung := [work.pointer for work in share if not work.is_retry]:
                commands.append(("XACK", self._keys.index(bucket), self._group, *rung))
            if retried := [work.pointer for work in share if work.is_retry]:
                calls.append((self._names(bucket)[1:], (self._group, self._name, *retried)))
        for reply in await self._pool.call_many(commands) if commands else ():
            answered(reply)
        if calls:
            await run_scripts(self._pool, _DONE, calls)

    async def ack_dull(self, dull: Mapping[str, Sequence[str]]) -> None:
        """Done with pointers that ring nobody, by their stream."""
        for reply in await self._pool.call_many([("XACK", name, self._group, *ids) for name, ids in dull.items()]):
            answered(reply)

    async def keep(self, works: Sequence[Work]) -> list[Work]:
        """Still at them; gives those that are no longer this consumer's."""
        shares = list(_by_bucket(works))
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for bucket, share in shares:
            pairs = [word for work in share for word in (work.pointer, "r" if work.is_retry else "")]
            calls.append((self._names(bucket), (self._group, self._name, self._heartbeat_ms, *pairs)))
        lost: list[Work] = []
        for (_, share), reply in zip(shares, await run_scripts(self._pool, _KEEP, calls), strict=True):
            pointers = {pointer.decode() for pointer in cast("list[bytes]", reply)}
            lost += [work for work in share if work.pointer in pointers]
        return lost

    async def put_off(self, tried: Sequence[tuple[Work, int]], delay: float, error: str) -> None:
        """Give works again after `delay` seconds, each with how often it was tried."""
        text = _short(error, ERROR_LENGTH)
        attempts = dict(tried)
        calls: list[tuple[Sequence[str], Sequence[Argument]]] = []
        for bucket, share in _by_bucket(attempts):
            arguments: list[Argument] = [self._group, self._name]
            for work in share:
                arguments += (work.pointer, work.session, work.position, max(attempts[work], 0))
                arguments += (max(int(delay * 1000), 0), text, "r" if work.is_retry else "")
            calls.append(((*self._names(bucket), *(self._keys.head(work.session) for work in share)), arguments))
        await run_scripts(self._pool, _RETRY, calls)

    async def set_aside(self, work: Work, reason: str, attempts: int, raw: bytes) -> str:
        """Make a dead letter of it; gives its id, or "" if the work is not this consumer's any more."""
        keys, bucket = self._keys, work.bucket
        names = (*self._names(bucket), keys.dead(bucket, self._group), keys.groups(bucket), keys.head(work.session))
        arguments = (
            *(self._group, self._name, work.pointer, work.session, work.position, max(attempts, 0)),
            *(_short(reason, REASON_LENGTH), raw[:RAW_BYTES], len(raw), "r" if work.is_retry else "", DEAD_LETTERS),
        )
        (reply,) = await run_scripts(self._pool, _DEAD, [(names, arguments)])
        return cast("bytes", reply).decode()

    async def leave(self) -> int:
        """Hand back all that is pending with this consumer, and forget its name; gives how much it was."""
        count, left = 0, list(range(self._keys.buckets))
        while left:
            calls = [(self._names(bucket), (self._group, self._name)) for bucket in left]
            replies = cast("list[list[int]]", await run_scripts(self._pool, _LEAVE, calls))
            count += sum(found for found, _ in replies)
            left = [bucket for bucket, (_, is_more) in zip(left, replies, strict=True) if is_more]
        await self._beat(0, 0, is_leaving=True)
        return count

    async def beat(self, sessions: int, window: float) -> Beat:
        """A sign of life.

        Args:
            sessions: how many this consumer has in hand.
            window: seconds for which a consumer that fell silent is told of.
        """
        silent, alive, nearest = await self._beat(sessions, int(window * 1000), is_leaving=False)
        return Beat(silent, alive, None if nearest < 0 else nearest / 1000)

    async def _beat(self, sessions: int, window_ms: int, *, is_leaving: bool) -> list[int]:
        names = (self._keys.alive(self._group), self._keys.consumers(self._group))
        arguments = (self._name, self._heartbeat_ms, sessions, window_ms, int(FORGET_SECONDS * 1000))
        call = (names, (*arguments, "1" if is_leaving else ""))
        (reply,) = await run_scripts(self._pool, _BEAT, [call])
        return cast("list[int]", reply)

    def _names(self, bucket: int) -> tuple[str, str, str]:
        keys = self._keys
        return keys.index(bucket), keys.retry(bucket, self._group), keys.retries(bucket)


async def run_scripts(
    link: Calling, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]
) -> list[Reply]:
    """Run a script several times, each with its keys and arguments, in one round trip. All of them may run twice.

    Raises:
        Refused, Unavailable: as for `Link.call`; some of them may have been carried out.
    """
    commands = [script.command(keys, arguments) for keys, arguments in calls]
    replies = await link.call_many(commands)
    again = [at for at, reply in enumerate(replies) if isinstance(reply, Refused) and reply.code == "NOSCRIPT"]
    if again:
        others = await link.call_many([("EVAL", script.text, *commands[at][2:]) for at in again])
        for at, reply in zip(again, others, strict=True):
            replies[at] = reply
    return [answered(reply) for reply in replies]


def _looked(bucket: int, reply: Reply) -> Looked:
    left, due, *given = cast("list[int | list[bytes]]", reply)
    found: list[Work] = []
    for pointer, session, position, attempt, error, is_retry in cast("list[list[bytes]]", given):
        try:
            name, number = check_session_id(session.decode()), int(position)
        except (ValueError, InvalidSessionId):
            continue  # somebody else's pointer; it ages, and is looked at again
        text = error.decode(errors="replace")
        found.append(Work(name, number, bucket, pointer.decode(), int(attempt), text, bool(is_retry)))
    seconds = cast("int", due)
    return Looked(found, cast("int", left), None if seconds < 0 else seconds / 1000)


def _by_bucket(works: Iterable[Work]) -> Iterable[tuple[int, list[Work]]]:
    shares: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        shares[work.bucket].append(work)
    return shares.items()


def _short(text: str, length: int) -> str:
    """Its beginning, as any server and any terminal can take it."""
    return text[:length].encode(errors="replace").decode()
