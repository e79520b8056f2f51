"""The metrics of a process, as a collector for prometheus-client. The package is imported when metrics are wanted.

`METRICS` is the table of all metrics; `docs/reference/metrics.md` is tested against it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lanebus.bus.histogram import Histogram
from lanebus.bus.monitor import BusCounts
from lanebus.handlers.monitoring.metric_table import METRICS
from lanebus.handlers.monitoring.readings import Reading
from lanebus.handlers.monitoring.server_health import ServerHealth
from lanebus.handlers.monitoring.worker_counts import ConnectionCounts, LabelledCounts, WorkerCounts, WorkerStatus

__all__ = ("MetricsCollector", "Observed", "ObservedWorker")

Samples = Iterable[tuple[tuple[str, ...], float]]


class ObservedWorker(NamedTuple):
    """A worker's counters and state."""

    counts: WorkerCounts
    status: WorkerStatus


class Observed(NamedTuple):
    """The state of the process and the server that one scrape of `/metrics` shows."""

    namespace: str
    """the bus's namespace, a label of all metrics: buses of several namespaces may share a Prometheus"""
    bus: BusCounts
    reading: Reading
    health: ServerHealth
    is_ready: bool
    worker: ObservedWorker | None = None
    """None for a process without a worker"""
    connections: ConnectionCounts | None = None
    """None for a process that serves no page"""


class MetricsCollector(Collector):
    """Turns an `Observed` into metrics of the package `prometheus_client`."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, in the order of `METRICS`."""
        values = {**_of_process(self._observed), **_of_server(self._observed.reading), **_of_runs(self._observed)}
        if (connections := self._observed.connections) is not None:
            values |= {
                "lanebus_http_connections": _one(connections.open),
                "lanebus_http_connections_refused_total": _one(connections.refused),
            }
        if self._observed.worker is not None:
            values |= _of_worker(self._observed.worker)
        namespace = self._observed.namespace
        for name, (kind, text, labels) in METRICS.items():
            if (found := values.get(name)) is None:
                continue
            if isinstance(found, Histogram):
                yield _histogram(name, text, found, namespace)
                continue
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            metric = family(name, text, labels=("namespace", *labels))
            for sample, value in found:
                metric.add_metric((namespace, *sample), value)
            yield metric


def _of_process(observed: Observed) -> Mapping[str, Samples | Histogram]:
    bus = observed.bus
    return {
        "lanebus_ready": _one(observed.is_ready),
        "lanebus_server_up": _one(observed.health.reason is None),
        "lanebus_publishes_total": [((outcome,), count) for outcome, count in bus.publishes.outcomes.items()],
        "lanebus_publish_seconds": bus.publishes.seconds,
        "lanebus_publish_batch_publishes": bus.publishes.batches,
        "lanebus_publishes_in_flight": _one(bus.in_flight),
        "lanebus_publishes_queued": _one(bus.waiting),
        "lanebus_followers": _one(bus.followers),
        "lanebus_follower_lag_entries": _one(bus.follower_lag),
        "lanebus_follower_lag_bytes": _one(bus.follower_bytes),
        "lanebus_followers_fell_behind_total": _one(bus.fell_behind),
        "lanebus_log_lost_total": [((kind,), float(count)) for kind, count in bus.losses.items()],
    }


def _of_server(reading: Reading) -> Mapping[str, Samples | Histogram]:
    if not reading.is_answered:
        return {}
    servers = [(server.address, server) for server in reading.servers]
    groups = reading.groups
    works = [(group.name, work) for group in groups for work in group.agents]
    works += [("", work) for work in reading.unfetched]
    approvals = reading.open_work.approvals
    return {
        "lanebus_server_info": [
            ((node, server.product, server.version, server.fsync), 1.0) for node, server in servers
        ],
        "lanebus_server_memory_bytes": [((node,), server.memory_bytes) for node, server in servers],
        "lanebus_server_memory_limit_bytes": [((node,), server.memory_limit_bytes) for node, server in servers],
        "lanebus_work_waiting": [((name, work.agent), work.lag) for name, work in works],
        "lanebus_work_waiting_age_seconds": [((name, work.agent), work.longest_wait or 0.0) for name, work in works],
        "lanebus_work_pending": [((name, work.agent), work.pending) for name, work in works],
        "lanebus_work_delayed": [((name, work.agent), work.retries) for name, work in works],
        "lanebus_agent_sessions": [((agent,), count) for agent, count in reading.sessions.items()],
        "lanebus_agent_workers": [
            ((group, agent), workers[agent])
            for group, workers in reading.workers.items()
            for agent in {**reading.sessions, **workers}
        ],
        "lanebus_approvals_waiting": [((agent,), count) for agent, count in _by_agent(reading, approvals)],
        "lanebus_approval_age_seconds": [
            ((agent,), age) for agent, age in _by_agent(reading, reading.open_work.approval_ages)
        ],
        "lanebus_dead_letters": [((group.name,), group.dead) for group in groups],
        "lanebus_dead_letters_dropped_total": [((group.name,), group.dropped) for group in groups],
        "lanebus_consumers": [
            ((group.name, state), sum(each.is_alive == (state == "alive") for each in group.consumers))
            for group in groups
            for state in ("alive", "silent")
        ],
    }


def _by_agent(reading: Reading, found: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the value of each agent in `Reading.sessions`, and of those with a value; 0 if an agent has none."""
    return [(agent, found.get(agent, 0.0)) for agent in {**reading.sessions, **found}]


def _of_runs(observed: Observed) -> Mapping[str, Samples | Histogram]:
    """Return the age of each agent's oldest run: of those in the log, and of the calls of this process's worker."""
    ages = dict(_by_agent(observed.reading, observed.reading.open_work.runs))
    if observed.worker is not None:
        for agent, age in observed.worker.status.calls.items():
            ages[agent] = max(ages.get(agent, 0.0), age)
    return {"lanebus_run_age_seconds": [((agent,), age) for agent, age in ages.items()]}


def _of_worker(worker: ObservedWorker) -> Mapping[str, Samples | Histogram]:
    counts, status = worker
    return {
        "lanebus_worker_info": [((status.name, status.group), 1.0)],
        "lanebus_worker_draining": _one(status.is_draining),
        "lanebus_worker_concurrency": _one(status.concurrency),
        "lanebus_sessions_running": _one(status.sessions),
        "lanebus_leases_held": _one(status.leases),
        "lanebus_tool_threads_abandoned": _one(status.abandoned_threads),
        "lanebus_session_keys_most": _one(counts.most_keys),
        "lanebus_leases_lost_total": _one(counts.leases_lost),
        "lanebus_agent_runs_total": _one(counts.runs),
        "lanebus_work_retried_total": _one(counts.retries),
        "lanebus_work_dead_total": _one(counts.dead_letters),
        "lanebus_work_handed_back_total": _one(counts.handed_back),
        # From 0 on: Prometheus sees no increase in a series that begins with its first error.
        "lanebus_loops_total": ({(agent, "error"): 0.0 for agent in status.calls} | {**counts.loops.sums}).items(),
        "lanebus_turns_total": _sums(counts.turns),
        "lanebus_turn_seconds": counts.turn_seconds,
        "lanebus_tokens_total": _sums(counts.tokens),
        "lanebus_cost_dollars_total": _sums(counts.cost),
        "lanebus_prompts_total": _sums(counts.prompts),
        "lanebus_model_failures_total": _sums(counts.model_failures),
    }


def _one(value: float) -> Samples:
    return [((), float(value))]


def _sums(counts: LabelledCounts) -> Samples:
    return counts.sums.items()


def _histogram(name: str, text: str, values: Histogram, namespace: str) -> Metric:
    buckets: list[tuple[str, float]] = []
    count = 0
    for bound, number in zip((*map(str, values.bounds), "+Inf"), values.counts, strict=True):
        count += number
        buckets.append((bound, count))
    metric = HistogramMetricFamily(name, text, labels=("namespace",))
    metric.add_metric((namespace,), buckets, values.total)
    return metric
