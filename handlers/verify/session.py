"""Verify one session: the head, the entries, and all records that refer to entries."""

from collections.abc import Sequence

from lanebus.bus.bus import Bus
from lanebus.bus.errors import StreamError
from lanebus.bus.inspection import Inspector
from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.verify.agents import check_agent
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
    """Check a session, and report the session's problems. Producers may publish to the session during the check.

    The log is read up to twice: as raw entries, to check each, and through a reader, to fold the stored projections.

    Args:
        bus: the bus.
        session: id of the session.
        pointers: the pointers of the session's bucket, filled by `read_pointers`. None reads those of this session.
        risks: result of `Inspector.loss_risks`. None calls this method.
        bounds: bounds on the problems that are kept, and on attempts.

    Returns:
        The report, or None if the session does not exist.

    Raises:
        InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    inspector, id = bus.inspector, bus.session(session).id
    if pointers is None:
        pointers = Pointers()
        await read_pointers(inspector, inspector.keys.bucket(id), into=pointers, only=id)
    risk = "; ".join(await inspector.loss_risks() if risks is None else risks)
    attempt = _Attempt(bus, id, pointers, bounds)
    for _ in range(bounds.session_attempts):
        attempt = _Attempt(bus, id, pointers, bounds)
        await typed(attempt.run(), attempt.findings, "the session")
        if not attempt.was_disturbed:
            break
    if attempt.was_disturbed:
        attempt.findings.forgive(attempt.trimmed)
        attempt.findings.note("it was trimmed or rolled back during each attempt: its byte count was not checked")
    if attempt.was_restarted:
        attempt.findings.risk = risk
    return attempt.findings.report(attempt.entries) if attempt.is_there else None


class _Attempt:
    """One attempt to check a session."""

    def __init__(self, bus: Bus, session: str, pointers: Pointers, bounds: VerifyBounds) -> None:
        self._bus, self._inspector, self._session, self._pointers = bus, bus.inspector, session, pointers
        self.findings = Findings(session, bounds)
        self.entries = 0
        self.is_there = True
        self.was_disturbed = False
        """whether the log was trimmed, erased or rolled back during the attempt"""
        self.was_restarted = False
        """whether several server processes have written the log: the server was restarted or replaced"""
        self.trimmed = 0
        """highest trimmed position at the end of the attempt"""

    async def run(self) -> None:
        """Run all checks."""
        before = await self._head()
        is_listed = await _is_listed(self._inspector, self._session)
        if before.is_erased:
            await self._erased()
            return
        if not before.position and not is_listed:  # the session has no entries; its head holds at most a lease
            self.is_there = False
            return
        if not before.is_there:
            self.findings.add("head", 0, "it is listed, but has no head")
            return
        if before.position and not is_listed:
            self.findings.add("head", 0, "it has a head, but is not listed among the sessions")
        await typed(check_agent(self._inspector, self._session, self.findings), self.findings, "agent")
        self._pointers.add_to(self.findings)
        for name, claim in CLAIMS.items():
            await typed(claim(Claimant(self._inspector, self._session, before, self.findings)), self.findings, name)
        head_fields = await self._head(self.findings)
        if not head_fields.position:
            return  # the head's last position is invalid, or nothing was ever published
        self.was_restarted = len(head_fields.incarnations) > 1
        self.findings.settle(head_fields.position)
        await typed(self._entries(head_fields), self.findings, "lanes")
        await typed(check_lineage(self._bus, self._session, head_fields, self.findings), self.findings, "parent")
        await typed(self._projections(head_fields), self.findings, "projections")
        after = await self._head()
        self.trimmed, self.was_disturbed = after.trimmed, not head_fields.has_grown_to(after)

    async def _erased(self) -> None:
        """Check that an erased session has no key left except its tombstone."""
        keys = self._inspector.keys
        rest = [keys.lane(self._session, lane) for lane in Lane]
        rest += [part(self._session) for part in (keys.live, keys.caller_keys, keys.checkpoints, keys.archive)]
        for name in await self._inspector.existing(rest):
            self.findings.add("orphan", 0, f"key {name} is left of the erased session: erase it again")
        self.findings.note("it was erased")

    async def _entries(self, head_fields: HeadFields) -> None:
        try:
            self.entries = await check_entries(self._bus, self._session, head_fields, self.findings)
        except StreamError as error:
            self.findings.add("archive", 0, f"it ends before the first kept entry: {error}")

    async def _projections(self, head_fields: HeadFields) -> None:
        """Check that each stored projection equals a fold of the log."""
        checkpoints = await self._bus.session(self._session).checkpoints()
        stored = {name.removeprefix("p:") for name in checkpoints if name.startswith("p:")}
        for name in sorted(stored - PROJECTION_KEYS):
            self.findings.unproven.append(name)
            self.findings.note(f"projection {name} was not checked, as this version of the package does not have it")
        if self.findings.has("hole", "double", "head", "fork", "wrong_type", "checksum", "unreadable"):
            self.findings.note("stored projections were not checked, as the log has problems")
            return
        session = self._bus.session(self._session)
        try:
            replayed = await replay(session, until=head_fields.position, stored_only=True)
        except StreamError as error:
            self.findings.note(f"stored projections were not checked: {error}")
            return
        except ValueError:
            self.findings.note("stored projections were not checked: a stored number is invalid")
            return
        for each in replayed:
            if each.agrees is False:
                self.findings.add("projection", each.stored or 0, differs(self._session, each.key))

    async def _head(self, findings: Findings | None = None) -> HeadFields:
        return await look_at_head(self._inspector, self._session, findings)


async def _is_listed(inspector: Inspector, session: str) -> bool:
    key = inspector.keys.sessions(inspector.keys.bucket(session))
    return bool(await inspector.fields(key, (session,)))
