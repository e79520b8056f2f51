"""One scrape has every metric of the table, and all that the alerts, the dashboard and the reference name."""

import json
import re
import subprocess
from itertools import count
from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from docs.site.tables import fill_in
from lanebus import Bus, UserMessage
from lanebus.agent import AgentLoop, OfflineModel, Worker
from lanebus.bus import Histogram
from lanebus.bus.publishing.publisher import OUTCOMES
from lanebus.errors import Conflict, Unavailable
from lanebus.handlers.agent import ConnectionCounts, LabelledCounts, ServerHealth
from lanebus.handlers.serve import Observed, ObservedWorker, ServerReader
from lanebus.handlers.serve.monitor import METRICS, MetricsCollector
from lanebus.handlers.serve.readings import MonitorBounds, Reading
from tests.support.agent.agents import wait_for
from tests.support.cli.command_line import CommandLine
from tests.support.log.groups import take_all, wake
from tests.support.log.said import said
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer

RULES, BOARD = (ROOT / "handlers/serve/data" / name for name in ("lanebus.rules.yml", "lanebus.json"))
NAME = re.compile(r"\blanebus_[a-z_]+\b")


async def observed(bus: Bus, worker: Worker | None = None) -> Observed:
    reading = await ServerReader(bus, (), MonitorBounds(cached_seconds=0.0)).read()
    of_worker = None if worker is None else ObservedWorker(worker.counts, worker.status)
    return Observed(
        bus.log.keys.namespace, bus.monitor.counts(), reading, ServerHealth(), True, of_worker, ConnectionCounts()
    )


def scraped(found: Observed) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(found))
    return generate_latest(registry).decode()


def sample(text: str, name: str, **labels: str) -> float:
    """The value of one sample of a scrape."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    (value,) = [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]
    return value


def named(path: Path) -> str:
    """The text of the alerts, or the queries of the dashboard."""
    text = path.read_text()
    if path != BOARD:
        return text
    return "\n".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])


async def test_a_scrape_has_every_metric_of_the_table_and_all_that_alerts_and_dashboard_name(bus: Bus) -> None:
    async with Worker(bus, AgentLoop(OfflineModel())) as worker:
        session = bus.session("s")
        await session.publish(UserMessage.text("hello"))
        await wait_for(session, "agent.ended")
        text = scraped(await observed(bus, worker))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert kinds == {name: row.kind for name, row in METRICS.items()}
    assert [name for name, row in METRICS.items() if f"# HELP {name} {row.text}\n" not in text] == []
    parts = {f"{name}{end}" for name in kinds for end in ("_bucket", "_sum", "_count") if kinds[name] == "histogram"}
    assert {*NAME.findall(named(RULES)), *NAME.findall(named(BOARD))} <= {*kinds, *parts}
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    assert {each.labels.get("namespace") for each in samples} == {bus.log.keys.namespace}


def test_alerts_and_dashboard_never_mix_namespaces() -> None:
    for path in (RULES, BOARD):
        text = named(path)
        kept = re.findall(r"\b(?:by|on) \(([^)]*)\)", text)
        assert kept
        assert [labels for labels in kept if "namespace" not in labels.split(", ")] == []
        assert re.findall(r"\b(?:sum|min|max|count)\(", text) == []  # over all namespaces


def test_metrics_have_names_of_prometheus_and_are_in_the_dashboard_and_the_reference() -> None:
    page, board = fill_in((ROOT / "docs/reference/metrics.md").read_text()), BOARD.read_text()
    for name, row in METRICS.items():
        assert NAME.fullmatch(name)
        assert name.endswith("_total") == (row.kind == "counter"), name
        assert name in board
        assert f"| `{name}` | {row.kind} | {row.text} |" in page
    assert [outcome for outcome in OUTCOMES if f"`{outcome}`" not in page] == []


@pytest.mark.full
def test_a_command_prints_the_alerts_and_the_dashboard_and_opens_no_server(unopened: CommandLine) -> None:
    for words, file in (((), RULES), (("--dashboard",), BOARD)):
        answer = unopened("alerts", *words)
        assert (answer.code, answer.out, answer.err) == (0, file.read_text(encoding="utf-8"), "")
    assert not unopened.data_dir.exists()


def promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_alerts() -> None:
    promtool("check", "rules", str(RULES))


LOST = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'lanebus_log_lost_total{{instance="a", kind="emptied"}}', values: '0x5 1x300'}}
      - {{series: 'lanebus_log_lost_total{{instance="b", kind="emptied"}}', values: '_x5 1x300'}}
      - {{series: 'lanebus_log_lost_total{{instance="c", kind="emptied"}}', values: '0x300'}}
    promql_expr_test:
      - {{expr: "count(ALERTS{{alertname='{name}'}})", eval_time: 10m, exp_samples: [{{value: 2, labels: '{{}}'}}]}}
      - {{expr: "count(ALERTS{{alertname='{name}'}})", eval_time: 3h, exp_samples: []}}
"""
"""a process that finds a loss while it runs, one that finds it before its first scrape, and one that finds none"""


@pytest.mark.full
@pytest.mark.needs("promtool")
def test_a_lost_log_fires_its_alert_for_an_hour_whether_it_is_found_early_or_late(tmp_path: Path) -> None:
    (tmp_path / "lost.yml").write_text(LOST.format(rules=RULES, name="LanebusLogLost"))
    promtool("test", "rules", str(tmp_path / "lost.yml"))


async def test_publishes_are_counted_by_outcome_with_their_time(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(said("a"), key="k")
    await session.publish(said("a"), key="k")
    with pytest.raises(Conflict):
        await session.publish(said("b"), expected=7)
    with pytest.raises(TypeError):
        await session.publish("no message")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    text = scraped(await observed(bus))
    counts = {outcome: sample(text, "lanebus_publishes_total", outcome=outcome) for outcome in OUTCOMES}
    found = {outcome: count for outcome, count in counts.items() if count}
    assert found == {"appended": 1, "duplicate": 1, "refused": 1, "invalid": 1}
    assert sample(text, "lanebus_publish_seconds_count") == 4
    assert sample(text, "lanebus_publish_batch_publishes_sum") == 3


async def test_a_publish_without_a_server_counts_as_unavailable_and_a_cut_one_as_cancelled(valkey: RealServer) -> None:
    async with valkey.bus() as bus:
        session = bus.session("s")
        await session.publish(said("a"))
        valkey.pause()
        with anyio.move_on_after(0.05):
            await session.publish(said("b"))
        assert bus.monitor.counts().in_flight == 1
        valkey.kill()
        with pytest.raises(Unavailable):
            await session.publish(said("c"), seconds=0.05)
        outcomes = bus.monitor.counts().publishes.outcomes
        assert (outcomes["appended"], outcomes["cancelled"], outcomes["unavailable"]) == (1, 1, 1)
        valkey.start()


def clock_of(server: RealServer) -> float:
    """The server's time in seconds."""
    reply = server.do("TIME")
    assert isinstance(reply, list)
    seconds, micros = (int(str(each)) for each in reply)
    return seconds + micros / 1e6


@pytest.mark.full
async def test_waiting_work_is_counted_with_the_age_of_the_session_that_waits_longest(valkey: RealServer) -> None:
    async with valkey.bus() as bus, bus.consumer("g", "c") as consumer:
        await wake(bus, "a")
        await consumer.ack(*await take_all(consumer, 1))
        assert (await bus.group_status("g")).longest_wait is None
        # Of one bucket: the script finds the first one in each, and the heads' times decide between buckets.
        name = next(name for at in count() if bus.bucket_of(name := f"new-{at}") == bus.bucket_of("old"))
        await wake(bus, "old")
        old = (await bus.session("old").head()).updated
        while (await bus.session(name).head()).updated < old + 0.5:  # until the server's clock has moved on
            await wake(bus, name)
        before = clock_of(valkey)
        status = await bus.group_status("g")
        assert status.longest_wait is not None
        assert before - old - 0.01 <= status.longest_wait <= clock_of(valkey) - old + 0.01  # heads have milliseconds
        text = scraped(await observed(bus))
        assert sample(text, "lanebus_work_waiting", group="g") == 2
        assert sample(text, "lanebus_work_waiting_age_seconds", group="g") >= 0.5


async def test_memory_and_fsync_are_those_of_the_server(valkey: RealServer) -> None:
    valkey.do("CONFIG", "SET", "maxmemory", "100mb")
    valkey.do("CONFIG", "SET", "appendfsync", "everysec")
    async with valkey.bus() as bus:
        text, node = scraped(await observed(bus)), str(valkey.socket)
        assert sample(text, "lanebus_server_memory_limit_bytes", node=node) == 100 * 2**20
        assert 0 < sample(text, "lanebus_server_memory_bytes", node=node) < 100 * 2**20
        assert sample(text, "lanebus_server_info", node=node, product="Valkey", fsync="everysec") == 1


async def test_a_slow_follower_shows_its_lag(bus: Bus) -> None:
    session = bus.session("s")
    await session.publish(said("first"))
    subscription = aiter(session.follow())
    await anext(subscription)
    await session.publish(*(said(str(number)) for number in range(5)))
    await anext(subscription)  # the hub has read the five, and this follower has taken one
    counts = bus.monitor.counts()
    assert (counts.followers, counts.follower_lag) == (1, 4)
    assert counts.follower_bytes > 0


async def test_sessions_of_an_agent_that_no_worker_ever_served_wait_without_a_group(bus: Bus) -> None:
    await bus.session("s", agent="support").publish(UserMessage.text("hi"))
    waits = scraped(await observed(bus))
    assert sample(waits, "lanebus_work_waiting", group="", agent="support") == 1
    async with bus.consumer("agents", "w1", agents=("support",)) as consumer:
        await take_all(consumer, 1)
        served = scraped(await observed(bus))
    assert sample(served, "lanebus_agent_workers", agent="support") == 1
    assert 'lanebus_work_waiting{agent="support",group=""}' not in served


async def test_a_reading_is_shared_while_it_is_fresh_and_empty_without_a_server(valkey: RealServer) -> None:
    async with valkey.bus() as bus:
        kept, anew = (
            ServerReader(bus, (), MonitorBounds(cached_seconds=fresh, read_seconds=0.5)) for fresh in (3600.0, 0.0)
        )
        first = await kept.read()
        assert first.is_answered
        valkey.kill()
        assert await kept.read() is first
        assert await anew.read() == Reading()
        valkey.start()


def test_labels_beyond_the_bound_are_counted_as_other() -> None:
    counts = LabelledCounts("model", "kind", most=2)
    for number in range(5):
        counts.add(f"m{number}", "input", amount=2)
        counts.add("m0", "input")
    assert counts.sums == {("m0", "input"): 7, ("m1", "input"): 2, ("other", "other"): 6}


def test_a_value_at_the_bound_of_a_range_is_in_that_range() -> None:
    values = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        values.add(value)
    assert (values.counts, values.total) == ([2, 2, 1], 8.0)
