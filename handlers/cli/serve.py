"""`lanebus serve`: the page."""

from functools import partial

import click

from handlers.cli.opening import open_bus
from handlers.cli.options import BusCommand, Settings
from handlers.cli.output import Output, tell
from handlers.cli.run import run
from handlers.ui.errors import ServeMissing

__all__ = ("command",)

_EXTRA = frozenset({"starlette", "uvicorn"})


@click.command("serve", cls=BusCommand)
@click.option("--host", default="127.0.0.1", help="Where to listen.", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8420, help="0 takes any free one.", show_default=True)
@click.option(
    "--token",
    metavar="TEXT",
    help="What the address must show; made up if not given.  [env var: LANEBUS_TOKEN]",
    envvar="LANEBUS_TOKEN",
)
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="HOST:PORT", help="Answer to this name too; may be repeated."
)
@click.pass_context
def command(ctx: click.Context, *, host: str, port: int, token: str | None, allowed: tuple[str, ...]) -> None:
    """Serve the page that shows sessions live, until Ctrl-C. It prints the address to open, with the token it needs.

    \b
    Example: lanebus serve --port 8421
    """
    run(partial(_serve, Settings.of(ctx), Output.of(ctx), host=host, port=port, token=token, allowed=allowed))


async def _serve(
    settings: Settings, output: Output, *, host: str, port: int, token: str | None, allowed: tuple[str, ...]
) -> None:
    try:
        from handlers.ui.server import serve  # noqa: PLC0415  # what it needs is an extra, and may be missing
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise ServeMissing(str(error.name)) from None
        raise

    def on_ready(url: str) -> None:
        output.line(url, flush=True)
        tell("open this address in a browser; Ctrl-C ends")

    async with open_bus(settings) as bus:
        await serve(bus, host=host, port=port, token=token, allowed_hosts=allowed, on_ready=on_ready)
