"""Proof of one session: its head, its entries, and whoever says something about them."""

from collections.abc import Sequence

from lanebus.bus.bus import Bus
from lanebus.bus.errors import StreamError
from lanebus.bus.inspection import Inspector
from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.verify.bounds import DEFAULT_VERIFY_BOUNDS, VerifyBounds
from lanebus.handlers.verify.head_fields import HeadFields, look_at_head
from lanebus.handlers.verify.lanes import check_entries
from lanebus.handlers.verify.lineage import check_lineage
from lanebus.handlers.verify.pointers import Pointers, read_pointers
from lanebus.handlers.verify.problem import Findings, Report, typed
from lanebus.handlers.verify.references import CLAIMS, Claimant
from lanebus.handlers.verify.replay_check import PROJECTION_KEYS, differs, replay

__all__ = ("verify_session",)


async def verify_session(
    bus: Bus,
    session: str,
    pointers: Pointers | None = None,
    *,
    risks: Sequence[str] | None = None,
    bounds: VerifyBounds = DEFAULT_VERIFY_BOUNDS,
) -> Report | None:
    """What is wrong with a session; None if there is no such session.

    It may be published to meanwhile. The log is read twice: once as it is stored, once as its readers have it.

    Args:
        pointers: of its bucket, if they were read already.
        risks: see `Inspector.loss_risks`, if they were looked up already.

    Raises:
        InvalidSessionId: the id is none.
        Unavailable: the server cannot be reached.
    """
    held, inspector = bus.session(session), bus.inspector
    if pointers is None:
        pointers = Pointers()
        await read_pointers(inspector, inspector.keys.bucket(held.id), into=pointers, only=held.id)
    risk = "; ".join(await inspector.loss_risks() if risks is None else risks)
    proof = _Proof(bus, held.id, pointers, bounds)
    for _ in range(bounds.session_looks):
        proof = _Proof(bus, held.id, pointers, bounds)
        await typed(proof.run(), proof.findings, "the session")
        if not proof.was_disturbed:
            break
    if proof.was_disturbed:
        proof.findings.forgive(proof.trimmed)
        proof.findings.note("it was trimmed or went back each time it was looked at: its bytes were not proven")
    if proof.was_restarted:
        proof.findings.risk = risk
    return proof.findings.report(proof.entries) if proof.is_there else None


class _Proof:
    """One look at a session."""

    def __init__(self, bus: Bus, session: str, pointers: Pointers, bounds: VerifyBounds) -> None:
        self._bus, self._inspector, self._session, self._pointers = bus, bus.inspector, session, pointers
        self.findings = Findings(session, bounds)
        self.entries = 0
        self.is_there = True
        self.was_disturbed = False
        """the log changed in another way than by growing"""
        self.was_restarted = False
        """another server process went on with it since it began, or the same one started anew"""
        self.trimmed = 0
        """up to which position it was trimmed at the end"""

    async def run(self) -> None:
        """Look at everything."""
        before = await self._head()
        is_listed = await _is_listed(self._inspector, self._session)
        if before.is_erased:
            await self._erased()
            return
        if not before.position and not is_listed:  # at most somebody has asked for its lease
            self.is_there = False
            return
        if not before.is_there:
            self.findings.add("head", 0, "it is listed and has no head")
            return
        if before.position and not is_listed:
            self.findings.add("head", 0, "it has a head and is not listed among the sessions")
        self._pointers.tell(self._session, self.findings)
        for name, claim in CLAIMS.items():
            await typed(claim(Claimant(self._inspector, self._session, before, self.findings)), self.findings, name)
        standing = await self._head(self.findings)
        if not standing.position:
            return  # what it says of its last entry cannot be read, or nothing was ever published to it
        self.was_restarted = len(standing.incarnations) > 1
        self.findings.settle(standing.position)
        await typed(self._entries(standing), self.findings, "lanes")
        await typed(check_lineage(self._bus, self._session, standing, self.findings), self.findings, "parent")
        await typed(self._projections(standing), self.findings, "projections")
        after = await self._head()
        self.trimmed, self.was_disturbed = after.trimmed, not standing.went_on_as(after)

    async def _erased(self) -> None:
        """Nothing is left of an erased session but its tombstone."""
        keys = self._inspector.keys
        rest = [keys.lane(self._session, lane) for lane in Lane]
        rest += [part(self._session) for part in (keys.live, keys.caller_keys, keys.checkpoints, keys.archive)]
        for name in await self._inspector.existing(rest):
            self.findings.add("orphan", 0, f"key {name} is left of the erased session: erase it again")
        self.findings.note("it was erased")

    async def _entries(self, standing: HeadFields) -> None:
        try:
            self.entries = await check_entries(self._bus, self._session, standing, self.findings)
        except StreamError as error:
            self.findings.add("archive", 0, f"it ends before what is kept: {error}")

    async def _projections(self, standing: HeadFields) -> None:
        """What is stored of projections is what the log gives."""
        checkpoints = await self._bus.session(self._session).checkpoints()
        stored = {name.removeprefix("p:") for name in checkpoints if name.startswith("p:")}
        for name in sorted(stored - PROJECTION_KEYS):
            self.findings.unproven.append(name)
            self.findings.note(f"projection {name} was not proven, as this version of the package has no such fold")
        if self.findings.has("hole", "double", "head", "fork", "wrong_type", "checksum", "unreadable"):
            self.findings.note("stored projections were not proven, as the log is not whole")
            return
        session = self._bus.session(self._session)
        try:
            replayed = await replay(session, until=standing.position, stored_only=True)
        except StreamError as error:
            self.findings.note(f"stored projections were not proven: {error}")
            return
        except ValueError:
            self.findings.note("stored projections were not proven: a number that is stored is none")
            return
        for each in replayed:
            if each.agrees is False:
                self.findings.add("projection", each.stored or 0, differs(self._session, each.key))

    async def _head(self, findings: Findings | None = None) -> HeadFields:
        return await look_at_head(self._inspector, self._session, findings)


async def _is_listed(inspector: Inspector, session: str) -> bool:
    key = inspector.keys.sessions(inspector.keys.bucket(session))
    return bool(await inspector.fields(key, (session,)))
