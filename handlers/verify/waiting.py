"""What consumer groups keep in a bucket beside its index: work that was put off, and work that was set aside."""

import re

from bus.errors import InvalidSessionId
from bus.inspection import Inspector
from bus.keys import check_session_id
from handlers.verify.problem import Findings, look

__all__ = ("check_waiting",)

_PUT_OFF = re.compile(r"[0-9]{1,9} ([0-9]{1,18}) (\S{1,64}) \S* .*", re.DOTALL)
_GROUP_AND_POINTER = re.compile(r"(\S{1,64}) ([0-9]{1,18}-[0-9]{1,18})")


async def check_waiting(inspector: Inspector, bucket: int, findings: Findings) -> None:
    """Each is of a session that is there. Sessions are asked for after what names them was read.

    Raises:
        Refused: a key is of another type.
        Unavailable: the server cannot be reached.
    """
    named: dict[str, str] = {}
    async for page in inspector.hash_pages(inspector.keys.retries(bucket)):
        for field, value in page.items():
            place = _GROUP_AND_POINTER.fullmatch(field.decode(errors="replace"))
            what = _PUT_OFF.fullmatch(value.decode(errors="replace"))
            if place is None or what is None or not _is_session(what[2]):
                findings.add(
                    "pointer", 0, f"bucket {bucket}: put off is what nobody can do: {look(field + b' ' + value)}"
                )
            else:
                named[what[2]] = f"group {place[1]} has put off work"
    async for page in inspector.hash_pages(inspector.keys.groups(bucket)):
        for field in page:
            if b":" not in field:
                await _letters(inspector, bucket, field.decode(errors="replace"), named, findings)
    for session, text in sorted(named.items()):
        if not await inspector.fields(inspector.keys.sessions(bucket), (session,)):
            findings.add("pointer", 0, f"bucket {bucket}: {text} of session {session!r}, which is none")


async def _letters(inspector: Inspector, bucket: int, group: str, named: dict[str, str], findings: Findings) -> None:
    async for page in inspector.stream_pages(inspector.keys.dead(bucket, group)):
        for entry_id, fields in page:
            values = dict(zip(fields[::2], fields[1::2], strict=False))
            session = values.get(b"s", b"").decode(errors="replace")
            if not _is_session(session) or inspector.keys.bucket(session) != bucket:
                text = f"bucket {bucket}: dead letter {entry_id.decode()} of group {group} names no session"
                findings.add("pointer", 0, text)
            else:
                named[session] = f"group {group} has a dead letter"


def _is_session(text: str) -> bool:
    try:
        return bool(check_session_id(text))
    except InvalidSessionId:
        return False
