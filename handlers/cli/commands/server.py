"""`lanebus server`, `acl` and `alerts`: the embedded server, and what a server of your own needs beside it.

`acl` prints users for its access list, `alerts` the alerts for Prometheus and the dashboard for Grafana.
"""

from functools import partial
from importlib.resources import files

import click

from lanebus.bus import ServerStatus, server_status, stop_server
from lanebus.bus.servers import acl_users
from lanebus.bus.wire import check_namespace
from lanebus.handlers.cli.access import run
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import BusCommand, BusGroup, Settings, ViewCommand
from lanebus.handlers.cli.output import Output, put, put_lines, size


@click.group("server", cls=BusGroup)
def server_command() -> None:
    """Show or stop the embedded server.

    The server runs while a command or a program has its directory open. It ends by itself after the last of them has
    closed the directory.
    """


@server_command.command("status", cls=ViewCommand)
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show whether the server of --data-dir runs, where it listens, and which processes use it. Starts nothing.

    \b
    Example: lanebus server status --data-dir ./log
    """
    output = Output.of(ctx)
    found = run(partial(server_status, _settings(ctx).data_dir))
    if output.is_json:
        output.json(_status_json(found))
        return
    for name, value in _status_lines(found):
        output.line(f"{name:<14}{value}")


@server_command.command("stop", cls=ViewCommand)
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


def _status_json(found: ServerStatus) -> dict[str, object]:
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


def _status_lines(found: ServerStatus) -> list[tuple[str, str]]:
    lines = [("state", found.state), ("directory", str(found.data_dir)), ("log", size(found.aof_bytes))]
    if found.running:
        lines += [("socket", str(found.socket)), ("process", f"{found.pid}, kept by {found.keeper_pid}")]
    if found.version:
        lines += [("Valkey", found.version), ("open in", ", ".join(map(str, found.openers)) or "no process")]
    return lines


@click.command("acl", cls=BusCommand)
@click.pass_context
def acl_command(ctx: click.Context) -> None:
    """Print commands that create two users on your server, for the keys of one namespace alone:

    \b
    NAMESPACE-reader   reads and follows sessions, and cannot write
    NAMESPACE-bus      for workers, `lanebus serve` and every other use

    A new user cannot log in before you set its password. Run the command again after an upgrade; it keeps passwords.

    A client that may write may write anything into the log. Finer rights exist over HTTP only: give such a client a
    token of `lanebus serve` instead of a user of the server.

    \b
    Example: lanebus acl --namespace shop | valkey-cli
             valkey-cli ACL SETUSER shop-bus '>the-password'
             lanebus worker shop.agent:agent --url redis://shop-bus:the-password@localhost:6379
    """
    for user in acl_users(check_namespace(Settings.of(ctx).namespace)):
        put(str(user))


@click.command("alerts")
@click.option("--dashboard", is_flag=True, help="Print the dashboard for Grafana instead, as JSON to import.")
def alerts_command(dashboard: bool) -> None:
    """Print the alerts for Prometheus: a file of rules about the metrics of `lanebus worker --monitor` and
    `lanebus serve --monitor`. Change the limits to those of your agents.

    After an upgrade, print the files again: metrics may have been added.

    \b
    Example: lanebus alerts > lanebus.rules.yml
             lanebus alerts --dashboard > lanebus.json
    """
    name = "lanebus.json" if dashboard else "lanebus.rules.yml"
    put_lines((files("lanebus.handlers.serve") / "data" / name).read_text(encoding="utf-8"))
