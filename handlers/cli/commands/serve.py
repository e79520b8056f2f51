"""`lanebus serve`: serve the web page that shows sessions live."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from lanebus.bus import Bus, DataDir, default_data_dir
from lanebus.bus.errors import DirectoryNotCreated
from lanebus.handlers.agent import ConnectionCounts
from lanebus.handlers.cli.access import Patience, open_bus, run
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.log_options import (
    MonitorAddress,
    log_options,
    logging_to_stderr,
    monitor_options,
    page_monitor,
)
from lanebus.handlers.cli.modules import load_module, needs_mcp
from lanebus.handlers.cli.options import BusCommand, Settings, wait_option
from lanebus.handlers.cli.output import Output, tell
from lanebus.handlers.projections import Projection, find_projection
from lanebus.handlers.serve import (
    Authorize,
    Identify,
    ServeMissing,
    TokenFiles,
    check_folder,
    load_authorize,
    load_identify,
)

if TYPE_CHECKING:
    from lanebus.handlers.serve import HostedApp


PORT = 8420

_PATH = click.Path(dir_okay=False)

_EXTRA = frozenset({"starlette", "uvicorn"})


@click.command("serve", cls=BusCommand)
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on.", show_default=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=PORT,
    help="Port to listen on; 0 takes a free one.",
    show_default=True,
)
@click.option(
    "--token",
    metavar="TEXT",
    help="Token that the URL must contain; default: a random one. Other users of the machine see arguments: use"
    " --token-file, or the variable.  [env var: LANEBUS_TOKEN]",
)
@click.option(
    "--token-file", type=_PATH, metavar="FILE", help="File with tokens that the URL may contain, one in each line."
)
@click.option(
    "--reader-token",
    metavar="TEXT",
    help="Token that allows only reading; default: none.  [env var: LANEBUS_READER_TOKEN]",
)
@click.option("--reader-token-file", type=_PATH, metavar="FILE", help="File with tokens that allow only reading.")
@click.option("--key-file", type=_PATH, metavar="FILE", help="File with keys for signed tokens; see `lanebus token`.")
@click.option("--revoked-file", type=_PATH, metavar="FILE", help="File with the ids of revoked tokens.")
@click.option("--audience", default="lanebus", metavar="TEXT", help="Audience of signed tokens.", show_default=True)
@click.option("--identify", metavar="MODULE:ATTRIBUTE", help="Names users by headers, such as those of a proxy.")
@click.option("--authorize", metavar="MODULE:ATTRIBUTE", help="Decides each request; default: by the token's rights.")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="HOST:PORT",
    help="Accept requests to this host name too; may be repeated.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin use the server too, such as https://app.example.com; may be repeated.",
)
@click.option(
    "--allow-media-url",
    "media_urls",
    multiple=True,
    metavar="URL",
    help="Let clients name media below this address, such as https://cdn.example.com/public, which providers fetch;"
    " may be repeated.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe X-Forwarded-For, -Proto and -Host of this address or network; may be repeated.",
)
@click.option(
    "--base-path",
    default="",
    metavar="PATH",
    help="Serve all below this path, such as /lanebus; default: the root. A proxy may remove it or not.",
)
@click.option(
    "--projection",
    "projections",
    multiple=True,
    metavar="MODULE:ATTRIBUTE",
    help="Serve this projection of yours too; may be repeated.",
)
@click.option(
    "--uploads",
    type=click.Path(file_okay=False),
    metavar="DIRECTORY",
    help="Where uploaded files wait for their message; default: in the data directory, apart for each bus, or a"
    " temporary one for a user without a home directory. Several servers of one bus on one machine share it.",
)
@click.option(
    "--mcp",
    type=click.Choice(["read", "publish"]),
    help="Serve MCP clients at /mcp too, with the rights of their tokens: to read, or to send messages as well. Needs"
    " the extra `mcp`.",
)
@wait_option
@monitor_options
@log_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    host: str,
    port: int,
    token: str | None,
    token_file: str | None,
    reader_token: str | None,
    reader_token_file: str | None,
    key_file: str | None,
    revoked_file: str | None,
    audience: str,
    identify: str | None,
    authorize: str | None,
    allowed: tuple[str, ...],
    origins: tuple[str, ...],
    media_urls: tuple[str, ...],
    proxies: tuple[str, ...],
    base_path: str,
    projections: tuple[str, ...],
    uploads: str | None,
    mcp: str | None,
    wait: float | None,
    monitor: str | None,
    monitor_allowed: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Serve the web page that shows sessions live, until Ctrl-C. Prints the page's URL. It contains the token only if
    that is random, or typed as --token: the output of a service is stored. If --reader-token is typed and the log is
    text, also prints a read-only URL. If the server of --url does not answer yet, waits for it.

    \b
    Example: lanebus serve --port 8421
    """
    if reader_token and reader_token == token:
        raise WrongUsage("--reader-token and --token are the same", "use two different tokens")
    files = TokenFiles(
        token=_path(token_file),
        reader_token=_path(reader_token_file),
        key=_path(key_file),
        revoked=_path(revoked_file),
        audience=audience,
    )
    tokens = _Tokens(
        _Token(token, is_shown=token_file is None and _is_typed(ctx, "token")),
        _Token(reader_token, is_shown=reader_token_file is None and _is_typed(ctx, "reader_token")),
        files,
        None if identify is None else load_module(load_identify, identify),
        None if authorize is None else load_module(load_authorize, authorize),
    )
    address = MonitorAddress.parse(monitor, monitor_allowed)
    settings = Settings.of(ctx)
    if uploads:  # the default directory is created by the first upload: a server of readers needs none
        check_folder(Path(uploads))
    edge = Edge(allowed, origins, proxies, base_path, media_urls)
    main = partial(_serve, settings, Output.of(ctx), host=host, port=port, tokens=tokens, edge=edge)
    main = partial(main, uploads=_path(uploads) or _uploads_of(settings), hosted=_hosted(mcp))
    found = tuple(load_module(find_projection, each) for each in projections)
    with logging_to_stderr(log_level, log_format) as is_json:
        patience = Patience(inf if wait is None else wait)
        run(partial(main, projections=found, address=address, is_quiet=is_json, patience=patience))


def _is_typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _hosted(mcp: str | None) -> tuple["HostedApp", ...]:
    if mcp is None:
        return ()
    with needs_mcp():
        from lanebus.handlers.serve import McpHosted  # noqa: PLC0415  # an extra
    return (McpHosted(allow_publish=mcp == "publish"),)


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None


def _uploads_of(settings: Settings) -> Path | None:
    """Return the directory of a bus's uploads. Of two buses, neither may offer the uploads of the other.

    None stands for a temporary directory: a user of a server's URL needs no home directory.
    """
    if settings.url is None:
        return DataDir.at(settings.data_dir).path / "uploads"
    if (place := settings.place) is None:
        return None
    try:
        home = default_data_dir()
    except DirectoryNotCreated:
        return None
    return home.with_name(f"{home.name}-uploads") / sha256(place.encode()).hexdigest()[:16]


class Edge(NamedTuple):
    """How clients may reach the page. The fields are arguments of `lanebus.handlers.serve.server.serve`."""

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    base_path: str = ""
    media_urls: tuple[str, ...] = ()


class _Token(NamedTuple):
    text: str | None
    is_shown: bool
    """whether a URL that is printed may contain it"""


class _Tokens(NamedTuple):
    start: _Token
    reader: _Token
    files: TokenFiles
    identify: Identify | None
    authorize: Authorize | None


async def _serve(
    settings: Settings,
    output: Output,
    *,
    host: str,
    port: int,
    tokens: _Tokens,
    edge: Edge,
    projections: tuple[Projection[object], ...],
    uploads: Path | None,
    hosted: tuple["HostedApp", ...],
    address: MonitorAddress | None,
    is_quiet: bool,
    patience: Patience,
) -> None:
    def on_ready(url: str) -> None:
        page = url.partition("#")[0]
        is_hidden = tokens.files.token is not None or bool(tokens.start.text and not tokens.start.is_shown)
        output.line(page if is_hidden else url, flush=True)
        if is_quiet:
            return
        if tokens.reader.text and tokens.reader.is_shown:
            tell(f"read-only URL: {page}#token={tokens.reader.text}")
        if is_hidden:
            where = f"a line of {tokens.files.token}" if tokens.files.token is not None else "the token that is set"
            tell(f"open this URL in a browser, with #token= and {where} at its end; Ctrl-C stops the server")
        else:
            tell("open this URL in a browser; Ctrl-C stops the server")

    connections = ConnectionCounts()
    async with open_bus(settings, patience, remembers=True) as bus, page_monitor(bus, address, connections):
        await serve_page(
            bus,
            host=host,
            port=port,
            token=tokens.start.text or None,
            reader_token=tokens.reader.text or None,
            token_files=tokens.files,
            identify=tokens.identify,
            authorize=tokens.authorize,
            edge=edge,
            projections=projections,
            uploads=uploads,
            hosted=hosted,
            connections=connections,
            on_ready=on_ready,
        )


async def serve_page(
    bus: Bus,
    *,
    on_ready: Callable[[str], None],
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    reader_token: str | None = None,
    token_files: TokenFiles | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    edge: Edge | None = None,
    projections: tuple[Projection[object], ...] = (),
    uploads: Path | None = None,
    hosted: tuple["HostedApp", ...] = (),
    connections: ConnectionCounts | None = None,
) -> None:
    """Serve the page until cancelled.

    Args:
        on_ready: called once with the page's URL when the server accepts requests.
        host, port, token, reader_token, token_files, identify, authorize, projections, uploads, hosted, connections: as
            for `lanebus.handlers.serve.server.serve`.
        edge: how clients may reach the page; None means only by this machine's own names.

    Raises:
        ServeMissing: the packages of the extra `serve` are not installed.
        PortInUse: another program listens on this port.
        AddressRefused: the operating system refused to listen on this address.
        ValueError: both tokens are the same, or the reader's token is empty.
    """
    try:
        from lanebus.handlers.serve import serve  # noqa: PLC0415  # its packages are an extra and may be missing
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise ServeMissing(str(error.name)) from None
        raise
    edge = edge or Edge()
    await serve(
        bus,
        host=host,
        port=port,
        token=token,
        reader_token=reader_token,
        token_files=token_files,
        identify=identify,
        authorize=authorize,
        allowed_hosts=edge.hosts,
        allowed_origins=edge.origins,
        trusted_proxies=edge.proxies,
        base_path=edge.base_path,
        allowed_media_urls=edge.media_urls,
        projections=projections,
        uploads=uploads,
        hosted=hosted,
        connections=connections,
        on_ready=on_ready,
    )
