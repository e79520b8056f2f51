"""`lanebus agents`: list agents, and set the default one."""

from collections.abc import Sequence
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.groups.agents import AgentStatus
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.groups import require_groups
from lanebus.handlers.cli.options import ViewCommand, ViewGroup
from lanebus.handlers.cli.session_id import complete_group
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.table import Column
from lanebus.handlers.cli.terminal.text import count

__all__ = ("command",)

_COLUMNS = (
    Column("agent", is_flexible=True),
    Column("sessions", is_number=True),
    Column("waiting", is_number=True),
    Column("workers", is_number=True),
    Column("", is_flexible=True),
)


@click.group("agents", cls=ViewGroup, invoke_without_command=True)
@click.option(
    "--group", metavar="NAME", shell_complete=complete_group, help="Consumer group of the workers; default: agents."
)
@click.pass_context
def command(ctx: click.Context, *, group: str | None) -> None:
    """List agents. Show for each agent how many sessions it has, how many of them wait for a worker, and how many live
    workers serve the agent. Each session belongs to one agent by name, from its first message on. A worker runs the
    sessions of the agents that it serves.

    \b
    Example: lanebus agents --json
    Example: lanebus agents default support
    """
    if ctx.invoked_subcommand is None:
        found = on_bus(ctx, partial(_agents, group=group), begins=False)
        Output.of(ctx).items(found, _json, _COLUMNS, _row, empty="no agents yet")


@command.command("default", cls=ViewCommand)
@click.argument("name")
@click.pass_context
def default(ctx: click.Context, name: str) -> None:
    """Make NAME the default agent: a new session belongs to it unless another agent is given. Existing sessions keep
    their agents. Running programs use the new default after a restart.

    \b
    Example: lanebus agents default support
    """
    on_bus(ctx, lambda bus: bus.set_default_agent(name))
    Output.of(ctx).answer({"default": name}, f"new sessions belong to {name} unless another agent is named")


async def _agents(bus: Bus, *, group: str | None) -> Sequence[AgentStatus]:
    if group is None:  # before the first worker there is no group, but there may be sessions of agents
        return await bus.agents()
    await require_groups(bus, [group])
    return await bus.agents(group)


def _json(agent: AgentStatus) -> dict[str, object]:
    return {
        "agent": agent.name,
        "sessions": agent.sessions,
        "waiting": agent.waiting,
        "is_waiting_more": agent.is_waiting_more,
        "workers": agent.workers,
        "is_default": agent.is_default,
    }


def _row(agent: AgentStatus) -> tuple[str, ...]:
    notes = ("default" if agent.is_default else "", "no worker" if agent.sessions and not agent.workers else "")
    return (
        *(agent.name, count(agent.sessions), f"{count(agent.waiting)}{'+' if agent.is_waiting_more else ''}"),
        *(count(agent.workers), ", ".join(filter(None, notes))),
    )
