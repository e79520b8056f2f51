"""Find the cluster slot of a command. Pure. Source: the Redis Cluster specification."""

from binascii import crc_hqx
from collections.abc import Sequence

from lanebus.bus.servers.replies import Argument

__all__ = ("SLOTS", "key_of", "slot_of")

SLOTS = 16_384

_KEY_PLACES = {"EVAL": 3, "EVALSHA": 3, "MEMORY": 2, "OBJECT": 2, "XGROUP": 2, "XINFO": 2}
_KEYLESS = frozenset({"ACL", "BGREWRITEAOF", "CLIENT", "CONFIG", "INFO", "PING", "SCRIPT", "TIME", "WAIT", "WAITAOF"})


def key_of(command: Sequence[Argument]) -> str:
    """Return the first key of a command; "" if the command has no key, so that any server can execute it."""
    name = command[0]
    if name in _KEYLESS:
        return ""
    if name in {"XREAD", "XREADGROUP"}:
        return str(command[command.index("STREAMS") + 1])
    return str(command[_KEY_PLACES.get(str(name), 1)])


def slot_of(key: str) -> int:
    """Return the slot of a key: CRC-16/XMODEM of the text between its first braces, or of the whole key."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS
