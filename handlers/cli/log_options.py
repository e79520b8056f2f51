"""The options of programs that run long: `--log-level`, `--log-format`, `--monitor`, and what they install."""

import json
import logging
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from traceback import extract_tb
from typing import NamedTuple, TypeVar, cast

import click

from lanebus.bus import Bus
from lanebus.bus.errors import (
    BusError,
    Closed,
    MediaDamaged,
    MediaMissing,
    MissingExtra,
    SetupError,
    StreamError,
    Unavailable,
)
from lanebus.bus.text import number_in, without_secrets
from lanebus.handlers.agent import (
    ConnectionCounts,
    LogWatch,
    ServerHealth,
    ServerUnsafe,
    Worker,
    common_fields,
    in_background,
    watch_server,
    write_event,
)
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.output import plain
from lanebus.handlers.serve import DEFAULT_MONITOR_BOUNDS

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., object])


def log_options(command: F) -> F:
    """Add `--log-level` and `--log-format` to a command, and pass them to it as `log_level` and `log_format`."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Least severe lines to log to stderr.  [env var: LANEBUS_LOG_LEVEL]",
        show_default=True,
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["auto", "text", "json"]),
        default="auto",
        help="Form of the lines; auto: text on a terminal, else JSON.  [env var: LANEBUS_LOG_FORMAT]",
        show_default=True,
    )
    return level(form(command))


@contextmanager
def logging_to_stderr(level: str, form: str) -> Generator[bool, None, None]:
    """Log to stderr during the block: lanebus from `level` on, other packages from warnings on.

    Args:
        level: debug, info, warning or error.
        form: text, json, or auto.

    Yields:
        Whether lines are JSON. Then print no other text to stderr.
    """
    is_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if is_json else TerminalLines())
    root, own = logging.getLogger(), logging.getLogger("lanebus")
    levels = root.level, own.level
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    own.setLevel(level.upper())
    try:
        with warnings.catch_warnings():
            if is_json:
                warnings.showwarning = _log_warning
            yield is_json
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        own.setLevel(levels[1])


def _log_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Log a warning as JSON: an event, if it is of the server."""
    from lanebus.bus.servers import DurabilityWarning  # noqa: PLC0415  # loads the bus, which --help does not need

    if issubclass(category, DurabilityWarning):
        write_event(_log, ServerUnsafe(fault=str(message)))
    else:
        _log.warning("%s", message)


# Log lines for a terminal, and as JSON for programs.
#
# Errors are shown without their texts, which may quote a message, a tool's arguments or a key. Only errors of the bus
# that are made from ids and numbers keep theirs.

_WITH_TEXT: tuple[type[BusError], ...] = (Closed, MediaDamaged, MediaMissing, SetupError, StreamError, Unavailable)


def shown_error(error: BaseException) -> str:
    """Return the name of an error's type. The error's text is added only for types of the bus whose text never quotes
    a session's messages."""
    name = type(error).__name__
    return without_secrets(f"{name}: {error}") if isinstance(error, _WITH_TEXT) else name


class _Lines(logging.Formatter):
    def __init__(self, frames: int = 20) -> None:
        """
        Args:
            frames: maximum number of stack frames to show of an error; the innermost frames are shown.
        """
        super().__init__()
        self._frames = frames

    def _text(self, record: logging.LogRecord) -> str:
        """Return the message, with errors among its arguments as `shown_error` shows them."""
        if not isinstance(record.args, tuple) or not record.args:
            return record.getMessage()
        arguments = tuple(shown_error(each) if isinstance(each, BaseException) else each for each in record.args)
        return record.msg % arguments if isinstance(record.msg, str) else str(record.msg)

    def _fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """Return the fields of an event; for other records, the common fields of the task."""
        values = cast("dict[str, object]", record.__dict__)
        if "event" in values:
            known = values.keys() - _STANDARD
            return {name: values[name] for name in values if name in known}
        return common_fields()

    def _stack(self, record: logging.LogRecord) -> Sequence[str]:
        """Return the error of a record and the lines that raised it; empty if the record has no error."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return ()
        frames = extract_tb(error.__traceback__)[-self._frames :]
        return [shown_error(error), *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class TerminalLines(_Lines):
    """Formats a record as one line for people: time, level, text. An error adds a line for each stack frame."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        text = without_secrets(self._text(record))
        if "event" not in record.__dict__:
            shown = [f"{name}={value}" for name, value in self._fields(record).items() if value not in {"", None}]
            text = " ".join((text, *shown))
        head = f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03} {record.levelname:<7} {plain(text)}"
        return "\n    ".join((head, *(plain(line) for line in self._stack(record))))


class JsonLines(_Lines):
    """Formats a record as one line of JSON, in ASCII: time (UTC), level, logger, event or message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if "event" not in record.__dict__:
            line["message"] = plain(without_secrets(self._text(record)))
        line |= self._fields(record)
        if stack := self._stack(record):
            line["exception"], line["stack"] = stack[0], list(stack[1:])
        return json.dumps(line, default=str)


# The options `--monitor` and `--monitor-allow-host`, and the monitor of a command.


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
