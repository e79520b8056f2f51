"""`lanebus acp`, an agent of yours in an editor, and `lanebus mcp`, the sessions for an MCP client."""

from functools import partial
from typing import TYPE_CHECKING

import click

from lanebus.bus.errors import InvalidArgument, MissingExtra
from lanebus.bus.messages import Lane
from lanebus.handlers.agent import Agent, Worker, collect_rarely, load_agent, name_of
from lanebus.handlers.cli.access import open_bus, run
from lanebus.handlers.cli.arguments import complete_group
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.log_options import log_options, logging_to_stderr
from lanebus.handlers.cli.modules import load_module, needs_mcp
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.protocols import protocol_files
from lanebus.handlers.serve import ALL, BOTH_LANES, READ, Principal

if TYPE_CHECKING:
    from lanebus.handlers.protocols import ProtocolFiles


@click.command("acp", cls=BusCommand)
@click.argument("agent", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--no-worker",
    is_flag=True,
    help="Run no agent in this process: `lanebus worker` runs it elsewhere.",
)
@click.option(
    "--group",
    default="agents",
    metavar="NAME",
    shell_complete=complete_group,
    help="Consumer group of the worker in this process.",
    show_default=True,
)
@log_options
@click.pass_context
def acp_command(
    ctx: click.Context, agent: str, *, no_worker: bool, group: str, log_level: str, log_format: str
) -> None:
    """Serve the agent at MODULE:ATTRIBUTE, or at path/to/file.py:ATTRIBUTE, to an editor that speaks the Agent Client
    Protocol. The editor starts this command, and talks to it over stdin and stdout. Logs go to stderr, and so does what
    the agent and its tools print. Needs the extra `acp`.

    Unless --no-worker is given, this process also runs a worker of the agent, as `lanebus worker` does: it runs the
    agent's sessions of other clients too.

    The command ends with 0 when the editor closes stdin. Unfinished answers go on when the next worker of the agent
    starts.

    \b
    Example: lanebus acp lanebus.handlers.agent.demo:agent
    """
    try:
        from lanebus.handlers.protocols import protocol_files  # noqa: PLC0415  # an extra
        from lanebus.handlers.protocols import serve_editor as _  # noqa: F401, PLC0415  # an extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "acp":
            raise
        raise MissingExtra("agent-client-protocol", "acp") from None
    with protocol_files() as files, logging_to_stderr(log_level, log_format):
        loaded = load_module(load_agent, agent)
        run(partial(_serve_editor, Settings.of(ctx), loaded, files, None if no_worker else group))


async def _serve_editor(settings: Settings, agent: Agent, files: "ProtocolFiles", group: str | None) -> None:
    from lanebus.handlers.protocols import serve_editor  # noqa: PLC0415  # an extra

    collect_rarely()
    async with open_bus(settings) as bus:
        worker = None if group is None else Worker(bus, agent, group=group)
        await serve_editor(bus, name_of(agent, bus.default_agent), files, worker=worker)


# `lanebus mcp`: the sessions for an MCP client.


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
def mcp_command(
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
        run(partial(_serve_client, Settings.of(ctx), principal, files, allow_publish=allow_publish))


async def _serve_client(
    settings: Settings, principal: Principal, files: "ProtocolFiles", *, allow_publish: bool
) -> None:
    from lanebus.handlers.serve import serve_client  # noqa: PLC0415  # an extra

    async with open_bus(settings) as bus:
        await serve_client(bus, principal, files, allow_publish=allow_publish)
