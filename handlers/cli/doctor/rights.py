"""Check whether the server's user may run each command that the bus needs, and use its keys.

The commands are queued in a transaction that is then discarded. The server checks rights while it queues a command, and
runs none of them. This needs no right to read the access lists.
"""

from collections.abc import Sequence

from lanebus.bus.errors import Refused
from lanebus.bus.servers.connection import Connection
from lanebus.bus.servers.replies import Argument, Reply
from lanebus.bus.servers.rights import command_name, read_examples, server_examples, write_examples
from lanebus.bus.wire.keys import Keys
from lanebus.handlers.cli.doctor.finding import Finding, error, ok, warning

__all__ = ("check_rights", "needed_commands")


async def check_rights(connection: Connection, keys: Keys, user: str) -> list[Finding]:
    """Check that the connection's user may run the commands that the bus needs. Return one finding.

    A user that may run all commands that read, and no command that writes, is a reader: nothing is wrong with it.

    The commands are queued in a transaction and discarded, so they change nothing.

    Args:
        connection: a connection to the server that holds `keys.sessions(0)`. No transaction is open on it.
        keys: names of the keys of the namespace.
        user: the name of the connection's user.

    Raises:
        Unavailable: the server did not answer.
    """
    commands = needed_commands(keys)
    first, *replies, _ = await connection.call_many([("MULTI",), *commands, ("DISCARD",)])
    if isinstance(first, Refused):
        return [_unknown(first)]
    refused = [command_name(command) for command, reply in zip(commands, replies, strict=True) if _is_forbidden(reply)]
    if not refused:
        return [ok("rights", f"the user {user!r} may run the {len(commands)} commands that the bus needs")]
    names = sorted(set(refused))
    if _is_reader(keys, refused):
        return [ok("rights", f"this user may only read; use {keys.namespace}-bus of `lanebus acl` to write")]
    remedy = f"run `lanebus acl --namespace {keys.namespace}`, apply what it prints, then {_SAVE}"
    return [error("rights", f"the user {user!r} may not run {', '.join(names)} on keys of {keys.namespace!r}", remedy)]


def needed_commands(keys: Keys) -> Sequence[tuple[Argument, ...]]:
    """Return an example of each command that the bus sends or that its scripts call. All keys are in bucket 0."""
    key = keys.sessions(0)
    return *read_examples(key), *write_examples(key), *server_examples(key)


def _is_reader(keys: Keys, refused: Sequence[str]) -> bool:
    """Whether each write is refused and nothing else, as for the reader of `lanebus acl`."""
    return set(refused) == {command_name(command) for command in write_examples(keys.sessions(0))}


def _is_forbidden(reply: Reply | Refused) -> bool:
    return isinstance(reply, Refused) and reply.code == "NOPERM"


_SAVE = "ACL SAVE, or CONFIG REWRITE if users are in the server's file"


def _unknown(refusal: Refused) -> Finding:
    return warning(
        "rights",
        f"the user's rights could not be checked: MULTI was refused with {refusal.code}",
        "allow the user MULTI and DISCARD, or check its rights with ACL DRYRUN",
    )
