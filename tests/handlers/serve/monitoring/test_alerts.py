"""The alerts that fire for each fault: faults of real processes, and what Prometheus makes of their metrics."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lanebus import UserMessage
from lanebus.bus.servers import acl_users
from lanebus.handlers.cli.group import COMMANDS
from tests.support.agent.agents import until
from tests.support.cli.command_line import CommandLine
from tests.support.cli.monitored import Monitored, looks, monitored_command
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer, copied, empty, eventually, spawn

RULES = ROOT / "handlers/serve/data/lanebus.rules.yml"
AGENTS = "tests.support.agent.api_agent"


class Scene:
    """A server, and the processes that Prometheus scrapes."""

    def __init__(self, server: RealServer, lanebus: CommandLine, stack: AsyncExitStack) -> None:
        self.server, self._lanebus, self._stack = server, lanebus, stack
        self.processes: dict[str, Monitored] = {}

    async def page(self, name: str = "page", *, url: str = "", namespace: str = "lanebus") -> Monitored:
        """Start `lanebus serve`."""
        options = ("--url", url or self.server.url, "--namespace", namespace, "--port", "0")
        return await self._start(name, "serve", *options)

    async def worker(
        self, agent: str, *options: str, name: str = "worker", namespace: str = "lanebus", heartbeat: float = 6
    ) -> Monitored:
        """Start a worker. A third of its heartbeat is the time-out of a request."""
        bus = ("--url", self.server.url, "--namespace", namespace, "--name", name, "--heartbeat", str(heartbeat))
        return await self._start(name, "worker", f"{AGENTS}:{agent}", *bus, *options)

    async def _start(self, name: str, *command: str) -> Monitored:
        process = await self._stack.enter_async_context(monitored_command(self._lanebus, *command))
        self.processes[name] = process
        await process.wait_reason(None)
        return process

    async def ask(
        self, session: str, agent: str | None = None, text: str = "Please roll 2d6.", *, namespace: str = "lanebus"
    ) -> None:
        """Send a message."""
        async with self.server.bus(namespace) as bus:
            await bus.session(session, agent=agent).publish(UserMessage.text(text))

    def restricted_url(self, *more: str) -> str:
        """Give the user of `lanebus acl` its rights, and `more` of them. Return the server's URL with this user."""
        user = acl_users("lanebus")[1]
        self.server.do("ACL", "SETUSER", user.name, *user.rules, *more, ">secret")
        return f"unix://{user.name}:secret@{self.server.socket}"

    async def scrape(self) -> dict[str, str]:
        """The metrics of each process; "" of one that does not answer."""
        found: dict[str, str] = {}
        for name, process in self.processes.items():
            try:
                found[name] = (await process.get("/metrics")).text
            except httpx2.TransportError:
                found[name] = ""
        return found


async def has(process: Monitored, name: str, least: float = 1) -> None:
    """Wait until a sample whose name with its labels begins with `name` is at least `least`."""

    async def is_so() -> bool:
        return any(key.startswith(name) and value >= least for key, value in (await process.metrics()).items())

    await until(is_so)


async def lacks(process: Monitored, name: str) -> None:
    """Wait until no sample's name begins with `name`."""

    async def is_so() -> bool:
        return not any(key.startswith(name) for key in await process.metrics())

    await until(is_so)


Fault = AsyncGenerator[None, None]
"""It makes a fault, and yields twice: when all is well, and when the metrics of all processes show the fault."""


async def no_fault(scene: Scene) -> Fault:
    worker = await scene.worker("asking")
    await scene.page()
    yield
    await scene.ask("s", "asking", "hello")
    await has(worker, "lanebus_loops_total", 1)
    yield


async def server_down(scene: Scene) -> Fault:
    processes = await scene.worker("asking"), await scene.page()
    yield
    scene.server.stop()
    for process in processes:
        await process.wait_reason("")
        await lacks(process, "lanebus_server_info")
    yield


async def memory_full(scene: Scene) -> Fault:
    processes = await scene.worker("asking"), await scene.page()
    yield
    used = re.search(r"used_memory:(\d+)", str(scene.server.do("INFO", "memory")))
    assert used is not None
    scene.server.do("CONFIG", "SET", "maxmemory", str(int(used[1]) // 2))
    for process in processes:
        await has(process, "lanebus_server_memory_limit_bytes")
    await processes[0].wait_reason("")  # a heartbeat is a write
    yield


async def log_emptied(scene: Scene) -> Fault:
    processes = await scene.worker("asking"), await scene.page()
    await eventually(lambda: looks(scene.server) > 0)
    yield
    empty(scene.server)
    for process in processes:
        await has(process, 'lanebus_log_lost_total{kind="emptied"}')
        await has(process, "lanebus_server_up")
    yield


async def log_rolled_back(scene: Scene) -> Fault:
    processes = await scene.worker("asking"), await scene.page()
    await eventually(lambda: looks(scene.server) > 0)
    with copied(scene.server) as restore:
        seen = looks(scene.server)
        await eventually(lambda: looks(scene.server) > seen + 3)  # each process has seen more than the copy
        for process in processes:
            await has(process, "lanebus_ready")
        yield
        restore()
    for process in processes:
        await has(process, 'lanebus_log_lost_total{kind="rolled_back"}')
        await has(process, "lanebus_server_up")
    yield


async def no_worker(scene: Scene) -> Fault:
    page, worker = await scene.page(), await scene.worker("asking")
    yield
    await worker.end(signal.SIGTERM)
    del scene.processes["worker"]  # as if its container was removed
    await scene.ask("s", "asking")
    await has(page, 'lanebus_work_waiting{agent="asking",group="agents"}')
    yield


async def lease_lost(scene: Scene) -> Fault:
    worker = await scene.worker("endless", name="w1", heartbeat=2)
    await scene.ask("s")
    await has(worker, "lanebus_leases_held")
    other = await scene.worker("endless", name="w2", heartbeat=2)
    yield
    worker.process.send_signal(signal.SIGSTOP)
    await has(other, "lanebus_leases_held")
    worker.process.send_signal(signal.SIGCONT)
    await has(worker, "lanebus_leases_lost_total")
    yield


async def dead_letter(scene: Scene) -> Fault:
    worker = await scene.worker("broken", "--attempts", "1")
    await has(worker, "lanebus_ready")
    yield
    await scene.ask("s")
    await has(worker, "lanebus_work_dead_total")
    await has(worker, "lanebus_dead_letters{")
    yield


async def loop_fails(scene: Scene) -> Fault:
    worker = await scene.worker("agent")
    yield
    await scene.ask("s", "support")  # no model answers at its address
    await has(worker, 'lanebus_loops_total{agent="support",outcome="error"}')
    yield


async def lag(scene: Scene) -> Fault:
    worker = await scene.worker("endless", "--concurrency", "1")
    await scene.ask("first")
    await has(worker, "lanebus_sessions_running")
    yield
    await scene.ask("second")
    await has(worker, "lanebus_work_waiting{")
    yield


async def not_durable(scene: Scene) -> Fault:
    page = await scene.page()
    yield
    scene.server.do("CONFIG", "SET", "appendfsync", "everysec")
    await has(page, 'lanebus_server_info{fsync="everysec"')
    yield


async def durability_unknown(scene: Scene) -> Fault:
    page = await scene.page(url=scene.restricted_url("+config|get"))
    yield
    scene.restricted_url("-config|get")
    await has(page, 'lanebus_server_info{fsync="unknown"')
    yield


async def durability_known_to_one(scene: Scene) -> Fault:
    await scene.page("administrator")
    async for _ in durability_unknown(scene):
        yield


async def approval_waiting(scene: Scene) -> Fault:
    processes = await scene.worker("asking"), await scene.page()
    yield
    await scene.ask("s", "asking")
    for process in processes:
        await has(process, 'lanebus_approval_age_seconds{agent="asking"}', 0.001)
    yield


async def run_takes_long(scene: Scene) -> Fault:
    worker = await scene.worker("endless")
    yield
    await scene.ask("s")
    await has(worker, 'lanebus_run_age_seconds{agent="agent"}', 0.001)
    yield


async def process_down(scene: Scene) -> Fault:
    page = await scene.page()
    yield
    await page.end(signal.SIGKILL)
    yield


class Row(NamedTuple):
    """A fault, and the alerts that fire for it: these and no others."""

    fault: Callable[[Scene], Fault]
    alerts: set[str]
    minutes: int = 14
    """when they are looked at: later than the rules wait, and as early as the `increase` of others still covers it"""


ROWS = (
    Row(no_fault, set()),
    Row(server_down, {"LanebusServerDown"}),
    Row(memory_full, {"LanebusServerMemory", "LanebusServerDown"}),
    Row(log_emptied, {"LanebusLogLost", "LanebusNotReady"}),
    Row(log_rolled_back, {"LanebusLogLost"}),
    Row(no_worker, {"LanebusNoWorkers", "LanebusAgentWithoutWorker", "LanebusWorkWaits"}),
    Row(lease_lost, {"LanebusLeasesLost"}),
    Row(dead_letter, {"LanebusDeadLetters"}),
    Row(loop_fails, {"LanebusLoopsFail"}),
    Row(lag, {"LanebusWorkWaits"}),
    Row(not_durable, {"LanebusNotDurable"}),
    Row(durability_unknown, {"LanebusNotDurable"}),
    Row(durability_known_to_one, set()),
    Row(approval_waiting, {"LanebusApprovalWaits"}, minutes=75),
    Row(run_takes_long, {"LanebusRunTakesLong"}, minutes=45),
    Row(process_down, {"LanebusProcessDown"}),
)


@pytest.mark.full
@pytest.mark.needs("promtool")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault.__name__)
async def test_a_fault_fires_its_alerts_and_no_others(
    row: Row, valkey: RealServer, lanebus: CommandLine, tmp_path: Path
) -> None:
    async with scene_of(valkey, lanebus) as scene:
        before, after = [await scene.scrape() async for _ in row.fault(scene)]
    series = stored(before, after, row.minutes)
    check_alerts(tmp_path, series, set(), at=HEALTHY - 1)
    check_alerts(tmp_path, series, {(alert,) for alert in row.alerts}, at=HEALTHY + row.minutes)


@pytest.mark.full
@pytest.mark.needs("promtool")
async def test_workers_of_one_namespace_do_not_hide_the_outage_of_another(
    valkey: RealServer, lanebus: CommandLine, tmp_path: Path
) -> None:
    async with scene_of(valkey, lanebus) as scene:
        mine = await scene.worker("asking", namespace="mine")
        await scene.page(namespace="mine")
        yours = await scene.worker("asking", name="other", namespace="yours")
        await mine.end(signal.SIGTERM)
        del scene.processes["worker"]
        await scene.ask("s", "asking", namespace="mine")
        await has(scene.processes["page"], 'lanebus_work_waiting{agent="asking",group="agents"}')
        await has(yours, 'lanebus_consumers{group="agents",state="alive"}')
        found = await scene.scrape()
    fired = {(alert, "mine") for alert in ("LanebusNoWorkers", "LanebusAgentWithoutWorker", "LanebusWorkWaits")}
    series = stored(found, found, 14)
    check_alerts(tmp_path, series, fired, at=HEALTHY + 14, by=("alertname", "namespace"))


def test_alerts_name_commands_that_exist() -> None:
    named = re.findall(r"`lanebus ([a-z-]+)", RULES.read_text())
    assert len(named) > 5
    assert {*named} <= {name for names in COMMANDS.values() for name in names}


HEALTHY = 20
"""minutes before a fault"""


@asynccontextmanager
async def scene_of(server: RealServer, lanebus: CommandLine) -> AsyncGenerator[Scene]:
    async with AsyncExitStack() as stack:
        yield Scene(server, lanebus, stack)


def samples_of(scrapes: Mapping[str, str]) -> dict[str, float]:
    """The samples of all processes, as Prometheus stores them for the job `lanebus`."""
    found: dict[str, float] = {}
    for instance, text in scrapes.items():
        place = {"job": "lanebus", "instance": instance}
        found[named("up", place)] = float(bool(text))
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                found[named(each.name, {**each.labels, **place})] = each.value
    return found


def named(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels.items())}}}"


def stored(before: Mapping[str, str], after: Mapping[str, str], minutes: int) -> dict[str, str]:
    """Return what Prometheus has stored, in promtool's notation: a sample a minute, of one scrape and then of another.

    Ages grow meanwhile, as they would.
    """
    first, then = samples_of(before), samples_of(after)
    series: dict[str, str] = {}
    for name in {**first, **then}:
        old, new = first.get(name), then.get(name)
        growth = 60 if name.partition("{")[0].endswith("_age_seconds") and new else 0
        early = f"_x{HEALTHY}" if old is None else f"{old!r}+0x{HEALTHY - 1}"
        late = f"stale _x{minutes}" if new is None else f"{new!r}+{growth}x{minutes}"
        series[name] = f"{early} {late}"
    return series


def check_alerts(
    folder: Path,
    series: Mapping[str, str],
    fired: Collection[tuple[str, ...]],
    *,
    at: int,
    by: Sequence[str] = ("alertname",),
) -> None:
    """Let promtool evaluate the rules, and check the labels `by` of the alerts that fire at a minute."""
    query = {
        "expr": f'group by ({", ".join(by)}) (ALERTS{{alertstate="firing"}})',
        "eval_time": f"{at}m",
        "exp_samples": [{"labels": named("", dict(zip(by, each, strict=True))), "value": 1} for each in fired],
    }
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "1m", "input_series": inputs, "promql_expr_test": [query]}
    file = folder / "alerts.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.needs("prometheus")
async def test_prometheus_scrapes_the_processes_and_fires_the_alerts(
    valkey: RealServer, lanebus: CommandLine, tmp_path: Path
) -> None:
    async with scene_of(valkey, lanebus) as scene:
        await scene.worker("asking")
        page = await scene.page()
        async with prometheus(tmp_path, [await each.address() for each in scene.processes.values()]) as ask:

            async def is_all_up() -> bool:
                try:
                    found = (await ask("query?query=sum(up)")).json()["data"]["result"]
                except (httpx2.TransportError, ValueError):
                    return False  # it is starting
                return bool(found) and float(found[0]["value"][1]) == 2

            async def fires(*expected: str) -> None:
                """Wait until these alerts fire, and no others."""

                async def is_so() -> bool:
                    alerts = (await ask("alerts")).json()["data"]["alerts"]
                    return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"} == {*expected}

                await until(is_so)

            await until(is_all_up)
            await fires()
            valkey.stop()
            await fires("LanebusServerDown")
            valkey.start()
            await fires()
            await page.end(signal.SIGKILL)
            await fires("LanebusProcessDown")


Ask = Callable[[str], Awaitable[httpx2.Response]]


@asynccontextmanager
async def prometheus(folder: Path, addresses: Sequence[str]) -> AsyncGenerator[Ask]:
    """Run a Prometheus that scrapes these addresses often, with rules that do not wait."""
    rules, config = folder / "rules.yml", folder / "prometheus.json"
    rules.write_text(re.sub(r"\bfor: \w+", "for: 0s", RULES.read_text()))
    targets = [address.removeprefix("http://") for address in addresses]
    job = {"job_name": "lanebus", "static_configs": [{"targets": targets}]}
    often = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "500ms"}
    config.write_text(json.dumps({"global": often, "rule_files": [str(rules)], "scrape_configs": [job]}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ("--config.file", str(config), "--storage.tsdb.path", str(folder / "data"))
    process = spawn("prometheus", *options, "--web.listen-address", address)
    try:
        async with httpx2.AsyncClient(base_url=f"http://{address}/api/v1/") as client:
            yield client.get
    finally:
        process.kill()
        process.wait()
