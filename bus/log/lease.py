"""Take, renew and release leases, each the right of one worker to run a session's loop.

One round trip renews or releases many leases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import SessionDamaged, SessionErased, WrongAgent
from lanebus.bus.log.log import Script, run_script, run_scripts

if TYPE_CHECKING:
    from lanebus.bus.log.log import FirstPage, Log
    from lanebus.bus.servers.calls import Argument


_LEASE = Script("lease", shares=("damage", "wake", "take"))


class _Refusal(IntEnum):
    """Answers of the script in place of an epoch."""

    DAMAGED = -3
    """the session's head is damaged"""
    OTHER_AGENT = -2
    """the session does not belong to the agent in the lease"""


class Lease(NamedTuple):
    """The right to run a session's loop. It ends when a lease with a later epoch is taken; time alone does not end
    it."""

    session: str
    owner: str
    epoch: int
    agent: str = ""
    """the session's agent when the lease was taken; "" if it had none"""


class LeaseAnswer(NamedTuple):
    """The outcome of an attempt to take a lease."""

    lease: Lease | None
    """the lease; None if it was not taken"""
    held_seconds: float = 0.0
    """seconds until another owner's lease expires; 0.0 if no other owner has a lease. A release of that lease wakes the
    workers"""
    rests_seconds: float = 0.0
    """seconds until the session may be run again, if `Leases.release` delayed its next run; otherwise 0.0"""


class Leases:
    """Takes, renews and releases leases. Every operation may run twice, so it is retried if its reply is lost."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def take(
        self,
        session: str,
        owner: str,
        seconds: float,
        *,
        also_resting: bool = True,
        page: FirstPage | None = None,
        agent: str = "",
    ) -> LeaseAnswer:
        """Take a lease, unless another owner has an unexpired lease of the session.

        Args:
            session: the session to run.
            owner: the name of the worker.
            seconds: how long the lease lasts without a renewal.
            also_resting: whether to take the lease even if `release` delayed the next run and the delay is not over.
            page: a page of the session to read in the same round trip, after the lease was taken. None reads no page.
            agent: take the lease only if the session belongs to this agent; "" means any.

        Raises:
            SessionDamaged: the session's head is damaged.
            SessionErased: the session was erased.
            WrongAgent: the session does not belong to `agent`.
            Unavailable: the server cannot be reached; the lease may have been taken.
        """
        names, words = self._call("take", [Lease(session, owner, 0, agent)], seconds, flag=also_resting)
        epoch, left, found = cast("tuple[int, int, bytes]", await run_script(self._log, _LEASE, names, words, page))
        name = found.decode(errors="replace")
        if epoch == _Refusal.DAMAGED:
            raise SessionDamaged(session, name)
        if epoch == _Refusal.OTHER_AGENT:
            raise WrongAgent(session, agent, name)
        return _lease_answer(Lease(session, owner, epoch, name), left)

    async def renew(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Renew leases for `seconds` from now. Return the leases that are lost.

        Raises:
            Unavailable: the server cannot be reached.
        """
        answers = await self._run("renew", leases, seconds)
        return [lease for lease, (epoch, _) in zip(leases, answers, strict=True) if epoch <= 0]

    async def release(self, leases: Sequence[Lease], *, wake: bool = False, rest: float = 0.0) -> None:
        """Release leases, and wake the workers if another worker has asked for one of the leases.

        Lost leases are ignored.

        Args:
            leases: the leases to release.
            wake: whether to wake the workers in any case, because there is more work.
            rest: seconds to delay the session's next run, such as after a failure; 0.0 means no delay.

        Raises:
            Unavailable: the server cannot be reached; the leases then expire.
        """
        while leases:
            answers = await self._run("release", leases, rest, flag=wake)
            # A lease of an empty session: its first message has given it an agent since.
            leases = [
                lease._replace(agent=agent)
                for lease, (epoch, agent) in zip(leases, answers, strict=True)
                if epoch == _Refusal.OTHER_AGENT
            ]

    async def _run(
        self, step: str, leases: Sequence[Lease], seconds: float, *, flag: bool = False
    ) -> list[tuple[int, str]]:
        """Run a step for all leases, and return the epoch and the agent of each, in the order of the leases."""
        shares = defaultdict[tuple[int, str], list[int]](list)
        for at, lease in enumerate(leases):
            shares[self._log.keys.bucket(lease.session), lease.owner].append(at)
        calls = [self._call(step, [leases[at] for at in places], seconds, flag=flag) for places in shares.values()]
        answers = [(0, "")] * len(leases)
        replies = await run_scripts(self._log, _LEASE, calls) if calls else ()
        for places, reply in zip(shares.values(), replies, strict=True):
            words = cast("list[int | bytes]", reply)
            for at, epoch, agent in zip(places, words[::3], words[2::3], strict=True):
                answers[at] = (cast("int", epoch), cast("bytes", agent).decode(errors="replace"))
        return answers

    def _call(
        self, step: str, leases: Sequence[Lease], seconds: float, *, flag: bool
    ) -> tuple[Sequence[str], Sequence[Argument]]:
        """Return the keys and arguments of lease.lua for leases of one owner and one bucket."""
        keys = self._log.keys
        bucket = keys.bucket(leases[0].session)
        names = [keys.woken(bucket), keys.wake_ups(bucket), *(keys.head(lease.session) for lease in leases)]
        if step == "release":
            names += [keys.order(bucket, lease.agent) for lease in leases]
        words = [word for lease in leases for word in (lease.session, lease.epoch, lease.agent)]
        trim = self._log.work.wake_up_trim
        return names, (step, leases[0].owner, int(seconds * 1000), "1" if flag else "", *trim, *words)


def _lease_answer(lease: Lease, left: int) -> LeaseAnswer:
    if lease.epoch < 0:
        raise SessionErased(lease.session)
    if lease.epoch:
        return LeaseAnswer(lease)
    return LeaseAnswer(None, max(left, 0) / 1000, max(-left, 0) / 1000)
