"""`lanebus worker`: run an agent."""

from functools import partial

import click

from handlers.agent.load import load_agent
from handlers.agent.run import Agent
from handlers.agent.worker import Worker
from handlers.cli.exits import Terminated
from handlers.cli.opening import open_bus
from handlers.cli.options import BusCommand, Settings
from handlers.cli.output import tell
from handlers.cli.run import on_sigterm, run

__all__ = ("command",)


@click.command("worker", cls=BusCommand)
@click.argument("agent", metavar="MODULE:ATTRIBUTE")
@click.option("--group", default="agents", help="Workers of one group share the work.", show_default=True)
@click.option("--name", help="Of this worker in its group; made of host and process if not given.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=32, help="Most sessions at a time.", show_default=True
)
@click.pass_context
def command(ctx: click.Context, agent: str, *, group: str, name: str | None, concurrency: int) -> None:
    """Run the agent at MODULE:ATTRIBUTE, found from the present directory too: it answers every session that a user
    speaks in.

    On SIGTERM it takes nothing new and finishes its turns. On Ctrl-C it ends at once, and hands what it was at to
    another worker.

    \b
    Example: lanebus worker handlers.agent.demo:agent
    """
    run(partial(_work, Settings.of(ctx), agent, load_agent(agent), group=group, name=name, concurrency=concurrency))


async def _work(
    settings: Settings, target: str, agent: Agent, *, group: str, name: str | None, concurrency: int
) -> None:
    async with open_bus(settings) as bus:
        worker = Worker(bus, agent, group=group, name=name, concurrency=concurrency)
        with on_sigterm(worker.stop):
            tell(f"worker {worker.name} of group {group} runs {target}; Ctrl-C ends")
            await worker.run()
    raise Terminated
