"""Consumer groups: shared work, retries, dead letters, leases, and the status of groups."""

from lanebus.bus.groups.activity import Activity
from lanebus.bus.groups.agents import AgentStatus
from lanebus.bus.groups.consumer import Consumer
from lanebus.bus.groups.dead_letters import DeadLetter, DeadLetters
from lanebus.bus.groups.failed_work import FailedWork, FailedWorks
from lanebus.bus.groups.lease_status import LeaseStatus
from lanebus.bus.groups.retry_policy import GiveUp, Jitter, Retry, RetryPolicy
from lanebus.bus.groups.status import ConsumerStatus, GroupStatus
from lanebus.bus.groups.work import Work
from lanebus.bus.log.lease import Lease
from lanebus.bus.session.session_lease import SessionLease

__all__ = (
    "Activity",
    "AgentStatus",
    "Consumer",
    "ConsumerStatus",
    "DeadLetter",
    "DeadLetters",
    "FailedWork",
    "FailedWorks",
    "GiveUp",
    "GroupStatus",
    "Jitter",
    "Lease",
    "LeaseStatus",
    "Retry",
    "RetryPolicy",
    "SessionLease",
    "Work",
)
