"""`lanebus acl`: print two users for the server's access list."""

import click

from lanebus.bus.servers.rights import acl_users
from lanebus.bus.wire.keys import check_namespace
from lanebus.handlers.cli.options import BusCommand, Settings
from lanebus.handlers.cli.terminal.output import put

__all__ = ("command",)


@click.command("acl", cls=BusCommand)
@click.pass_context
def command(ctx: click.Context) -> None:
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
