"""Everything that a server holds, as text, to search it for what must not be there."""

from typing import cast

from tests.support.servers.real import RealServer

_READ = {
    "string": ("GET", ()),
    "hash": ("HGETALL", ()),
    "list": ("LRANGE", ("0", "-1")),
    "set": ("SMEMBERS", ()),
    "zset": ("ZRANGE", ("0", "-1", "WITHSCORES")),
    "stream": ("XRANGE", ("-", "+")),
}


def contents(server: RealServer, namespace: str) -> str:
    """Return the keys of a namespace and all that they hold, as text."""
    found: list[str] = []
    for key in map(_text, _items(server.do("KEYS", f"*{namespace}*"))):
        command, arguments = _READ[_text(server.do("TYPE", key))]
        found.append(f"{key}: {server.do(command, key, *arguments)!r}")
    return "\n".join(found)


def _items(reply: object) -> list[object]:
    assert isinstance(reply, list)
    return cast("list[object]", reply)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
