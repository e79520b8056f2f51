"""The settings file of a command: how it is found, and which defaults it sets for options that were not typed."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from lanebus.handlers.cli.settings_file import find_settings_file
from lanebus.handlers.cli.variables import CONFIG, gives_settings, unexplained_variables

if TYPE_CHECKING:
    from lanebus.handlers.cli.settings_model import Configuration, Setting

__all__ = ("apply_defaults", "check_variables", "configured", "configured_settings")

_KEY = "lanebus.handlers.cli.configuration"
_PATH = "lanebus.handlers.cli.config_path"

_COMMANDS = ("worker", "serve")
"""commands with options that the file may set"""

_PARAMETERS = {
    "allow_host": "allowed",
    "allow_origin": "origins",
    "allow_media_url": "media_urls",
    "trusted_proxy": "proxies",
    "monitor_allow_host": "monitor_allowed",
    "agents": "named",
    "projection": "projections",
}
"""setting → the parameter of the command, where the names differ"""


def configured(ctx: click.Context) -> "Configuration | None":
    """Return the settings from the file and the environment; None if there is no file
    and no variable sets a setting of the file.

    Raises:
        DirectoryNotOwned, SettingsRefused: as for `load_configuration`.
    """
    found = _load(ctx, always=False)
    return found[0] if found is not None else None


def configured_settings(ctx: click.Context) -> "list[Setting]":
    """Return each setting with its source.

    Raises:
        SettingsRefused: the file cannot be read, has an unknown key, or a value is not allowed.
    """
    found = _load(ctx, always=True)
    assert found is not None  # noqa: S101  # only for the type checker
    return found[1]


def apply_defaults(ctx: click.Context, arguments: Sequence[str]) -> None:
    """Give the settings to a command as the defaults of its options.

    Args:
        ctx: the context of the command, before its arguments are parsed.
        arguments: the command's arguments. `--config` names the settings file.

    Raises:
        SettingsRefused: as for `load_configuration`.
    """
    path = _typed(arguments)
    if path is not None and (_PATH not in ctx.meta or path != os.environ.get(CONFIG)):
        ctx.meta[_PATH] = path  # a file that was typed before the command is not replaced by the variable's
    if ctx.info_name not in _COMMANDS or ctx.resilient_parsing or {"--help", "-h"} & {*arguments}:
        return
    configuration = configured(ctx)
    if configuration is None:
        return
    section = configuration.worker if ctx.info_name == "worker" else configuration.serve
    given = section.model_dump(exclude_unset=True)
    values = {_PARAMETERS.get(name, name): _plain(value) for name, value in given.items()}
    ctx.default_map = {**(ctx.default_map or {}), **values}


def check_variables() -> None:
    """Refuse environment variables that begin with `LANEBUS_` and that lanebus does not know.

    Raises:
        SettingsRefused: a variable is unknown; the error names the known variable with the most similar name.
    """
    if found := unexplained_variables():
        from lanebus.handlers.cli.settings_model import refuse_unknown  # noqa: PLC0415  # imports pydantic

        refuse_unknown(found)


def _plain(value: object) -> object:
    """Return a value as it would be typed. Only the command itself gets secrets."""
    from pydantic import SecretStr  # noqa: PLC0415  # loaded already, with the settings

    match value:
        case SecretStr():
            return value.get_secret_value()
        case dict():
            return tuple(f"{name}={target}" for name, target in cast("dict[str, str]", value).items())
        case _:
            return value


def _load(ctx: click.Context, *, always: bool) -> "tuple[Configuration, list[Setting]] | None":
    meta = ctx.meta
    if _KEY not in meta:
        name = cast("str | None", meta.get(_PATH))
        path = Path(name) if name else find_settings_file(Path.cwd())
        if path is None and not always and not gives_settings():
            return None
        from lanebus.handlers.cli.settings_model import load_configuration  # noqa: PLC0415  # imports pydantic

        meta[_KEY] = load_configuration(path, is_named=bool(name))
    return cast("tuple[Configuration, list[Setting]]", meta[_KEY])


def _typed(arguments: Sequence[str]) -> str | None:
    """Return the file that `--config` names, or the environment; None if neither does."""
    for index, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return argument.partition("=")[2]
        if argument == "--config" and index + 1 < len(arguments):
            return arguments[index + 1]
    return os.environ.get(CONFIG) or None
