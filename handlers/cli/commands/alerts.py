"""`lanebus alerts`: print the alerts for Prometheus, or the dashboard for Grafana."""

from importlib.resources import files

import click

from lanebus.handlers.cli.output import put_lines

__all__ = ("command",)


@click.command("alerts")
@click.option("--dashboard", is_flag=True, help="Print the dashboard for Grafana instead, as JSON to import.")
def command(dashboard: bool) -> None:
    """Print the alerts for Prometheus: a file of rules about the metrics of `lanebus worker --monitor` and
    `lanebus serve --monitor`. Change the limits to those of your agents.

    After an upgrade, print the files again: metrics may have been added.

    \b
    Example: lanebus alerts > lanebus.rules.yml
             lanebus alerts --dashboard > lanebus.json
    """
    name = "lanebus.json" if dashboard else "lanebus.rules.yml"
    put_lines((files("lanebus.handlers.serve") / "data" / name).read_text(encoding="utf-8"))
