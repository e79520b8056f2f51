"""Options of every command: which bus to open, and how to print. They may precede or follow the command's name.

The settings file sets defaults for options that were not typed.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.sources import CONFIG, find_settings_file, gives_settings, unexplained_variables

if TYPE_CHECKING:
    from lanebus.bus import Bounds
    from lanebus.handlers.cli.settings_model import Configuration, Setting


F = TypeVar("F", bound=Callable[..., object])

_BUS = "lanebus.handlers.cli.bus"
_FORM, _WIDE = "lanebus.handlers.cli.form", "lanebus.handlers.cli.wide"


class _Value(NamedTuple):
    text: str
    is_typed: bool
    """the value was typed on the command line"""
    is_of_file: bool = False
    """it comes from the settings file; if neither, it comes from the environment"""


def _values(ctx: click.Context) -> dict[str, _Value]:
    # A command and its groups share one `meta`, so an option after the command overwrites an option of a group.
    return cast("dict[str, _Value]", ctx.meta.setdefault(_BUS, {}))


def typed_values(ctx: click.Context) -> dict[str, str]:
    """Return the options that were typed on the command line, by name, such as `data_dir`."""
    return {name: value.text for name, value in _values(ctx).items() if value.is_typed}


def _store(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    if value is not None and value is not False:
        source = ctx.get_parameter_source(param.name)
        _values(ctx)[param.name] = _Value(str(value), source is ParameterSource.COMMANDLINE)


def wait_option(command: F) -> F:
    """Add `--wait` to a command, and pass it to it as `wait`; None means unlimited."""
    return click.option(
        "--wait",
        type=click.FloatRange(min=0.0),
        metavar="SECONDS",
        help="Longest time to wait at the start for a server of --url that does not answer yet; 0 ends at once;"
        " default: without limit.",
    )(command)


class SharedOption(NamedTuple):
    """An option of many commands. Only `lanebus help options` explains it."""

    name: str
    metavar: str
    """name of the option's value in the help, such as URL; "" for a flag"""
    help: str
    variable: str = ""
    """the environment variable that sets the option; empty if there is none"""

    @property
    def usage(self) -> str:
        """The option as users type it, such as `--url URL`."""
        return f"--{self.name} {self.metavar}".rstrip()

    @property
    def help_with_variable(self) -> str:
        """The help text, followed by the environment variable if there is one."""
        return f"{self.help}  [env var: {self.variable}]" if self.variable else self.help


_BUS_OPTIONS = (
    SharedOption(
        "url",
        "URL",
        "Redis or Valkey server, such as redis://localhost:6379, redis+sentinel://… or redis+cluster://…; "
        "default: the embedded server.",
        "LANEBUS_URL",
    ),
    SharedOption(
        "data-dir",
        "DIRECTORY",
        "Log of the embedded server; default: lanebus in the user's data directory, such as ~/.local/share.",
        "LANEBUS_DATA_DIR",
    ),
    SharedOption(
        "state-dir",
        "DIRECTORY",
        "Where worker and serve keep which log they have seen, to notice after a restart that it was lost; default: "
        "lanebus in the user's state directory, such as ~/.local/state.",
        "LANEBUS_STATE_DIR",
    ),
    SharedOption("namespace", "NAME", "Prefix of every key on the server; default: lanebus.", "LANEBUS_NAMESPACE"),
    SharedOption(
        "media",
        "PLACE",
        "Store of large media: a directory or s3://bucket; default: the server.",
        "LANEBUS_MEDIA",
    ),
    SharedOption(
        "archive", "PLACE", "Archive of sessions: a directory or s3://bucket; default: none.", "LANEBUS_ARCHIVE"
    ),
    SharedOption(
        "redact",
        "MODULE:ATTRIBUTE",
        "Plain function that returns each message as it may be stored, also path/to/file.py:ATTRIBUTE; default: none.",
        "LANEBUS_REDACT",
    ),
    SharedOption(
        "config",
        "FILE",
        "Settings file; default: lanebus.toml in this directory or the nearest parent, up to the repository or home.",
        "LANEBUS_CONFIG",
    ),
    SharedOption(
        "traces", "", "Record OpenTelemetry traces, with an SDK set up from OTEL_… variables.", "LANEBUS_TRACES"
    ),
)

_VIEW_OPTIONS = (
    SharedOption("json", "", "Print JSON, one object per line, even to a terminal."),
    SharedOption("table", "", "Print tables, even to a file or a pipe."),
    SharedOption("wide", "", "Cut no column of a table, even if lines are longer than the terminal is wide."),
)

SHARED_OPTIONS = (*_BUS_OPTIONS, *_VIEW_OPTIONS)
"""the options of many commands, for `lanebus help options` and the reference"""


class _Shared(click.Option):
    """An option that the help of a command only names: see `format_epilog`."""

    def get_help_record(self, ctx: click.Context) -> None:
        del ctx


def _bus_options(*, with_environment: bool) -> list[click.Parameter]:
    """Return the options that name the bus.

    Only the outermost group reads the environment: a variable must not override an option typed before the command.
    """
    return [
        _Shared(
            [f"--{option.name}"],
            metavar=option.metavar,
            help=option.help,
            envvar=option.variable if with_environment else None,
            is_flag=not option.metavar,
            default=None,
            expose_value=False,
            callback=_store,
        )
        for option in _BUS_OPTIONS
    ]


def _choose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        key = _WIDE if param.name == "wide" else _FORM
        if ctx.meta.setdefault(key, param.name) != param.name:
            raise WrongUsage("--json and --table exclude each other", "give one of them")


def _view_options() -> list[click.Parameter]:
    return [
        _Shared([f"--{option.name}"], is_flag=True, help=option.help, expose_value=False, callback=_choose)
        for option in _VIEW_OPTIONS
    ]


def _from_file(configuration: "Configuration | None") -> dict[str, _Value]:
    if configuration is None:
        return {}
    names = ("url", "data_dir", "state_dir", "namespace", "media", "archive", "redact", "traces")
    found = {name: getattr(configuration, name) for name in names}
    return {name: _Value(str(value), is_typed=False, is_of_file=True) for name, value in found.items() if value}


class Settings(NamedTuple):
    """The settings of the bus that a command opens."""

    url: str | None
    data_dir: Path | None
    namespace: str
    media: str | None = None
    """directory or URL where media are stored; None means on the server"""
    archive: str | None = None
    """directory or URL of the archive; None means no archive"""
    redact: str | None = None
    """where the function is that changes messages before they are stored; None means no function"""
    bounds: "Bounds | None" = None
    """bounds of the bus; None means the defaults"""
    is_traced: bool = False
    """whether to set up the OpenTelemetry SDK if it is not set up"""
    state_dir: Path | None = None
    """directory of the state files; None means the default"""

    @classmethod
    def of(cls, ctx: click.Context) -> "Settings":
        """Read the settings from the command line, else from the environment, else from the settings file.

        `url` and `data_dir` exclude each other. If both are set, the one from the earlier source is used. If the
        environment, or the file, sets both, the URL is used: a container image can set a default directory.

        Raises:
            WrongUsage: the command line has both `--url` and `--data-dir`.
            SettingsRefused: the settings file cannot be read, or a setting is wrong.
        """
        configuration = configured(ctx)
        values = {**_from_file(configuration), **_values(ctx)}
        url, data_dir, namespace = values.get("url"), values.get("data_dir"), values.get("namespace")
        media, archive, redact = values.get("media"), values.get("archive"), values.get("redact")
        if url and data_dir:
            if url.is_typed and data_dir.is_typed:
                raise WrongUsage(
                    "--url and --data-dir exclude each other",
                    "use --url for a server of your own, --data-dir for the embedded one",
                )
            if data_dir.is_typed or (url.is_of_file and not data_dir.is_of_file):
                url = None
        return cls(
            url.text if url else None,
            Path(data_dir.text) if data_dir and not url else None,
            namespace.text if namespace else "lanebus",
            media.text if media else None,
            archive.text if archive else None,
            redact.text if redact else None,
            configuration.bounds if configuration is not None else None,
            is_traced="traces" in values,
            state_dir=Path(values["state_dir"].text) if "state_dir" in values else None,
        )

    @property
    def place(self) -> str | None:
        """A text that names the server, without user and password; None if the URL is none, which the bus refuses.

        Raises:
            SetupError: the path of the embedded server's data directory cannot be used.
        """
        if self.url is None:
            from lanebus.bus import DataDir  # noqa: PLC0415  # the help of a command does not need it

            return str(DataDir.at(self.data_dir).path)
        try:
            bus = urlsplit(self.url)
        except ValueError:
            return None
        return f"{bus.scheme}://{bus.netloc.rpartition('@')[2]}{bus.path}?{bus.query}"


class WithBusOptions(click.Command):
    """A command or group with the options `--url`, `--data-dir`, `--namespace`, `--media`, `--archive`, `--redact`
    and `--traces`, which `Settings.of` reads. A group also has `--json`, `--table` and `--wide`, for its commands."""

    has_view = False
    """whether the command itself has the options `--json`, `--table` and `--wide`, which `Output.of` reads"""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params, own = super().get_params(ctx), len(self.params)
        view = _view_options() if self.has_view or isinstance(self, click.Group) else []
        # Keep --help last.
        return [*params[:own], *view, *params[own:-1], *_bus_options(with_environment=ctx.parent is None), *params[-1:]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. If click raises a usage error without a context, set the error's context to `ctx`."""
        apply_defaults(ctx, args)
        try:
            self._refuse_view(ctx)
            self._refuse_empty(ctx, args)
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def _refuse_view(self, ctx: click.Context) -> None:
        """Refuse `--json`, `--table` and `--wide` before a command that has no such option."""
        if self.has_view or isinstance(self, click.Group):
            return
        given = [ctx.meta[_FORM]] if _FORM in ctx.meta else ["wide"] if _WIDE in ctx.meta else []
        for name in given:
            is_own = any(f"--{name}" in param.opts for param in self.params)
            remedy = f"write `{ctx.command_path} --{name}`, after the command" if is_own else "leave it out"
            raise WrongUsage(f"--{name} does not stand before {ctx.info_name}", remedy)

    def _refuse_empty(self, ctx: click.Context, args: list[str]) -> None:
        # An empty value is often a variable that the shell does not know. As a directory it would mean this one.
        given: dict[str, object] = self.make_parser(ctx).parse_args([*args])[0]
        for param in self.get_params(ctx):
            value = given.get(param.name or "")
            if isinstance(param, click.Option) and (value == "" or (isinstance(value, list) and "" in value)):
                raise WrongUsage(f"{param.opts[0]} is empty", "give it a value, or leave it out")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name the shared options at the end of the help."""
        super().format_epilog(ctx, formatter)
        names = [f"--{option.name}" for option in SHARED_OPTIONS]
        own = {name for param in self.get_params(ctx) if isinstance(param, _Shared) for name in param.opts}
        formatter.write_paragraph()
        formatter.write_text(f"Also: {', '.join(name for name in names if name in own)}; see `lanebus help options`.")


class BusCommand(WithBusOptions):
    """A command that opens the bus."""


class BusGroup(WithBusOptions, click.Group):
    """A group of commands that open the bus."""


class ViewCommand(BusCommand):
    """A command that prints a table or JSON, with the options `--json`, `--table` and `--wide`."""

    has_view = True


class ViewGroup(ViewCommand, BusGroup):
    """A group that prints a table or JSON if the command line names none of the group's commands."""


# The settings file of a command: how it is found, and which defaults it sets for options that were not typed.

_CONFIGURATION_KEY = "lanebus.handlers.cli.options"
_PATH = "lanebus.handlers.cli.config_path"

_SERVICES = ("worker", "serve")
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
    found = _load_configuration(ctx, always=False)
    return found[0] if found is not None else None


def configured_settings(ctx: click.Context) -> "list[Setting]":
    """Return each setting with its source.

    Raises:
        SettingsRefused: the file cannot be read, has an unknown key, or a value is not allowed.
    """
    found = _load_configuration(ctx, always=True)
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
    if ctx.info_name not in _SERVICES or ctx.resilient_parsing or {"--help", "-h"} & {*arguments}:
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


def _load_configuration(ctx: click.Context, *, always: bool) -> "tuple[Configuration, list[Setting]] | None":
    meta = ctx.meta
    if _CONFIGURATION_KEY not in meta:
        name = cast("str | None", meta.get(_PATH))
        path = Path(name) if name else find_settings_file(Path.cwd())
        if path is None and not always and not gives_settings():
            return None
        from lanebus.handlers.cli.settings_model import load_configuration  # noqa: PLC0415  # imports pydantic

        meta[_CONFIGURATION_KEY] = load_configuration(path, is_named=bool(name))
    return cast("tuple[Configuration, list[Setting]]", meta[_CONFIGURATION_KEY])


def _typed(arguments: Sequence[str]) -> str | None:
    """Return the file that `--config` names, or the environment; None if neither does."""
    for index, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return argument.partition("=")[2]
        if argument == "--config" and index + 1 < len(arguments):
            return arguments[index + 1]
    return os.environ.get(CONFIG) or None
