"""The services that all session tasks of a worker share."""

from dataclasses import dataclass, field

from lanebus.bus.groups.consumer import Consumer
from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.bus.log.lease import Leases
from lanebus.bus.tracing import Tracing
from lanebus.handlers.agent.bounds import WorkerBounds
from lanebus.handlers.agent.session_cache import SessionCache
from lanebus.handlers.agent.tools.sync_calls import SyncCalls
from lanebus.handlers.agent.worker.ack_batches import AckBatcher
from lanebus.handlers.agent.worker.agent_registry import AgentRegistry
from lanebus.handlers.agent.worker.heartbeat import Heartbeat
from lanebus.handlers.monitoring.server_health import ServerHealth
from lanebus.handlers.monitoring.worker_counts import WorkerCounts

__all__ = ("WorkerServices",)


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """The objects and settings that all sessions of one worker share."""

    worker: str
    """the worker's name, for logs"""
    owner: str
    """the name under which the worker takes leases"""
    heartbeat_seconds: float
    agents: AgentRegistry
    retry: RetryPolicy
    leases: Leases
    consumer: Consumer
    heartbeat: Heartbeat
    acks: AckBatcher
    cache: SessionCache
    counts: WorkerCounts
    bounds: WorkerBounds
    tracing: Tracing
    health: ServerHealth
    sync_calls: SyncCalls
    calls: dict[str, tuple[str, float]] = field(default_factory=dict[str, "tuple[str, float]"])
    """the calls of agents that run now, by session: the agent's name, and when the call began on the monotonic clock"""
