"""Store checkpoints: the progress of a session's readers and projections. A trim keeps all entries after a checkpoint.

| field | holder | value |
|---|---|---|
| r:<name> | a reader with a checkpoint | its cursor |
| p:<name>@<version> | a stored projection | the last position that it includes |
| f:<session> | a fork that shares entries | the last position that it does not need |

A projection whose name begins with `lanebus.` is a cache, and holds no trim back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import CursorTrimmed, InvalidCursor, InvalidName, SessionErased, require_text
from lanebus.bus.log.head import head_command, read_head
from lanebus.bus.log.lineage import common_position, require_same_log
from lanebus.bus.log.log import Script, batched
from lanebus.bus.servers.calls import answered, call_all
from lanebus.bus.wire.envelope import START, Cursor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.log.lineage import ArchiveReader
    from lanebus.bus.log.log import Log


_CHECKPOINT, _PROJECT, _DROP = Script("checkpoint"), Script("project"), Script("drop")

_CACHE = b"p:lanebus."
"""how the holders begin that hold no trim back"""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Checkpoint(NamedTuple):
    """A projection's state, and the cursor of the last entry that it includes."""

    state: bytes
    cursor: Cursor

    @property
    def position(self) -> int:
        """The position of the last entry that the state includes."""
        return self.cursor.position


def check_name(name: str) -> str:
    """Return the name of a reader or projection if it is valid.

    Raises:
        InvalidName: `name` does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    require_text("name", name)
    if _NAME.fullmatch(name) is None:
        raise InvalidName(name)
    return name


async def save_checkpoint(
    log: Log, session: str, name: str, cursor: Cursor, *, rewind: bool, archive: ArchiveReader | None = None
) -> bool:
    """See `Session.save_checkpoint`."""
    keys, field = log.keys, f"r:{check_name(name)}"
    names = (keys.head(session), keys.checkpoints(session))
    reading = (head_command(keys, session), ("HGET", keys.checkpoints(session), field))
    while True:
        head_reply, reply = await log.call_many(reading)
        head, value = read_head(session, head_reply), cast("bytes | None", answered(reply))
        if head.is_erased:
            raise SessionErased(session)
        await require_same_log(log, head, cursor, archive)
        if value is not None and not rewind and (stored := _cursor(value)).is_after(cursor):
            try:
                if await common_position(log, head, stored, archive) == stored.position:
                    return False
            except CursorTrimmed:  # the stored cursor can no longer be checked against the log: replace it
                pass
        answer = cast("bytes", await log.run(_CHECKPOINT, names, (field, value or b"", str(cursor)))).decode()
        if answer == "erased":
            raise SessionErased(session)
        if answer == "saved":
            return True


async def load_checkpoint(log: Log, session: str, name: str) -> Cursor | None:
    """See `Session.load_checkpoint`."""
    value = cast("bytes | None", await log.call("HGET", log.keys.checkpoints(session), f"r:{check_name(name)}"))
    return None if value is None else _cursor(value)


async def drop_checkpoint(log: Log, session: str, name: str) -> bool:
    """See `Session.drop_checkpoint`."""
    return await log.call("HDEL", log.keys.checkpoints(session), f"r:{check_name(name)}") == 1


async def checkpoints(log: Log, sessions: Sequence[str]) -> list[dict[str, Cursor]]:
    """Return what `Session.checkpoints` returns, of each of these sessions."""
    found: list[dict[str, Cursor]] = []
    for some in batched(sessions, log.bounds.heads):
        for reply in await call_all(log.pool, [("HGETALL", log.keys.checkpoints(session)) for session in some]):
            flat = cast("list[bytes]", reply)
            pairs = [pair for pair in zip(flat[::2], flat[1::2], strict=True) if not pair[0].startswith(_CACHE)]
            found.append({name.decode(errors="replace"): _cursor(value) for name, value in sorted(pairs)})
    return found


async def load_projection(log: Log, session: str, name: str, version: int) -> Checkpoint | None:
    """See `Session.load_projection`."""
    key = log.keys.projection(session, name, version)
    reply = await log.call("HMGET", key, "state", "position", "incarnation", "proof")
    state, position, incarnation, proof = cast("list[bytes | None]", reply)
    if state is None or position is None:
        return None
    text = b"%b-0.%b" % (position, incarnation) if incarnation else position + b"-0"
    if incarnation and proof:
        text += b"." + proof
    try:
        return Checkpoint(state, Cursor.parse(text.decode(errors="replace")))
    except InvalidCursor:  # a foreign client wrote this value: the state is folded again
        return None


async def save_projection(
    log: Log, session: str, name: str, version: int, state: bytes, *, cursor: Cursor, expected: int
) -> bool:
    """See `Session.save_projection`."""
    names = (
        log.keys.projection(session, name, version),
        log.keys.checkpoints(session),
        log.keys.head(session),
    )
    arguments = (expected, cursor.position, state, cursor.incarnation, f"p:{name}@{version}", cursor.proof)
    reply = await log.run(_PROJECT, names, arguments)
    if reply == -1:
        raise SessionErased(session)
    return reply == 1


async def drop_projection(log: Log, session: str, name: str, version: int) -> bool:
    """See `Session.drop_projection`."""
    names = (log.keys.projection(session, name, version), log.keys.checkpoints(session))
    return await log.run(_DROP, names, (f"p:{name}@{version}",)) != 0


def _cursor(value: bytes) -> Cursor:
    try:
        return Cursor.parse(value.decode(errors="replace"))
    except InvalidCursor:  # a foreign client wrote this value; trim.lua also reads it as position 0
        return START
