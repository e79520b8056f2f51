"""`lanebus worker`: run an agent on all sessions that need an answer."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import click

from lanebus.bus import Bus, RetryPolicy
from lanebus.bus.errors import BusError
from lanebus.handlers.agent import (
    DRAIN_SECONDS,
    HEARTBEAT_SECONDS,
    RETRY,
    LogContext,
    Worker,
    WorkerNameInUse,
    collect_rarely,
    in_background,
    load_agent,
    write_event,
)
from lanebus.handlers.cli.access import Patience, on_sigterm, open_bus, run
from lanebus.handlers.cli.arguments import complete_group
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.log_options import (
    MonitorAddress,
    log_options,
    logging_to_stderr,
    monitor_options,
    worker_monitor,
)
from lanebus.handlers.cli.modules import load_module
from lanebus.handlers.cli.options import BusCommand, Settings, wait_option
from lanebus.handlers.cli.output import tell

_log = logging.getLogger(__name__)

_SECONDS = click.FloatRange(min=0.0, min_open=True)


@click.command("worker", cls=BusCommand)
@click.argument("agent", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--agent",
    "named",
    multiple=True,
    metavar="NAME=MODULE:ATTRIBUTE",
    help="Also run this agent, on sessions that belong to NAME; may be repeated.",
)
@click.option(
    "--group",
    default="agents",
    metavar="NAME",
    shell_complete=complete_group,
    help="Consumer group; its workers share the sessions.",
    show_default=True,
)
@click.option("--name", metavar="NAME", help="Name of this worker, unique in its group; default: host and process id.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    default=32,
    help="Most sessions that run at a time.",
    show_default=True,
)
@click.option(
    "--heartbeat",
    type=_SECONDS,
    default=HEARTBEAT_SECONDS,
    metavar="SECONDS",
    help="Time without a heartbeat after which other workers take its sessions over.",
    show_default=True,
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0.0),
    default=DRAIN_SECONDS,
    metavar="SECONDS",
    help="Longest time to finish running sessions after SIGTERM; the rest is returned to the group.",
    show_default=True,
)
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    metavar="N",
    default=RETRY.attempts,
    help="Most attempts for a session if its agent raises; then its work becomes a dead letter.",
    show_default=True,
)
@click.option(
    "--retry-base",
    type=click.FloatRange(min=0.0),
    default=RETRY.base,
    metavar="SECONDS",
    help="Longest backoff before the second attempt; it doubles with each attempt.",
    show_default=True,
)
@wait_option
@monitor_options
@log_options
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
    wait: float | None,
    monitor: str | None,
    monitor_allowed: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Run the agent at MODULE:ATTRIBUTE, or at path/to/file.py:ATTRIBUTE, on every session that belongs to it and has
    new user messages. Sessions belong to an agent by its `name`; an agent without a name gets the sessions of the
    default agent (`lanebus agents`). Modules are also searched in the current directory.

    If the server does not answer yet, the worker waits for it. On SIGTERM, the worker accepts no new sessions, finishes
    the running ones and exits with 0. On a second SIGTERM or on Ctrl-C, it returns them to the group at once.

    \b
    Example: lanebus worker lanebus.handlers.agent.demo:agent
    """
    address = MonitorAddress.parse(monitor, monitor_allowed)
    agents = {key: load_module(load_agent, target) for key, target in map(_named, named)}
    make = partial(
        Worker,
        agent=load_module(load_agent, agent),
        agents=agents,
        group=group,
        name=name,
        concurrency=concurrency,
        heartbeat=heartbeat,
        drain_seconds=drain,
        retry=RetryPolicy(attempts=attempts, base=retry_base, longest=max(RETRY.longest, retry_base)),
    )
    with logging_to_stderr(log_level, log_format) as is_json:
        greeting = "" if is_json else f"worker {{}} of group {group} runs {agent}; Ctrl-C stops it"
        patience = Patience(inf if wait is None else wait)
        run(partial(_work, Settings.of(ctx), make, group, greeting, address, patience=patience))


def _named(text: str) -> tuple[str, str]:
    name, equals, target = text.partition("=")
    if not equals or not name:
        raise WrongUsage(f"--agent {text!r} names no agent", "write --agent NAME=MODULE:ATTRIBUTE")
    return name, target


def _tell_agents(bus: Bus, worker: Worker) -> None:
    tell(f"it serves the sessions of: {', '.join(worker.agents)}")
    if bus.default_agent not in worker.agents:
        own = worker.agents[0]
        tell(
            f"new sessions belong to {bus.default_agent} unless another agent is named, and this worker leaves "
            f"them alone: run `lanebus agents default {own}`, or publish with `--agent {own}`"
        )


async def _tell_namesake(bus: Bus, group: str, name: str) -> None:
    """Log a warning if a worker of this name seems to be alive. A restarted worker takes its name back."""
    try:
        consumers = (await bus.group_status(group)).consumers
    except BusError:
        return  # the worker logs that the server does not answer
    for each in consumers:
        if each.name == name and each.is_alive:
            found = WorkerNameInUse(group=group, seconds=round(each.seen or 0.0, 3))
            write_event(_log, found, LogContext(worker=name))


async def _work(
    settings: Settings,
    make: Callable[[Bus], Worker],
    group: str,
    greeting: str,
    address: MonitorAddress | None,
    *,
    patience: Patience,
) -> None:
    collect_rarely()

    async def greet() -> None:
        # Not before the first heartbeat: a publish at once would be told that no worker serves the agent.
        await worker.begun.wait()
        tell(greeting.format(worker.name))
        _tell_agents(bus, worker)

    async with open_bus(settings, patience, remembers=True) as bus:
        worker = make(bus)
        await _tell_namesake(bus, group, worker.name)
        async with worker_monitor(bus, worker, address):
            with on_sigterm(worker.stop):
                async with in_background(*([greet] if greeting else [])):
                    await worker.run()
