"""Run the coroutine of a command, cancel it on Ctrl-C or SIGTERM, and open the bus or the session that it needs."""

import asyncio
import logging
import os
import signal
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from hashlib import sha256
from importlib.metadata import entry_points
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import anyio
import click

from lanebus.bus import (
    BEGINS,
    NO_TRACING,
    Bus,
    NamespaceLog,
    Redact,
    Session,
    Tracing,
    archive_store_at,
    default_state_dir,
    media_store_at,
)
from lanebus.bus.errors import DirectoryNotCreated, SessionErased, Unavailable, Unconnectable
from lanebus.bus.servers import Backoff, DurabilityWarning
from lanebus.bus.storage import StateFile
from lanebus.bus.text import describe_error
from lanebus.handlers.agent import ServerAwaited, ServerFound, write_event
from lanebus.handlers.cli.errors import ServerSilent, SessionEmpty
from lanebus.handlers.cli.exits import Terminated
from lanebus.handlers.cli.modules import redact_of
from lanebus.handlers.cli.options import Settings
from lanebus.handlers.cli.output import tell
from lanebus.handlers.integrations import TracesFailed, TracesMissing, is_sdk_set_up, otel_tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


_log = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_SECONDS = 10.0
"""longest time in seconds to wait for the server of `--url`"""

HINT_SECONDS = 3.0
"""seconds after which a notice tells the user that the embedded server is still starting: it loads large logs slowly"""

WARNS = frozenset({"acp", "demo", "mcp", "serve", "verify", "worker"})
"""the commands that warn if the server may lose acknowledged messages, has known security holes, or is reached
without encryption. They run long or check the log; other commands would repeat the warning at every call, and `doctor`
has findings of its own"""

WAITING = "waiting for the embedded server, which may be loading a large log; Ctrl-C stops waiting"


class Patience(NamedTuple):
    """How a command waits for a server of a URL that does not answer yet. Times are in seconds."""

    seconds: float
    """longest time to wait; 0 does not wait"""
    first_pause: float = 0.2
    """pause before the second attempt; each further pause is twice as long"""
    longest_pause: float = 5.0
    told: float = 60.0
    """time between two lines of the log that say that the command waits"""


@asynccontextmanager
async def open_bus(
    settings: Settings, patience: Patience | None = None, *, remembers: bool = False, begins: bool = True
) -> AsyncGenerator[Bus]:
    """Open the bus that the settings name.

    Args:
        settings: names the bus.
        patience: how to wait for the server of a URL. A fault that needs another setting is raised at once. None does
            not wait. The embedded server needs no patience: opening it starts it.
        remembers: whether the bus knows which log earlier processes of this machine have seen, see
            `NamespaceLog.remember`.
        begins: whether to begin the namespace if it is missing. If not, the bus may only be read.

    Raises:
        SetupError: a setting cannot work; the error names this setting.
        ModuleRaised: the module of `--redact` raised an error while it was imported. Nothing was opened.
        Unavailable: the server cannot be reached, or the embedded server did not start.
        ServerSilent: the server of the URL did not answer within `OPEN_SECONDS`.
    """
    redact = redact_of(settings.redact)  # first: an import may be slow, and is no wait for the server
    async with AsyncExitStack() as stack:
        token = BEGINS.set(begins)
        try:
            if patience is None or settings.url is None:
                bus = await stack.enter_async_context(_opened(settings, redact))
            else:
                bus = await _await_server(stack, settings, redact, patience)
        finally:
            BEGINS.reset(token)
        if remembers:
            await remember(bus.namespace, settings)
        yield bus


async def _await_server(stack: AsyncExitStack, settings: Settings, redact: Redact | None, patience: Patience) -> Bus:
    """Open the bus on the stack. Try again while the server may only not have started yet."""
    backoff = Backoff(patience.first_pause, patience.longest_pause, jitter=0.25, patience=patience.seconds)
    begin, told = anyio.current_time(), -inf
    while True:
        try:
            bus = await stack.enter_async_context(_opened(settings, redact))
        except Unavailable as fault:
            waited = anyio.current_time() - begin
            if isinstance(fault, Unconnectable) or not fault.is_transient or waited >= patience.seconds:
                raise
            if waited - told >= patience.told:
                told = waited
                write_event(_log, ServerAwaited(fault=str(fault), seconds=round(waited, 3)))
            if not await backoff.wait():
                raise
            continue
        if told >= 0:
            write_event(_log, ServerFound(what="open", seconds=round(anyio.current_time() - begin, 3)))
        return bus


@asynccontextmanager
async def _opened(settings: Settings, redact: Redact | None) -> AsyncGenerator[Bus]:
    """Open the bus once."""
    hint = None if settings.url else asyncio.get_running_loop().call_later(HINT_SECONDS, tell, WAITING)
    with anyio.move_on_after(OPEN_SECONDS if settings.url else inf) as timeout:
        opening = Bus.open(
            settings.url,
            data_dir=settings.data_dir,
            namespace=settings.namespace,
            media=media_store_at(settings.media) if settings.media else None,
            archive=archive_store_at(settings.archive) if settings.archive else None,
            bounds=settings.bounds,
            tracing=tracing_of(is_wanted=settings.is_traced),
            redact=redact,
        )
        async with AsyncExitStack() as stack:
            with _warnings_of_server():
                bus = await stack.enter_async_context(opening)
            timeout.deadline = inf
            if hint is not None:
                hint.cancel()
            yield bus
    if timeout.cancelled_caught:
        raise ServerSilent(OPEN_SECONDS, is_tls=(settings.url or "").startswith("rediss"))


async def remember(namespace: NamespaceLog, settings: Settings) -> None:
    """Give a namespace the state file of its server. Log a warning if there can be none."""
    try:
        folder = settings.state_dir or default_state_dir()
    except DirectoryNotCreated as error:
        namespace.warn(error)
        return
    name = sha256(f"{settings.place} {settings.namespace}".encode()).hexdigest()[:24]
    await namespace.remember(StateFile(folder / f"{name}.json"))


@contextmanager
def _warnings_of_server() -> Generator[None]:
    """In this block, ignore warnings of the server if the command is not in `WARNS`. If it is, and logs to no handler,
    print them."""
    context = click.get_current_context(silent=True)
    is_ignored = context is not None and context.command.name not in WARNS

    def refuse_or_print(record: logging.LogRecord) -> bool:
        if not is_ignored and not logging.getLogger(record.name).hasHandlers():
            tell(f"warning: {record.getMessage()}")
            return False
        return not is_ignored

    with warnings.catch_warnings(), ExitStack() as stack:
        if is_ignored:
            warnings.simplefilter("ignore", DurabilityWarning)
        for name in ("lanebus.bus.servers.health", "lanebus.bus.servers.health"):
            logging.getLogger(name).addFilter(refuse_or_print)
            stack.callback(logging.getLogger(name).removeFilter, refuse_or_print)
        yield


@asynccontextmanager
async def open_session(settings: Settings, session_id: str) -> AsyncGenerator[Session]:
    """Open a session that has entries.

    Raises:
        InvalidSessionId: `session_id` is not a session id.
        SessionEmpty: the session has no entries.
        SessionErased: the session was erased.
        SetupError: a setting cannot work; the error names this setting.
        Unavailable: the server cannot be reached, or the embedded server did not start.
    """
    async with open_bus(settings, begins=False) as bus:
        yield await existing(bus, session_id)


async def existing(bus: Bus, session_id: str) -> Session:
    """Return a session of an open bus.

    Raises:
        InvalidSessionId: `session_id` is not a session id.
        SessionEmpty: the session has no entries.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    session = bus.session(session_id)
    head = await session.head()
    if head.is_erased:
        raise SessionErased(session_id)
    if not head.position:
        raise SessionEmpty(session_id)
    return session


def on_bus(ctx: click.Context, do: Callable[[Bus], Awaitable[T]], *, remembers: bool = False, begins: bool = True) -> T:
    """Open the bus of a command, call `do` with it, and return the result. The options are those of `open_bus`.

    Raises:
        BusError: as for `open_bus` and `do`.
        KeyboardInterrupt: Ctrl-C was pressed.
        Terminated: the process received SIGTERM.
    """
    settings = Settings.of(ctx)

    async def main() -> T:
        async with open_bus(settings, remembers=remembers, begins=begins) as bus:
            return await do(bus)

    return run(main)


def on_session(ctx: click.Context, session_id: str, do: Callable[[Session], Awaitable[T]]) -> T:
    """Open a session that has entries, call `do` with it, and return the result. Raises the errors of `open_session`
    and `do`."""
    settings = Settings.of(ctx)

    async def main() -> T:
        async with open_session(settings, session_id) as session:
            return await do(session)

    return run(main)


# Run a coroutine function of a command, and cancel it on Ctrl-C or SIGTERM.


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main`, and return its result. Ctrl-C and SIGTERM cancel `main`, so that it closes everything it has opened.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
        Terminated: the process received SIGTERM.
    """

    async def guarded() -> T:
        # Ctrl-C needs no handler: asyncio cancels the main task.
        with anyio.CancelScope() as scope, on_sigterm(scope.cancel):
            return await main()
        raise Terminated

    return anyio.run(guarded)


@contextmanager
def on_sigterm(callback: Callable[[], object]) -> Generator[None]:
    """Call `callback` on SIGTERM during the block, instead of ending the process. In nested blocks, only the innermost
    callback is called. Does nothing on Windows."""
    if sys.platform == "win32":  # Windows has no SIGTERM handlers
        yield
        return
    loop = asyncio.get_running_loop()
    outer = _callbacks.get()
    loop.add_signal_handler(signal.SIGTERM, callback)
    token = _callbacks.set(callback)
    try:
        yield
    finally:
        _callbacks.reset(token)
        if outer is None:
            loop.remove_signal_handler(signal.SIGTERM)
        else:
            loop.add_signal_handler(signal.SIGTERM, outer)


_callbacks: ContextVar[Callable[[], object] | None] = ContextVar("lanebus_sigterm", default=None)


EXPORTERS = "OTEL_TRACES_EXPORTER"
SERVICE = "OTEL_SERVICE_NAME"
CONSOLE, OTLP = "console", "otlp"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""the variables that choose between the exporters of OTLP; the first that is set counts"""

_BY_PROTOCOL = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
"""protocol → name of the exporter's entry point. OpenTelemetry's `otlp` itself is always the one of gRPC"""


def tracing_of(*, is_wanted: bool) -> Tracing:
    """Return the tracing of a command's bus.

    Args:
        is_wanted: whether to set up the SDK from the environment if it is not set up yet. If False, traces are recorded
            only if the SDK is set up already, such as by `opentelemetry-instrument`.

    Raises:
        TracesMissing: `opentelemetry-api`, `opentelemetry-sdk` or the exporter of the OTLP protocol is not installed.
        TracesFailed: another exporter is not installed, an exporter cannot be made, or the OTLP protocol is unknown.
    """
    if is_wanted and not is_sdk_set_up():
        otel_tracing()  # raises if the extra is missing
        _set_up_sdk()
    return otel_tracing() if is_sdk_set_up() else NO_TRACING


def _set_up_sdk() -> None:
    """Make a provider for all of the process. The SDK reads its own variables, and sends the last spans at the exit."""
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # a program's choice, so no dependency
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise TracesMissing("opentelemetry-sdk", "opentelemetry-sdk opentelemetry-exporter-otlp") from None
    from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415

    os.environ.setdefault(SERVICE, "lanebus")
    provider = TracerProvider()
    for name in (os.environ.get(EXPORTERS) or OTLP).split(","):
        if name.strip() != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    set_tracer_provider(provider)


def _exporter(name: str) -> "SpanExporter":
    protocol = _protocol() if name == OTLP else ""
    found = [*entry_points(group="opentelemetry_traces_exporter", name=_BY_PROTOCOL.get(protocol, name))]
    if not found and protocol:
        package = f"opentelemetry-exporter-otlp-proto-{protocol.partition('/')[0]}"
        raise TracesMissing(package, f"{package}, or set {PROTOCOLS[1]} to the protocol of the one that you have")
    if not found:
        raise TracesFailed(
            f"the exporter {name!r} of {EXPORTERS} is not installed",
            "pip install its package, such as opentelemetry-exporter-otlp, or name another one, such as console",
        )
    try:
        if name == CONSOLE:  # stdout has the command's own output
            return cast("Callable[..., SpanExporter]", found[0].load())(out=sys.stderr)
        return cast("Callable[[], SpanExporter]", found[0].load())()
    except Exception as error:  # of the exporter's package
        raise TracesFailed(
            f"the exporter {name!r}: {describe_error(error)}", "check the OTEL_… variables of this exporter"
        ) from error


def _protocol() -> str:
    """Return the protocol of OTLP that the environment names; "grpc" if it names none, as in OpenTelemetry's SDK."""
    variable = next((name for name in PROTOCOLS if os.environ.get(name)), PROTOCOLS[1])
    protocol = os.environ.get(variable, "").strip() or "grpc"
    if protocol not in _BY_PROTOCOL:
        raise TracesFailed(
            f"{variable} is {protocol[:100]!r}, which is not supported", f"set it to {' or '.join(_BY_PROTOCOL)}"
        )
    return protocol
