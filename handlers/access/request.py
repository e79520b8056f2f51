"""The question that the hook `authorize` answers, and the built-in answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.access.principal import ALL, Principal, matches

__all__ = ("AccessRequest", "Authorize", "Decision", "authorize_by_rights", "decide_by_rights")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """One question: may this principal do this?"""

    principal: Principal
    action: str
    """`read.sessions`, `read.head`, `read.entries`, `read.events`, `read.media`, `read.status`, `read.call`,
    `read.turns`, `read.usage`, `read.timeline`, `read.context`, `read.request`, `read.waiting`, `read.forks`,
    `read.dead_letters`, `read.projections`, `send`, `hand_over`, `fork`, `redrive`, `trim`, `close`, `reopen`, or
    `command.` and the name of the command, such as `command.abort`"""
    session: str | None = None
    """id of the session; None for actions without a session"""
    agent: str | None = None
    """the session's agent. For a new session or a handover, the agent that it will have. None if there is none."""
    lane: Lane | None = None
    """the lane that is read or written; None if neither is"""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an `AccessRequest`."""

    is_allowed: bool
    reason: str = ""
    """why not; sent to the client and logged, so it must hold no secret"""


Authorize = Callable[[AccessRequest], Awaitable[Decision]]
"""The hook. It is called for every request, and again for open streams. Raising an error refuses the request."""

_ALLOWED = Decision(True)


async def authorize_by_rights(request: AccessRequest) -> Decision:
    """Decide by the rights of the principal. This is the default; a hook of your own may call it first."""
    return decide_by_rights(request)


def decide_by_rights(request: AccessRequest) -> Decision:
    """Decide as `authorize_by_rights`, without a wait: a list asks for each of many sessions. Pure."""
    principal = request.principal
    if not _covers(principal.actions, request.action):
        return Decision(False, f"this token does not allow {request.action}")
    if request.session is not None and not matches(principal.sessions, request.session):
        return Decision(False, "this token does not allow this session")
    if request.session is not None and principal.agents != ALL and not matches(principal.agents, request.agent or ""):
        return Decision(False, "this token does not allow sessions of this agent")
    if request.lane is not None and request.lane not in principal.lanes:
        return Decision(False, f"this token does not allow the {request.lane.value} lane")
    return _ALLOWED


def _covers(granted: tuple[str, ...], action: str) -> bool:
    return any(each == "*" or f"{action}.".startswith(f"{each}.") for each in granted)
