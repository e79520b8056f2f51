"""`lanebus acp`: an agent of yours in an editor."""

from functools import partial
from typing import TYPE_CHECKING

import click

from lanebus.bus.errors import MissingExtra
from lanebus.handlers.agent import Agent, Worker, collect_rarely, load_agent, name_of
from lanebus.handlers.cli.access import open_bus, run
from lanebus.handlers.cli.arguments import complete_group
from lanebus.handlers.cli.log_options import log_options, logging_to_stderr
from lanebus.handlers.cli.modules import load_module
from lanebus.handlers.cli.options import BusCommand, Settings

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
def command(ctx: click.Context, agent: str, *, no_worker: bool, group: str, log_level: str, log_format: str) -> None:
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
        run(partial(_serve, Settings.of(ctx), loaded, files, None if no_worker else group))


async def _serve(settings: Settings, agent: Agent, files: "ProtocolFiles", group: str | None) -> None:
    from lanebus.handlers.protocols import serve_editor  # noqa: PLC0415  # an extra

    collect_rarely()
    async with open_bus(settings) as bus:
        worker = None if group is None else Worker(bus, agent, group=group)
        await serve_editor(bus, name_of(agent, bus.default_agent), files, worker=worker)
