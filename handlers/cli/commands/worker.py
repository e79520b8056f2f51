"""`lanebus worker`: run an agent."""

from collections.abc import Callable, Sequence
from functools import partial

import click

from lanebus.bus.bus import Bus
from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.handlers.agent.load import load_agent
from lanebus.handlers.agent.worker.gc_tuning import collect_rarely
from lanebus.handlers.agent.worker.worker import DRAIN_SECONDS, HEARTBEAT_SECONDS, RETRY, Worker
from lanebus.handlers.cli.access import open_bus
from lanebus.handlers.cli.exits import Terminated
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.cli.run import on_sigterm, run
from lanebus.handlers.cli.terminal.output import tell

__all__ = ("command",)

_SECONDS = click.FloatRange(min=0.0, min_open=True)


@click.command("worker", cls=BusCommand)
@click.argument("agent", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--agent",
    "named",
    multiple=True,
    metavar="NAME=MODULE:ATTRIBUTE",
    help="Works the sessions that were begun for this name; may be given often.",
)
@click.option("--group", default="agents", help="Workers of one group share the work.", show_default=True)
@click.option("--name", help="Of this worker in its group; made of host and process if not given.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=32, help="Most sessions at a time.", show_default=True
)
@click.option(
    "--heartbeat",
    type=_SECONDS,
    default=HEARTBEAT_SECONDS,
    help="Seconds without a sign of life after which others go on with its sessions.",
    show_default=True,
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0.0),
    default=DRAIN_SECONDS,
    help="Seconds to finish what was taken, once it is told to end; the rest is handed back.",
    show_default=True,
)
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    default=RETRY.attempts,
    help="How often a session is tried whose agent raises, before that is its answer.",
    show_default=True,
)
@click.option(
    "--retry-base",
    type=click.FloatRange(min=0.0),
    default=RETRY.base,
    help="Seconds before the second attempt, at most; each pause is twice the last.",
    show_default=True,
)
@click.pass_context
def command(
    ctx: click.Context,
    agent: str,
    *,
    named: Sequence[str],
    group: str,
    name: str | None,
    concurrency: int,
    heartbeat: float,
    drain: float,
    attempts: int,
    retry_base: float,
) -> None:
    """Run the agent at MODULE:ATTRIBUTE, found from the present directory too: it answers every session that a user
    speaks in.

    On SIGTERM it takes nothing new and finishes its turns; on a second one it hands them to another worker at once, as
    on Ctrl-C.

    \b
    Example: lanebus worker lanebus.handlers.agent.demo:agent
    """
    agents = {key: load_agent(target) for key, target in map(_named, named)}
    make = partial(
        Worker,
        agent=load_agent(agent),
        agents=agents,
        group=group,
        name=name,
        concurrency=concurrency,
        heartbeat=heartbeat,
        drain_seconds=drain,
        retry=RetryPolicy(attempts=attempts, base=retry_base, longest=max(RETRY.longest, retry_base)),
    )
    run(partial(_work, Settings.of(ctx), make, f"worker {{}} of group {group} runs {agent}; Ctrl-C ends"))


def _named(text: str) -> tuple[str, str]:
    name, equals, target = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r}: want NAME=MODULE:ATTRIBUTE", param_hint="--agent")
    return name, target


async def _work(settings: Settings, make: Callable[[Bus], Worker], greeting: str) -> None:
    collect_rarely()
    async with open_bus(settings) as bus:
        worker = make(bus)
        with on_sigterm(worker.stop):
            tell(greeting.format(worker.name))
            await worker.run()
    raise Terminated
