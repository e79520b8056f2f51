"""`lanebus token`: make keys, sign tokens and revoke them."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from time import time

import click

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import Lane
from lanebus.handlers.cli.exits import WrongUsage
from lanebus.handlers.cli.options import BusCommand, BusGroup
from lanebus.handlers.cli.output import put, tell
from lanebus.handlers.serve import (
    ACTIONS,
    ALL,
    BOTH_LANES,
    READ,
    Principal,
    TokenFileUnreadable,
    WatchedFile,
    add_revocations,
    check_mode,
    new_key,
    sign_token,
)

_PATH = click.Path(path_type=Path, dir_okay=False)

_OPTIONS = {"actions": "--action", "sessions": "--session", "agents": "--agent", "seconds": "--hours"}


@click.group("token", cls=BusGroup)
def command() -> None:
    """Make keys, sign tokens and revoke them. A signed token lets a person or a program use the HTTP API of `lanebus
    serve --key-file FILE`: only some sessions, one lane, or some actions. These commands need no server.

    \b
    Example: lanebus token key lanebus.key
    Example: lanebus token sign --key-file lanebus.key --name alice --session 'support-*' --action read --action send
    Example: lanebus token revoke 0f3a9c1e2b7d4a60 --revoked-file revoked.txt
    """


@command.command("key", cls=BusCommand)
@click.argument("file", type=_PATH)
def key(file: Path) -> None:
    """Write a new key or start token to FILE, which only you may read. An existing file is not changed. To replace a
    key, put the new one on the first line, and remove the old one when its tokens have expired.

    \b
    Example: lanebus token key lanebus.key
    Example: lanebus token key start.token
    """
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise WrongUsage(f"{file} exists", "name another file") from None
    except OSError as error:
        raise WrongUsage(f"{file}: {error.strerror}", "name another file") from None
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(f"{new_key()}\n")
    tell(
        f"wrote {file}: start the server with --key-file {file}, or with --token-file {file} to use it as a start token"
    )


@command.command("sign", cls=BusCommand)
@click.option("--key-file", type=_PATH, required=True, metavar="FILE", help="Key of the server; its first line signs.")
@click.option("--name", required=True, metavar="NAME", help="Who the token is for; recorded as the sender.")
@click.option(
    "--session", "sessions", multiple=True, metavar="ID", help="Allowed session, or prefix and *; default: all."
)
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Allowed agent, or prefix and *; default: all.")
@click.option(
    "--lane",
    "lanes",
    multiple=True,
    type=click.Choice([lane.value for lane in Lane]),
    help="Allowed lane; default: both.",
)
@click.option(
    "--action",
    "actions",
    multiple=True,
    metavar="ACTION",
    help=f"Allowed action, with those below it: one of {', '.join(ACTIONS)}; default: read.",
)
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), default=24.0, show_default=True, help="Time until it expires."
)
@click.option("--audience", default="lanebus", show_default=True, metavar="TEXT", help="Servers that accept it.")
@click.option("--json", "is_json", is_flag=True, help="Print a JSON object with the token, its id and its expiry.")
def sign(
    *,
    key_file: Path,
    name: str,
    sessions: tuple[str, ...],
    agents: tuple[str, ...],
    lanes: tuple[str, ...],
    actions: tuple[str, ...],
    hours: float,
    audience: str,
    is_json: bool,
) -> None:
    """Sign a token and print it. Its id, by which you can revoke it, goes to stderr.

    \b
    Example: lanebus token sign --key-file lanebus.key --name wall --lane extension --hours 720
    """
    file = WatchedFile(key_file)
    lines = file.lines()
    if not lines:
        raise TokenFileUnreadable(key_file, "key", file.fault("key"))
    check_mode(file)
    if fault := file.exposure():
        tell(f"{key_file} {fault}: run `chmod 600 {key_file}`, and own it")
    try:
        principal = Principal(
            name=name,
            actions=actions or READ,
            sessions=sessions or ALL,
            agents=agents or ALL,
            lanes=frozenset(map(Lane, lanes)) or BOTH_LANES,
        )
        token, token_id = sign_token(principal, lines[0], seconds=hours * 3600, audience=audience)
    except InvalidArgument as error:
        option = _OPTIONS.get(error.name, f"--{error.name}")
        given = hours if option == "--hours" else error.given
        raise WrongUsage(f"{option} is {given}", error.advice) from None
    expires = int(time() + hours * 3600)
    if is_json:
        put(json.dumps({"token": token, "id": token_id, "expires": expires}))
        return
    put(token)
    until = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M UTC")
    tell(f"id {token_id}, expires {until}; revoke it with `lanebus token revoke {token_id} --revoked-file FILE`")


@command.command("revoke", cls=BusCommand)
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Revoke all tokens of this name, also later ones.")
@click.option(
    "--revoked-file", type=_PATH, required=True, metavar="FILE", help="The file that the server has; it is created."
)
def revoke(*, ids: tuple[str, ...], names: tuple[str, ...], revoked_file: Path) -> None:
    """Revoke tokens by their ids or names. Running servers refuse them within a second, and end their open streams. No
    ID and no name only creates the file.

    A name is refused until you delete its line from the file: also with tokens that you sign later.

    \b
    Example: lanebus token revoke 0f3a9c1e2b7d4a60 --revoked-file revoked.txt
    Example: lanebus token revoke --name alice --revoked-file revoked.txt
    """
    lines = [*ids, *(f"name:{name}" for name in names)]
    if any(not line.strip() or not line.isprintable() or line.startswith("#") for line in lines):
        raise WrongUsage("an id or a name is empty, begins with #, or is not printable", "give it as it was signed")
    if any(each.count(".") == 2 for each in ids):
        raise WrongUsage("an argument is a token, not its id", "give the id that `lanebus token sign` printed")
    try:
        add_revocations(revoked_file, lines)
    except OSError as error:
        raise WrongUsage(f"{revoked_file}: {error.strerror}", "name another file") from None
    tell(f"{len(lines)} revoked")
    for name in names:
        tell(f"tokens that you sign for {name} later are refused too, until you delete name:{name} from {revoked_file}")
