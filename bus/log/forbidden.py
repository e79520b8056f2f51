"""Find the command that a script's user may not run, for servers that do not name it. Redis 7.0 is one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lanebus.bus.errors import Refused
from lanebus.bus.servers.rights import command_name, read_examples, server_examples, write_examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.servers.replies import Argument, Calling, Reply

__all__ = ("name_forbidden",)

_FIRST_FORBIDDEN = """
for at, command in ipairs(cjson.decode(ARGV[1])) do
  local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(command))
  if is_known and not is_allowed then return at end
end
return 0
"""
"""Runs none of the commands. MULTI and DISCARD run none either, but a user without DISCARD would leave the transaction
open."""


async def name_forbidden(
    server: Calling, scripts: Sequence[tuple[str, Sequence[Argument]]], replies: Sequence[Reply | Refused]
) -> list[Reply | Refused]:
    """Return the replies. Each NOPERM reply without a command gets the name of the command that is not allowed.

    The name stays empty if the server cannot check the rights of a command.

    Args:
        server: the connection or pool that sent the scripts.
        scripts: the text of each script, and the command that called it.
        replies: the reply to each script.

    Raises:
        Unavailable: as for `Connection.call_many`.
    """
    named = list(replies)
    for at, reply in enumerate(replies):
        if isinstance(reply, Refused) and reply.code == "NOPERM" and not reply.command:
            text, command = scripts[at]
            key = command[3] if command[2] else None  # the script's first key
            if not isinstance(key, str):
                continue
            called = [each for each in _examples(key) if repr(each[0]) in text]
            [found] = await server.call_many([("EVAL", _FIRST_FORBIDDEN, 1, key, json.dumps(called))])
            if isinstance(found, int) and found:
                named[at] = Refused("NOPERM", command_name(called[found - 1]))
    return named


def _examples(key: str) -> Sequence[tuple[Argument, ...]]:
    return *write_examples(key), *read_examples(key), *server_examples(key)
