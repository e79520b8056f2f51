"""The monitor of a process: `/healthz`, `/readyz` and `/metrics`, on an address of its own and without a token.

The metrics are a collector for prometheus-client, and a table of their names, kinds and meanings.
"""

import ipaddress
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, NamedTuple

import anyio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lanebus.bus import BusCounts, Histogram
from lanebus.handlers.agent import (
    ConnectionCounts,
    LabelledCounts,
    MonitorBegun,
    ServerHealth,
    WorkerCounts,
    WorkerStatus,
    in_background,
    write_event,
)
from lanebus.handlers.serve.bounds import HttpBounds
from lanebus.handlers.serve.guard import parse_host
from lanebus.handlers.serve.http_server import listen, serve_app, shown_host
from lanebus.handlers.serve.readings import DEFAULT_MONITOR_BOUNDS, MonitorBounds, Reading
from lanebus.handlers.serve.replies import answer, refuse

# The metrics of a process, as a collector for prometheus-client. The package is imported when metrics are wanted.
#
# `METRICS` is the table of all metrics; `docs/reference/metrics.md` is tested against it.

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
                "lanebus_http_connections": _sample(connections.open),
                "lanebus_http_connections_refused_total": _sample(connections.refused),
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
        "lanebus_ready": _sample(observed.is_ready),
        "lanebus_server_up": _sample(observed.health.reason is None),
        "lanebus_publishes_total": [((outcome,), count) for outcome, count in bus.publishes.outcomes.items()],
        "lanebus_publish_seconds": bus.publishes.seconds,
        "lanebus_publish_batch_publishes": bus.publishes.batches,
        "lanebus_publishes_in_flight": _sample(bus.in_flight),
        "lanebus_publishes_queued": _sample(bus.waiting),
        "lanebus_followers": _sample(bus.followers),
        "lanebus_follower_lag_entries": _sample(bus.follower_lag),
        "lanebus_follower_lag_bytes": _sample(bus.follower_bytes),
        "lanebus_followers_fell_behind_total": _sample(bus.fell_behind),
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
        "lanebus_worker_draining": _sample(status.is_draining),
        "lanebus_worker_concurrency": _sample(status.concurrency),
        "lanebus_sessions_running": _sample(status.sessions),
        "lanebus_leases_held": _sample(status.leases),
        "lanebus_tool_threads_abandoned": _sample(status.abandoned_threads),
        "lanebus_session_keys_most": _sample(counts.most_keys),
        "lanebus_leases_lost_total": _sample(counts.leases_lost),
        "lanebus_agent_runs_total": _sample(counts.runs),
        "lanebus_work_retried_total": _sample(counts.retries),
        "lanebus_work_dead_total": _sample(counts.dead_letters),
        "lanebus_work_handed_back_total": _sample(counts.handed_back),
        # From 0 on: Prometheus sees no increase in a series that begins with its first error.
        "lanebus_loops_total": ({(agent, "error"): 0.0 for agent in status.calls} | {**counts.loops.sums}).items(),
        "lanebus_turns_total": _sums(counts.turns),
        "lanebus_turn_seconds": counts.turn_seconds,
        "lanebus_tokens_total": _sums(counts.tokens),
        "lanebus_cost_dollars_total": _sums(counts.cost),
        "lanebus_prompts_total": _sums(counts.prompts),
        "lanebus_model_failures_total": _sums(counts.model_failures),
    }


def _sample(value: float) -> Samples:
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


_log = logging.getLogger(__name__)


class HostRule:
    """ASGI middleware that refuses requests with a foreign `Host` header, to prevent DNS rebinding.

    In this attack, an attacker's site lets its own host name resolve to this machine, so that its pages can read the
    monitor. Therefore only IP addresses, `localhost` and the names in `allowed` are accepted as hosts, with any port.
    A request without `Host` is accepted too.
    """

    def __init__(self, app: ASGIApp, *, allowed: Iterable[str]) -> None:
        """
        Args:
            allowed: more hosts to accept, as `parse_host` returns them. Their ports are ignored.
        """
        self._app, self._allowed = app, frozenset(map(_host_name, ("localhost", *allowed)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http":
            headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
            hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
            if len(hosts) > 1 or not all(map(self._is_known, hosts)):
                text = "the monitor does not accept this host name: allow it with --monitor-allow-host"
                await refuse(403, "host_refused", text)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        name = _host_name(host)
        if name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _host_name(host: str) -> str:
    """Return the name or the address of a `Host` header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()


def create_monitor(
    observe: Callable[[], Awaitable[Observed]], not_ready: Callable[[], str | None], allowed: Iterable[str] = ()
) -> ASGIApp:
    """Create the application that serves `/healthz`, `/readyz` and `/metrics`.

    Args:
        observe: returns what a scrape of `/metrics` shows.
        not_ready: returns why the process is not ready; None if it is ready.
        allowed: see `HostRule`.
    """

    async def healthz(request: Request) -> Response:
        del request
        return answer({"status": "alive"})  # the event loop answers

    async def readyz(request: Request) -> Response:
        del request
        reason = not_ready()
        return answer({"status": "ready"}) if reason is None else answer({"status": "not ready", "reason": reason}, 503)

    async def metrics(request: Request) -> Response:
        del request
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MetricsCollector(await observe()))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
    return HostRule(Starlette(routes=routes), allowed=allowed)


@asynccontextmanager
async def monitored(
    host: str,
    port: int,
    *,
    observe: Callable[[], Awaitable[Observed]],
    not_ready: Callable[[], str | None],
    allowed: Iterable[str] = (),
    bounds: MonitorBounds = DEFAULT_MONITOR_BOUNDS,
) -> AsyncGenerator[None, None]:
    """Serve the monitor during the block. The event `monitor.begun` has its address.

    Args:
        host: address to listen on; also accepted as a host name.
        port: port to listen on; 0 takes a free port.
        observe, not_ready: see `create_monitor`.
        allowed: more hosts to accept, as clients name them in the header `Host`. Their ports are ignored.
        bounds: periods and limits.

    Raises:
        PortInUse: another program listens on this port.
        AddressRefused: the operating system refused to listen on this address.
        InvalidHost: an allowed host is no host.
    """
    hosts = [shown_host(host), *map(parse_host, allowed)]
    with listen(host, port) as listener:
        address = f"http://{shown_host(host)}:{listener.getsockname()[1]}"
        app = create_monitor(observe, not_ready, hosts)

        def on_started() -> None:
            write_event(_log, MonitorBegun(address=address))

        serve = partial(
            serve_app,
            app,
            listener,
            closing=anyio.Event(),
            grace=bounds.grace_seconds,
            on_started=on_started,
            bounds=HttpBounds(connections=bounds.connections),
        )
        async with in_background(serve):
            yield


class MetricRow(NamedTuple):
    """One metric."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    """what the metric counts or shows"""
    labels: tuple[str, ...] = ()
    """names of its labels beside `namespace`, which all metrics have"""


_GROUP = ("group", "agent")

METRICS: Mapping[str, MetricRow] = {
    "lanebus_ready": MetricRow("gauge", "1 if /readyz answers 200, else 0"),
    "lanebus_server_up": MetricRow("gauge", "1 if the bus's server answers this process and refuses nothing, else 0"),
    "lanebus_server_info": MetricRow(
        "gauge",
        "1 for each primary, with its address, version and appendfsync",
        ("node", "product", "version", "fsync"),
    ),
    "lanebus_server_memory_bytes": MetricRow("gauge", "Memory in use by a primary", ("node",)),
    "lanebus_server_memory_limit_bytes": MetricRow("gauge", "maxmemory of a primary; 0 means no limit", ("node",)),
    "lanebus_publishes_total": MetricRow("counter", "Publishes of this process by outcome", ("outcome",)),
    "lanebus_publish_seconds": MetricRow("histogram", "Time of a publish from the call to its outcome"),
    "lanebus_publish_batch_publishes": MetricRow("histogram", "Publishes that share one round trip"),
    "lanebus_publishes_in_flight": MetricRow("gauge", "Publishes that were sent and not answered"),
    "lanebus_publishes_queued": MetricRow("gauge", "Publishes that wait to be sent"),
    "lanebus_followers": MetricRow("gauge", "Followers of sessions in this process"),
    "lanebus_follower_lag_entries": MetricRow("gauge", "Entries that the slowest follower has not taken yet"),
    "lanebus_follower_lag_bytes": MetricRow("gauge", "JSON that waits for all followers"),
    "lanebus_followers_fell_behind_total": MetricRow(
        "counter", "How often a follower was too slow for its buffer, and read the log again"
    ),
    "lanebus_log_lost_total": MetricRow(
        "counter", "How often this process found that the log was emptied, or is an older copy: rolled_back", ("kind",)
    ),
    "lanebus_http_connections": MetricRow("gauge", "Open connections to the page's server"),
    "lanebus_http_connections_refused_total": MetricRow(
        "counter", "Connections to the page's server that were refused, because it or their address had too many"
    ),
    "lanebus_work_waiting": MetricRow(
        "gauge", "Sessions that wait for a worker; with an empty group, of agents that no worker ever served", _GROUP
    ),
    "lanebus_work_waiting_age_seconds": MetricRow(
        "gauge", "Time since the last append to the session that waits for longest; 0 if none waits", _GROUP
    ),
    "lanebus_work_pending": MetricRow("gauge", "Sessions that a worker has", _GROUP),
    "lanebus_work_delayed": MetricRow("gauge", "Sessions that wait for their next attempt", _GROUP),
    "lanebus_agent_sessions": MetricRow("gauge", "Sessions that belong to an agent", ("agent",)),
    "lanebus_agent_workers": MetricRow("gauge", "Live workers of a group that serve an agent; 0 if none does", _GROUP),
    "lanebus_run_age_seconds": MetricRow(
        "gauge",
        "Time since the oldest run of an agent began, or went on after an approval; 0 if none runs",
        ("agent",),
    ),
    "lanebus_approvals_waiting": MetricRow("gauge", "Tool calls that a person has yet to approve or deny", ("agent",)),
    "lanebus_approval_age_seconds": MetricRow(
        "gauge", "Time since the oldest of these tool calls began to wait; 0 if none waits", ("agent",)
    ),
    "lanebus_dead_letters": MetricRow("gauge", "Dead letters", ("group",)),
    "lanebus_dead_letters_dropped_total": MetricRow(
        "counter", "Dead letters that were deleted to make room", ("group",)
    ),
    "lanebus_consumers": MetricRow("gauge", "Workers of a group, alive or silent", ("group", "state")),
    "lanebus_worker_info": MetricRow("gauge", "1, with the worker's name and group", ("worker", "group")),
    "lanebus_worker_draining": MetricRow("gauge", "1 if the worker stops after its present sessions, else 0"),
    "lanebus_worker_concurrency": MetricRow("gauge", "Most sessions that the worker runs at a time"),
    "lanebus_sessions_running": MetricRow("gauge", "Sessions that the worker runs, or tries again itself"),
    "lanebus_leases_held": MetricRow("gauge", "Leases that the worker holds and renews"),
    "lanebus_tool_threads_abandoned": MetricRow("gauge", "Threads that still run sync tools whose calls were stopped"),
    "lanebus_session_keys_most": MetricRow(
        "gauge", "Most publish keys that a session remembers, of those that the worker ran; no key is ever forgotten"
    ),
    "lanebus_leases_lost_total": MetricRow("counter", "Leases that were lost while their session ran"),
    "lanebus_agent_runs_total": MetricRow("counter", "Calls of an agent"),
    "lanebus_work_retried_total": MetricRow(
        "counter", "Attempts at a session that failed and are repeated after a pause"
    ),
    "lanebus_work_dead_total": MetricRow("counter", "Works that became dead letters"),
    "lanebus_work_handed_back_total": MetricRow("counter", "Unfinished sessions that were returned to the group"),
    "lanebus_loops_total": MetricRow("counter", "Ended loops by agent and stop reason", ("agent", "outcome")),
    "lanebus_turns_total": MetricRow(
        "counter", "Ended turns by agent, model and stop reason", ("agent", "model", "outcome")
    ),
    "lanebus_turn_seconds": MetricRow("histogram", "Time of a turn: the model call with its tools"),
    "lanebus_tokens_total": MetricRow(
        "counter", "Tokens by model and kind: input, output, cache_read, cache_write", ("model", "kind")
    ),
    "lanebus_cost_dollars_total": MetricRow("counter", "US dollars by model, as far as prices are known", ("model",)),
    "lanebus_prompts_total": MetricRow(
        "counter", "Model calls by whether a part of the prompt came from the cache: hit or miss", ("model", "cache")
    ),
    "lanebus_model_failures_total": MetricRow(
        "counter", "Failed model calls by HTTP status; empty if there is none", ("model", "status")
    ),
}
"""all metrics by name, in the order in which a scrape prints them"""
