"""Options of every command: which bus to open, and how to print. They may precede or follow the command's name."""

from pathlib import Path
from typing import NamedTuple, cast

import click
from click.core import ParameterSource

__all__ = ("BusCommand", "BusGroup", "Settings", "ViewCommand", "ViewGroup", "WithBusOptions")

_BUS = "lanebus.handlers.cli.bus"


class _Value(NamedTuple):
    text: str
    is_typed: bool
    """the value was typed on the command line; else it comes from the environment"""


def _values(ctx: click.Context) -> dict[str, _Value]:
    # A command and its groups share one `meta`, so an option after the command overwrites an option of a group.
    return cast("dict[str, _Value]", ctx.meta.setdefault(_BUS, {}))


def _store(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        source = ctx.get_parameter_source(param.name)
        _values(ctx)[param.name] = _Value(value, source is ParameterSource.COMMANDLINE)


def _bus_options(*, with_environment: bool) -> list[click.Parameter]:
    """Return the options that name the bus.

    Only the outermost group reads the environment: a variable must not override an option typed before the command.
    """
    texts = {
        "url": (
            "URL",
            "Redis or Valkey server, such as redis://localhost:6379, redis+sentinel://… or redis+cluster://…; "
            "default: the embedded server.",
        ),
        "data_dir": (
            "DIRECTORY",
            "Log of the embedded server; default: lanebus in the user's data directory, such as ~/.local/share.",
        ),
        "namespace": ("NAME", "Prefix of every key on the server; default: lanebus."),
        "media": ("PLACE", "Store of large media: a directory or s3://bucket; default: the server."),
        "archive": ("PLACE", "Archive of sessions: a directory or s3://bucket; default: none."),
    }
    return [
        click.Option(
            [f"--{name.replace('_', '-')}"],
            metavar=metavar,
            help=f"{text}  [env var: LANEBUS_{name.upper()}]",
            envvar=f"LANEBUS_{name.upper()}" if with_environment else None,
            expose_value=False,
            callback=_store,
        )
        for name, (metavar, text) in texts.items()
    ]


class Settings(NamedTuple):
    """The bus that a command opens."""

    url: str | None
    data_dir: Path | None
    namespace: str
    media: str | None = None
    """a directory or a URL; None stores media on the server"""
    archive: str | None = None
    """a directory or a URL; None means no archive"""

    @classmethod
    def of(cls, ctx: click.Context) -> "Settings":
        """Read the settings from the command line, else from the environment.

        A typed directory overrides a URL from the environment. If the environment names both, the URL is used, so that
        a container image can set a default directory.

        Raises:
            click.UsageError: both a URL and a directory were typed.
        """
        values = _values(ctx)
        url, data_dir, namespace = values.get("url"), values.get("data_dir"), values.get("namespace")
        media, archive = values.get("media"), values.get("archive")
        if url and data_dir and data_dir.is_typed:
            if url.is_typed:
                raise click.UsageError(
                    "--url and --data-dir exclude each other: --url names your server, --data-dir the embedded one"
                )
            url = None
        return cls(
            url.text if url else None,
            Path(data_dir.text) if data_dir and not url else None,
            namespace.text if namespace else "lanebus",
            media.text if media else None,
            archive.text if archive else None,
        )


class WithBusOptions(click.Command):
    """A command or group with `--url`, `--data-dir`, `--namespace`, `--media` and `--archive`, for `Settings.of`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        # Keep --help last.
        return [*params[:-1], *_bus_options(with_environment=ctx.parent is None), *params[-1:]]


class BusCommand(WithBusOptions):
    """A command that opens the bus."""


class BusGroup(WithBusOptions, click.Group):
    """A group of commands that open the bus."""


def _choose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["lanebus.handlers.cli.form"] = param.name


class ViewCommand(BusCommand):
    """A command that prints a table or JSON, with `--table` and `--json`. `Output.of` chooses."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        texts = {"json": "Print JSON, even to a terminal.", "table": "Print tables, even to a file or a pipe."}
        options = [
            click.Option([f"--{name}"], is_flag=True, help=text, expose_value=False, callback=_choose)
            for name, text in texts.items()
        ]
        own = len(self.params)
        return [*params[:own], *options, *params[own:]]


class ViewGroup(ViewCommand, BusGroup):
    """A group that prints a table or JSON if no command of it is named."""
