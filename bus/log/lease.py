"""Leases: who may run a session's loop. One round trip takes, renews or gives back many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import SessionErased
from lanebus.bus.log.script import Script, run_script, run_scripts

if TYPE_CHECKING:
    from lanebus.bus.log.first_page import FirstPage
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.topology import Argument

__all__ = ("Lease", "LeaseAnswer", "Leases")

_LEASE = Script("lease", shares=("wake", "take"))


class Lease(NamedTuple):
    """The right to run a session's loop. A later epoch ends it, whatever the clock says."""

    session: str
    owner: str
    epoch: int


class LeaseAnswer(NamedTuple):
    """What trying to take a lease gave."""

    lease: Lease | None
    """None: it was not taken"""
    held_seconds: float = 0.0
    """another owner has it for so long, if it does not renew it; its release wakes the workers"""
    rests_seconds: float = 0.0
    """the session is to be left alone for so long"""


class Leases:
    """The leases of the sessions of a bus. Every step may run twice."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def take(
        self, session: str, owner: str, seconds: float, *, also_resting: bool = True, page: FirstPage | None = None
    ) -> LeaseAnswer:
        """Take a lease, if no other owner has it or its time is over.

        Args:
            also_resting: also where the session was released to rest, and its rest is not over.
            page: of the session, read in the same step and behind it: who gets the lease has also read what is there.

        Raises:
            SessionErased: there is nothing to work on.
            Unavailable: the server cannot be reached.
        """
        names, words = self._call("take", [Lease(session, owner, 0)], seconds, flag=also_resting)
        epoch, left = cast("Sequence[int]", await run_script(self._log, _LEASE, names, words, page))
        return _taking(session, owner, epoch, left)

    async def renew(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Hold leases for longer; gives those that are lost.

        Raises:
            Unavailable: the server cannot be reached.
        """
        answers = await self._run("renew", leases, seconds)
        return [lease for lease, (epoch, _) in zip(leases, answers, strict=True) if epoch <= 0]

    async def release(self, leases: Sequence[Lease], *, wake: bool = False, rest: float = 0.0) -> None:
        """Give leases back; those that are lost already are left as they are. Where somebody else has asked for one
        meanwhile, the workers are woken.

        Args:
            wake: wake the workers in any case, as there is more to do.
            rest: seconds that workers should leave the session alone, unless they have a reason.

        Raises:
            Unavailable: the server cannot be reached; their time runs out.
        """
        await self._run("release", leases, rest, flag=wake)

    async def _run(
        self, step: str, leases: Sequence[Lease], seconds: float, *, flag: bool = False
    ) -> list[tuple[int, int]]:
        """The answers, in the order of the leases."""
        shares = defaultdict[tuple[int, str], list[int]](list)
        for at, lease in enumerate(leases):
            shares[self._log.keys.bucket(lease.session), lease.owner].append(at)
        calls = [self._call(step, [leases[at] for at in places], seconds, flag=flag) for places in shares.values()]
        answers = [(0, 0)] * len(leases)
        replies = await run_scripts(self._log, _LEASE, calls) if calls else ()
        for places, reply in zip(shares.values(), replies, strict=True):
            numbers = cast("list[int]", reply)
            for at, epoch, left in zip(places, numbers[::2], numbers[1::2], strict=True):
                answers[at] = (epoch, left)
        return answers

    def _call(
        self, step: str, leases: Sequence[Lease], seconds: float, *, flag: bool
    ) -> tuple[Sequence[str], Sequence[Argument]]:
        """The keys and arguments for leases of one owner and one bucket."""
        keys = self._log.keys
        names = (*keys.work(keys.bucket(leases[0].session)), *(keys.head(lease.session) for lease in leases))
        pairs = [word for lease in leases for word in (lease.session, lease.epoch)]
        trim = self._log.work.wake_up_trim
        return names, (step, leases[0].owner, int(seconds * 1000), "1" if flag else "", *trim, *pairs)


def _taking(session: str, owner: str, epoch: int, left: int) -> LeaseAnswer:
    if epoch < 0:
        raise SessionErased(session)
    if epoch:
        return LeaseAnswer(Lease(session, owner, epoch))
    return LeaseAnswer(None, max(left, 0) / 1000, max(-left, 0) / 1000)
