"""`lanebus namespace`: accept a log that was emptied or is an older copy."""

import click

from lanebus.bus.bus import Bus
from lanebus.bus.log.namespace import LogLoss
from lanebus.handlers.cli.access import on_bus
from lanebus.handlers.cli.options import BusGroup, Settings, ViewCommand
from lanebus.handlers.cli.terminal.consent import ask, require_consent, yes_option
from lanebus.handlers.cli.terminal.output import Output, tell

__all__ = ("command",)


@click.group("namespace", cls=BusGroup)
def command() -> None:
    """Accept the log of a namespace, after it was emptied or an older copy of it was restored.

    \b
    Example: lanebus namespace accept
    """


@command.command("accept", cls=ViewCommand)
@yes_option
@click.pass_context
def accept(ctx: click.Context, *, yes: bool) -> None:
    """Accept the log that the server has now, in place of the one that workers and `lanebus serve` knew. Says what is
    lost, and asks. Deletes nothing, and restores nothing: sessions that are gone stay gone.

    Workers and servers that refuse an emptied log (event log.emptied) serve the new one within seconds, without a
    restart. `lanebus verify --all` and `lanebus doctor` report the loss no more. If nothing is lost, this does no harm.

    \b
    Example: lanebus namespace accept
    Example: lanebus namespace accept --yes --url redis://localhost:6379
    """
    require_consent("accepted", yes=yes)
    name = Settings.of(ctx).namespace
    losses = on_bus(ctx, _losses, remembers=True)
    for loss in losses:
        tell(f"{name}: {loss.text}")
    if not losses:
        tell(f"{name}: no loss is known here; processes that knew another log will accept this one")
    ask(f"Accept the log of namespace {name} as it is now?", "accepted", yes=yes)
    on_bus(ctx, _accept, remembers=True)
    kinds = [loss.kind for loss in losses]
    Output.of(ctx).answer({"namespace": name, "accepted": kinds}, f"the log of namespace {name} was accepted")


async def _losses(bus: Bus) -> tuple[LogLoss, ...]:
    return await bus.namespace.unaccepted()


async def _accept(bus: Bus) -> None:
    await bus.namespace.accept()
