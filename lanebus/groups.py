"""Consumer groups: shared work, retries, dead letters, leases, and the status of groups."""

from lanebus.bus.groups.consumer import Consumer
from lanebus.bus.groups.failed_work import (
    DeadLetter,
    DeadLetters,
    FailedWork,
    FailedWorks,
    GiveUp,
    Jitter,
    Retry,
    RetryPolicy,
)
from lanebus.bus.groups.group_log import Work
from lanebus.bus.groups.status import Activity, AgentStatus, ConsumerStatus, GroupStatus, LeaseStatus
from lanebus.bus.log.lease import Lease
from lanebus.bus.session_upkeep import SessionLease

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
