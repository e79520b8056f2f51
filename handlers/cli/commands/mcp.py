"""`lanebus mcp`: the sessions for an MCP client."""

from functools import partial
from typing import TYPE_CHECKING

import click

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import Lane
from lanebus.handlers.cli.access import open_bus, run
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.log_options import log_options, logging_to_stderr
from lanebus.handlers.cli.modules import needs_mcp
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.protocols import protocol_files
from lanebus.handlers.serve import ALL, BOTH_LANES, READ, Principal

if TYPE_CHECKING:
    from lanebus.handlers.protocols import ProtocolFiles


_OPTIONS = {"sessions": "--session", "agents": "--agent"}


@click.command("mcp", cls=BusCommand)
@click.option("--allow-publish", is_flag=True, help="Let the client send messages to sessions too.")
@click.option("--name", default="mcp", metavar="NAME", help="Sender of the client's messages.", show_default=True)
@click.option(
    "--session", "sessions", multiple=True, metavar="ID", help="Allowed session, or prefix and *; default: all."
)
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Allowed agent, or prefix and *; default: all.")
@click.option(
    "--lane",
    "lanes",
    multiple=True,
    type=click.Choice([lane.value for lane in Lane]),
    help="Allowed lane; default: both.",
)
@log_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    allow_publish: bool,
    name: str,
    sessions: tuple[str, ...],
    agents: tuple[str, ...],
    lanes: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Let an MCP client, such as a desktop assistant or an editor, list, search and read sessions. The client starts
    this command, and talks to it over stdin and stdout. Logs go to stderr. Needs the extra `mcp`.

    The client can only read, unless --allow-publish is given. For clients over HTTP, each with a token of its own, use
    `lanebus serve --mcp read`.

    The command ends with 0 when the client closes stdin.

    \b
    Example: lanebus mcp --session 'support-*'
    """
    with needs_mcp():
        from lanebus.handlers.serve import serve_client as _  # noqa: F401, PLC0415  # an extra
    try:
        principal = Principal(
            name=name,
            actions=(*READ, "send") if allow_publish else READ,
            sessions=sessions or ALL,
            agents=agents or ALL,
            lanes=frozenset(map(Lane, lanes)) or BOTH_LANES,
        )
    except InvalidArgument as error:
        raise WrongUsage(f"{_OPTIONS.get(error.name, f'--{error.name}')} is {error.given}", error.advice) from None
    with protocol_files() as files, logging_to_stderr(log_level, log_format):
        run(partial(_serve, Settings.of(ctx), principal, files, allow_publish=allow_publish))


async def _serve(settings: Settings, principal: Principal, files: "ProtocolFiles", *, allow_publish: bool) -> None:
    from lanebus.handlers.serve import serve_client  # noqa: PLC0415  # an extra

    async with open_bus(settings) as bus:
        await serve_client(bus, principal, files, allow_publish=allow_publish)
