"""`lanebus serve`: the page."""

from collections.abc import Callable
from functools import partial

import click

from bus.bus import Bus
from handlers.cli.opening import open_bus
from handlers.cli.options import BusCommand, Settings
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.ui.errors import ServeMissing

__all__ = ("PORT", "command", "serve_page")

PORT = 8420

_EXTRA = frozenset({"starlette", "uvicorn"})


@click.command("serve", cls=BusCommand)
@click.option("--host", default="127.0.0.1", help="Where to listen.", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, help="0 takes any free one.", show_default=True)
@click.option(
    "--token",
    metavar="TEXT",
    envvar="LANEBUS_TOKEN",
    help="What the address must show; made up if not given.  [env var: LANEBUS_TOKEN]",
)
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="HOST:PORT", help="Answer to this name too; repeatable."
)
@click.pass_context
def command(ctx: click.Context, *, host: str, port: int, token: str | None, allowed: tuple[str, ...]) -> None:
    """Serve the page that shows sessions live, until Ctrl-C. It prints the address to open, with the token it needs.

    \b
    Example: lanebus serve --port 8421
    """
    run(partial(_serve, Settings.of(ctx), Output.of(ctx), host=host, port=port, token=token or None, allowed=allowed))


async def _serve(
    settings: Settings, output: Output, *, host: str, port: int, token: str | None, allowed: tuple[str, ...]
) -> None:
    def on_ready(url: str) -> None:
        output.line(url, flush=True)
        tell("open this address in a browser; Ctrl-C ends")

    async with open_bus(settings) as bus:
        await serve_page(bus, host=host, port=port, token=token, allowed=allowed, on_ready=on_ready)


async def serve_page(
    bus: Bus,
    *,
    on_ready: Callable[[str], None],
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    allowed: tuple[str, ...] = (),
) -> None:
    """Serve the page until cancelled.

    Raises:
        ServeMissing: the extra it needs is not installed.
        PortInUse, AddressRefused: as `handlers.ui.server.serve`.
    """
    try:
        from handlers.ui.server import serve  # noqa: PLC0415  # what it needs is an extra, and may be missing
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise ServeMissing(str(error.name)) from None
        raise
    await serve(bus, host=host, port=port, token=token, allowed_hosts=allowed, on_ready=on_ready)
