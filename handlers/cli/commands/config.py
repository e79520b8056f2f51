"""`lanebus config`: show the settings and where each comes from."""

from typing import cast

import click
from pydantic import SecretStr

from lanebus.bus.text import without_login, without_secrets
from lanebus.handlers.cli.options import BusGroup, ViewCommand, configured_settings, typed_values
from lanebus.handlers.cli.output import Column, Output
from lanebus.handlers.cli.settings_model import Setting

_COLUMNS = (Column("setting"), Column("value", is_flexible=True), Column("source", is_flexible=True))


@click.group("config", cls=BusGroup)
def command() -> None:
    """Show the settings, and where each comes from.

    \b
    Example: lanebus config show
    """


@command.command("show", cls=ViewCommand)
@click.pass_context
def show(ctx: click.Context) -> None:
    """Show each setting with its value and its source: argument, environment, the settings file, or default. Passwords
    and tokens are masked.

    In the file, worker.group is the key group in the table [worker]. Its environment variable is LANEBUS_WORKER__GROUP:
    LANEBUS_ and the key in capitals, with __ for the dot.

    \b
    Example: lanebus config show --config ./lanebus.toml
    """
    typed = typed_values(ctx)
    settings = [
        # A flag can only be typed to switch it on.
        each._replace(value=True if isinstance(each.value, bool) else typed[each.key], source="argument")
        if each.key in typed
        else each
        for each in configured_settings(ctx)
    ]
    Output.of(ctx).items(settings, _json, _COLUMNS, _row, empty="no settings")


def _json(setting: Setting) -> dict[str, object]:
    return {
        "setting": setting.key,
        "value": _shown(setting.value, is_url=setting.key == "url"),
        "source": setting.source,
    }


def _row(setting: Setting) -> tuple[str, str, str]:
    value = _shown(setting.value, is_url=setting.key == "url")
    return setting.key, "-" if value is None else str(value), setting.source


def _shown(value: object, *, is_url: bool = False) -> object:
    """Return a value that may be printed: without a user and password, and as JSON knows it."""
    if isinstance(value, SecretStr):
        return "***"
    if isinstance(value, str):
        # The whole text is one value: no character in it ends a URL.
        return without_login(value, is_of_bus=is_url) if is_url or "://" in value else without_secrets(value)
    if isinstance(value, tuple):
        return [_shown(each) for each in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in cast("dict[str, str]", value).items()}
    return value if isinstance(value, bool | int | float | None) else _shown(str(value))
