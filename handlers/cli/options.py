"""Options that every command takes, before or after its name: which bus, and how to print."""

from pathlib import Path
from typing import NamedTuple, cast

import click
from click.core import ParameterSource

__all__ = ("BusCommand", "BusGroup", "Settings", "ViewCommand", "WithBusOptions")

_GIVEN = "lanebus.handlers.cli.given"


class _Given(NamedTuple):
    value: str
    is_typed: bool
    """by the user of this very command; else it comes from the environment"""


def _given(ctx: click.Context) -> dict[str, _Given]:
    # `meta` is one dict for a command and all groups around it, so that the later, inner one takes precedence.
    return cast("dict[str, _Given]", ctx.meta.setdefault(_GIVEN, {}))


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        source = ctx.get_parameter_source(param.name)
        _given(ctx)[param.name] = _Given(value, source is ParameterSource.COMMANDLINE)


def _bus_options(*, with_environment: bool) -> list[click.Parameter]:
    """The innermost command must not look into the environment again, over what was typed before its name."""
    texts = {
        "url": (
            "URL",
            "A Redis or Valkey server of yours, as redis://localhost:6379; or redis+cluster:// or redis+sentinel://.",
        ),
        "data_dir": ("DIRECTORY", "Where the embedded server keeps its log."),
        "namespace": ("NAME", "The beginning of every key; 'lanebus' if not given."),
        "media": ("PLACE", "Where large media are: a directory, or s3://bucket; with the log if not given."),
        "archive": ("PLACE", "Where sessions are archived: a directory, or s3://bucket; nowhere if not given."),
    }
    return [
        click.Option(
            [f"--{name.replace('_', '-')}"],
            metavar=metavar,
            help=f"{text}  [env var: LANEBUS_{name.upper()}]",
            envvar=f"LANEBUS_{name.upper()}" if with_environment else None,
            expose_value=False,
            callback=_remember,
        )
        for name, (metavar, text) in texts.items()
    ]


class Settings(NamedTuple):
    """Which bus a command is to open."""

    url: str | None
    data_dir: Path | None
    namespace: str
    media: str | None = None
    """a directory or a URL; None is the bus's own server"""
    archive: str | None = None
    """a directory or a URL; None is nowhere"""

    @classmethod
    def of(cls, ctx: click.Context) -> "Settings":
        """What was typed, else what the environment says.

        A typed directory wins over an URL of the environment. Where the environment names both, the URL wins: an image
        may name a directory for whoever gives no URL.

        Raises:
            click.UsageError: both a URL and a directory were typed.
        """
        given = _given(ctx)
        url, data_dir, namespace = given.get("url"), given.get("data_dir"), given.get("namespace")
        media, archive = given.get("media"), given.get("archive")
        if url and data_dir and data_dir.is_typed:
            if url.is_typed:
                raise click.UsageError(
                    "--url and --data-dir exclude each other: a server of yours, or the embedded one"
                )
            url = None
        return cls(
            url.value if url else None,
            Path(data_dir.value) if data_dir and not url else None,
            namespace.value if namespace else "lanebus",
            media.value if media else None,
            archive.value if archive else None,
        )


class WithBusOptions(click.Command):
    """A command or group with `--url`, `--data-dir`, `--namespace`, `--media` and `--archive`, for `Settings.of`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        # The last one is --help, which stays the last.
        return [*params[:-1], *_bus_options(with_environment=ctx.parent is None), *params[-1:]]


class BusCommand(WithBusOptions):
    """A command that opens the bus."""


class BusGroup(WithBusOptions, click.Group):
    """A group of such commands."""


def _choose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["lanebus.handlers.cli.form"] = param.name


class ViewCommand(BusCommand):
    """A command that shows something, as a table or as JSON: `Output.of` chooses."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        texts = {"json": "Print JSON, also on a terminal.", "table": "Print tables, also into a file or pipe."}
        options = [
            click.Option([f"--{name}"], is_flag=True, help=text, expose_value=False, callback=_choose)
            for name, text in texts.items()
        ]
        own = len(self.params)
        return [*params[:own], *options, *params[own:]]
