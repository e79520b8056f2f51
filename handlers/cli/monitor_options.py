"""The options `--monitor` and `--monitor-allow-host`, and the monitor of a command."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

import click

from lanebus.bus import Bus
from lanebus.bus.errors import MissingExtra
from lanebus.bus.text import number_in
from lanebus.handlers.agent import ConnectionCounts, LogWatch, ServerHealth, Worker, in_background, watch_server
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.serve import DEFAULT_MONITOR_BOUNDS

F = TypeVar("F", bound=Callable[..., object])

_EXTRA = frozenset({"prometheus_client", "starlette", "uvicorn"})


class MonitorAddress(NamedTuple):
    """Where the monitor listens."""

    host: str
    port: int
    allowed: tuple[str, ...] = ()
    """more host names to accept"""

    @classmethod
    def parse(cls, text: str | None, allowed: tuple[str, ...]) -> "MonitorAddress | None":
        """Parse HOST:PORT, with an IPv6 address in brackets. Return None if `text` is None.

        Raises:
            WrongUsage: `text` is not an address.
        """
        if text is None:
            return None
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        number = number_in(port)
        if not colon or not host or number is None or number > 65535:
            raise WrongUsage(
                f"--monitor {text[:100]!r} is no address", "write HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464"
            )
        return cls(host, number, allowed)


def monitor_options(command: F) -> F:
    """Add `--monitor` and `--monitor-allow-host` to a command, and pass them to it as `monitor` and
    `monitor_allowed`."""
    address = click.option(
        "--monitor",
        metavar="HOST:PORT",
        help="Serve /healthz, /readyz and /metrics here, without a token; default: off.  [env var: LANEBUS_MONITOR]",
    )
    allowed = click.option(
        "--monitor-allow-host",
        "monitor_allowed",
        multiple=True,
        metavar="HOST",
        help="Accept requests to the monitor under this host name too; may be repeated.",
    )
    return address(allowed(command))


@asynccontextmanager
async def worker_monitor(bus: Bus, worker: Worker, address: MonitorAddress | None) -> AsyncGenerator[None, None]:
    """Serve the monitor of a worker during the block, if there is an address.

    Raises:
        MissingExtra: the packages of the extra `metrics` are not installed.
        SetupError: the process cannot listen on the address.
    """

    def not_ready() -> str | None:
        status = worker.status
        if status.is_draining:
            return "the worker drains: it stops after its present sessions"
        if not status.is_running:
            return "the worker does not run"
        return worker.health.reason or worker.log_watch.reason

    async with _monitor(bus, worker.health, address, not_ready=not_ready, worker=worker, groups=(worker.status.group,)):
        yield


@asynccontextmanager
async def page_monitor(
    bus: Bus, address: MonitorAddress | None, connections: ConnectionCounts | None = None
) -> AsyncGenerator[None, None]:
    """Serve the monitor of `lanebus serve` during the block, if there is an address.

    Outages of the bus's server, and losses of its log, are logged during the block, even without an address.

    Args:
        bus: the bus.
        address: where the monitor listens; None means nowhere.
        connections: the connections to the page, for the metrics.

    Raises:
        MissingExtra: the packages of the extra `metrics` are not installed.
        SetupError: the process cannot listen on the address.
    """
    bounds = DEFAULT_MONITOR_BOUNDS
    log_watch = LogWatch(bus.namespace, pause=bounds.look_seconds, seconds=bounds.ping_seconds)
    health = ServerHealth(found=log_watch.look_soon)

    async def watch() -> None:
        await watch_server(bus, health, pause=bounds.ping_pause_seconds, seconds=bounds.ping_seconds)

    def not_ready() -> str | None:
        return health.reason or log_watch.reason

    shown = _monitor(bus, health, address, not_ready=not_ready, connections=connections)
    async with in_background(watch, log_watch.run), shown:
        yield


@asynccontextmanager
async def _monitor(
    bus: Bus,
    health: ServerHealth,
    address: MonitorAddress | None,
    *,
    not_ready: Callable[[], str | None],
    worker: Worker | None = None,
    groups: Sequence[str] = (),
    connections: ConnectionCounts | None = None,
) -> AsyncGenerator[None, None]:
    if address is None:
        yield
        return
    try:  # these packages are an extra and may be missing
        from lanebus.handlers.serve import (  # noqa: PLC0415
            Observed,
            ObservedWorker,
            ServerReader,
            monitored,
        )
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise MissingExtra(str(error.name), "metrics") from None
        raise
    reader = ServerReader(bus, groups, DEFAULT_MONITOR_BOUNDS)

    async def observe() -> Observed:
        observed = None if worker is None else ObservedWorker(worker.counts, worker.status)
        counts = bus.monitor.counts()
        return Observed(
            bus.log.keys.namespace, counts, await reader.read(), health, not_ready() is None, observed, connections
        )

    async with monitored(address.host, address.port, observe=observe, not_ready=not_ready, allowed=address.allowed):
        yield
