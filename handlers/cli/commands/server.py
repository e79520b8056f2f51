"""`lanebus server`: show or stop the embedded server of a directory."""

from functools import partial

import click

from lanebus.bus.embedded.server import ServerStatus, server_status, stop_server
from lanebus.handlers.cli.options import BusGroup, Settings, ViewCommand
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.terminal.output import Output
from lanebus.handlers.cli.terminal.text import size
from lanebus.handlers.cli.usage import WrongUsage

__all__ = ("command",)


@click.group("server", cls=BusGroup)
def command() -> None:
    """Show or stop the embedded server.

    The server runs while a command or a program has its directory open. It ends by itself after the last of them has
    closed the directory.
    """


@command.command("status", cls=ViewCommand)
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show whether the server of --data-dir runs, where it listens, and which processes use it. Starts nothing.

    \b
    Example: lanebus server status --data-dir ./log
    """
    output = Output.of(ctx)
    found = run(partial(server_status, _settings(ctx).data_dir))
    if output.is_json:
        output.json(_json(found))
        return
    for name, value in _lines(found):
        output.line(f"{name:<14}{value}")


@command.command("stop", cls=ViewCommand)
@click.pass_context
def stop(ctx: click.Context) -> None:
    """Stop a server that no process uses but that did not end by itself.

    \b
    Example: lanebus server stop
    """
    was_there = run(partial(stop_server, _settings(ctx).data_dir))
    Output.of(ctx).answer({"stopped": was_there}, "stopped" if was_there else "no server was running")


def _settings(ctx: click.Context) -> Settings:
    settings = Settings.of(ctx)
    if settings.url is not None:
        raise WrongUsage("`lanebus server` controls the embedded server only", "leave out --url, and unset LANEBUS_URL")
    return settings


def _json(found: ServerStatus) -> dict[str, object]:
    return {
        "state": found.state,
        "data_dir": str(found.data_dir),
        "socket": str(found.socket),
        "aof_bytes": found.aof_bytes,
        "pid": found.pid,
        "keeper_pid": found.keeper_pid,
        "version": found.version,
        "openers": found.openers,
    }


def _lines(found: ServerStatus) -> list[tuple[str, str]]:
    lines = [("state", found.state), ("directory", str(found.data_dir)), ("log", size(found.aof_bytes))]
    if found.running:
        lines += [("socket", str(found.socket)), ("process", f"{found.pid}, kept by {found.keeper_pid}")]
    if found.version:
        lines += [("Valkey", found.version), ("open in", ", ".join(map(str, found.openers)) or "no process")]
    return lines
