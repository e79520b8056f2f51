"""Method of `Session` that hands it over to another agent."""

from lanebus.bus.errors import NoSuchPosition, SessionErased, WrongAgent, require_text
from lanebus.bus.groups.status import parts_of
from lanebus.bus.log.log import Script
from lanebus.bus.messages.events import SessionAssigned
from lanebus.bus.publishing.encoding import AppendConditions
from lanebus.bus.session.publishing import append, checked
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.envelope import Expected, Receipt, cursor_of
from lanebus.bus.wire.keys import check_agent

_WITHDRAW = Script("withdraw")


async def hand_over(
    self: HasResources,
    agent: str,
    *,
    by: str | None = None,
    reason: str | None = None,
    key: str | None = None,
    expected: Expected | None = None,
    belongs_to: str | None = None,
) -> Receipt:
    """Hand the session over to another agent. The new agent continues the session's loop from the log.

    One step appends a `SessionAssigned` event, changes the session's agent, wakes the new agent's workers, and ends the
    old worker's lease. Later appends of the old worker raise `Fenced`; the old worker's loop ends without an error.

    A cancelled call may have handed the session over. A repeat with the same `key` is safe: if the first call
    succeeded, it changes nothing, even if the session was handed on to another agent since. Without a key, a repeat
    changes nothing while the session still belongs to `agent`; after another handover, it takes the session back.

    Args:
        agent: name of the new agent.
        by: the person or program that hands the session over; recorded in the log.
        reason: why the session is handed over, in words for people; recorded in the log.
        key: your own name for this handover, as for `publish`. Give each handover another key. None means that the call
            is a repeat only if the session belongs to `agent`.
        expected: hand over only if the session still ends there, as for `Session.publish`. None means any end.
        belongs_to: hand over only if the session belongs to this agent before the call. None means any agent.

    Returns:
        The position of the event. For a repeated `key`, the position of the first call, and `is_duplicate` is True. If
        the session belonged to the agent before the call, `is_duplicate` is True too. The position is then that of the
        session's last handover, or 0 if there was none.

    Raises:
        InvalidName: `agent` or `belongs_to` does not match `[A-Za-z0-9_.-]{1,64}`.
        KeyReserved: `key` begins with `lanebus:`.
        NoSuchPosition: the session has no entries, so it has no agent. The first publish sets the agent.
        Conflict: `expected` is not the session's end.
        LogRolledBack: the log lost the entry of `expected`.
        WrongAgent: the session belongs to another agent than `belongs_to`, and not to `agent` either.
        SessionClosed: the session is closed.
        SessionErased: the session was erased.
        BusError: the other errors of `publish`.
    """
    check_agent(agent)
    if belongs_to is not None:
        check_agent(belongs_to)
    require_text("by", by, is_optional=True)
    require_text("reason", reason, is_optional=True)
    conditions = checked(AppendConditions(key, cursor_of(expected), wake=True, assign=agent))
    log, session = self.resources.log, self.resources.id
    while True:
        head = await log.head(session)
        if head.is_erased:
            raise SessionErased(session)
        if not head.position:
            raise NoSuchPosition(session, 1, 0)
        previous = belongs_to or head.agent or None
        event = SessionAssigned(agent=agent, previous=previous, by=by, reason=reason)
        # `agent=` keeps `previous` true: another handover in between is refused, and read again.
        try:
            receipt = await append(self, (event.as_extension(),), conditions._replace(agent=previous))
        except WrongAgent:
            if belongs_to is not None:
                raise
            continue
        if not receipt.is_duplicate:
            await _withdraw(self, previous or "")
        return receipt


async def _withdraw(self: HasResources, agent: str) -> None:
    """Delete the session's open work of the old agent, so that the old workers notice the handover at their next
    heartbeat.

    Only tidies up: workers drop the work of a session that left their agent wherever they find it.
    """
    log, session = self.resources.log, self.resources.id
    keys, bucket = log.keys, log.keys.bucket(session)
    groups = parts_of(await log.call("HKEYS", keys.groups(bucket)))
    names = [
        name
        for served, group in groups
        if served == agent
        for name in (keys.open(bucket, agent, group), keys.due(bucket, agent, group))
    ]
    if names:
        await log.run(_WITHDRAW, (keys.order(bucket, agent), *names), (session,))
