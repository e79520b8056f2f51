"""What `lanebus top` shows: how the groups stand, who works on what, and how fast. Values, and their JSON."""

from dataclasses import asdict, dataclass
from decimal import Decimal

from lanebus.bus.groups.status import GroupStatus
from lanebus.handlers.projections.agent_activity import Doing

__all__ = ("Overview", "Pace", "SessionStatus", "overview_json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much was done in the last seconds."""

    seconds: float
    """that were looked at"""
    publishes: float
    """a second"""
    turns: float
    """a second"""
    tokens: float
    """a minute"""
    dollars: Decimal | None
    """US dollars a minute; None where nobody knows what a turn cost"""
    is_estimate: bool
    """there was too much to look at all of it: turns, tokens and dollars are taken from a part"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """A session that a worker has in hand, or that was seen to wait for a person."""

    session: str
    group: str | None
    worker: str | None
    """the consumer that its work was given to; None where no one has it in hand"""
    owner: str | None
    """of its lease"""
    epoch: int
    seconds_left: float | None
    """of its lease; 0 or less where it ran out, None where nobody has it"""
    position: int
    doing: Doing
    loop_id: str | None
    turn: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of it, at one moment."""

    time: float
    """seconds UTC, by the server's clock"""
    groups: tuple[GroupStatus, ...]
    sessions: tuple[SessionStatus, ...]
    left_out: int
    """sessions in hand that are named and not shown"""
    pace: Pace | None
    """None at the first look"""


def overview_json(overview: Overview) -> dict[str, object]:
    """As an object of JSON; money is a number, as in the other commands' JSON."""
    pace = overview.pace
    dollars = None if pace is None or pace.dollars is None else round(float(pace.dollars), 6)
    return {
        "time": overview.time,
        "groups": [asdict(group) for group in overview.groups],
        "sessions": [asdict(session) for session in overview.sessions],
        "sessions_left_out": overview.left_out,
        "pace": None if pace is None else {**asdict(pace), "dollars": dollars},
    }
