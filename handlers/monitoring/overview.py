"""The values that `lanebus top` shows: groups, sessions with workers, and rates. Converts these values to JSON."""

from dataclasses import asdict, dataclass
from decimal import Decimal

from lanebus.bus.groups.status import AgentWork, GroupStatus
from lanebus.handlers.projections.agent_activity import Doing

__all__ = ("Overview", "Pace", "SessionStatus", "overview_json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Rates of publishes, turns, tokens and cost, averaged over the last `seconds`."""

    seconds: float
    """length of the period that the rates are averaged over, in seconds"""
    publishes: float
    """publishes per second"""
    turns: float
    """ended turns per second"""
    tokens: float
    """tokens per minute"""
    dollars: Decimal | None
    """US dollars per minute; None if no turn has a known cost"""
    is_estimate: bool
    """whether `turns`, `tokens` and `dollars` are extrapolated, because some sessions with publishes were not read"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """A session that a worker works on, or that waits for a person."""

    session: str
    group: str | None
    """consumer group of `worker`; None if no consumer has the session's work"""
    worker: str | None
    """the consumer that has the session's work; None if no consumer has it"""
    owner: str | None
    """owner of the session's lease; None if there is no lease"""
    epoch: int
    """epoch of the last lease"""
    seconds_left: float | None
    """seconds until the lease expires; 0 or less if the lease has expired, None if there is no lease"""
    position: int
    """last position of the session"""
    doing: Doing
    loop_id: str | None
    """id of the session's loop; None if no loop runs"""
    turn: int | None
    """index of the current turn; None outside a turn"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of a bus's groups and sessions at one time, as `Watcher.look` returns it."""

    time: float
    """seconds UTC, by the server's clock"""
    groups: tuple[GroupStatus, ...]
    without_worker: tuple[AgentWork, ...]
    """the work of each agent that has waiting sessions but no live worker"""
    sessions: tuple[SessionStatus, ...]
    left_out: int
    """number of sessions that are not in `sessions`, because of `WatcherBounds.sessions`"""
    pace: Pace | None
    """the rates over the last seconds; None in the first overview of a `Watcher`"""


def overview_json(overview: Overview) -> dict[str, object]:
    """Return the overview as a JSON object. US dollars are texts, as in the JSON of other commands."""
    pace = overview.pace
    dollars = None if pace is None or pace.dollars is None else format(pace.dollars, ".6f")
    return {
        "time": overview.time,
        "groups": [asdict(group) for group in overview.groups],
        "without_worker": [asdict(work) for work in overview.without_worker],
        "sessions": [asdict(session) for session in overview.sessions],
        "sessions_left_out": overview.left_out,
        "pace": None if pace is None else {**asdict(pace), "dollars": dollars},
    }
