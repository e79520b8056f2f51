"""The table of all metrics: name, kind, meaning and labels."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

__all__ = ("METRICS", "MetricRow")


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
