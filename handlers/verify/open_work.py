"""What a bucket keeps of work: who was woken, what consumer groups have open or were given, and what they set aside."""

import re

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.inspection import Inspector
from lanebus.bus.wire.keys import check_session_id
from lanebus.handlers.verify.problem import Findings, look

__all__ = ("check_waiting",)

_OPEN = re.compile(r"\S{0,128} [0-9]{1,18} [0-9]{1,18} [0-9]{1,9} [0-9]{1,18} [a-z]* .*", re.DOTALL)
_WOKEN = re.compile(r"([0-9]{1,18})(?: .*)?", re.DOTALL)


async def check_waiting(inspector: Inspector, bucket: int, findings: Findings) -> None:
    """Each is of a session that is there. Sessions are asked for after what names them was read.

    Raises:
        Refused: a key is of another type.
        Unavailable: the server cannot be reached.
    """
    named: dict[str, str] = {}
    await _check_woken(inspector, bucket, named, findings)
    async for page in inspector.hash_pages(inspector.keys.groups(bucket)):
        for field in page:
            if b":" not in field:
                group = field.decode(errors="replace")
                await _check_open(inspector, bucket, group, named, findings)
                await _check_letters(inspector, bucket, group, named, findings)
    for session, text in sorted(named.items()):
        if not await inspector.fields(inspector.keys.sessions(bucket), (session,)):
            findings.add("pointer", 0, f"bucket {bucket}: {text} of session {session!r}, which is none")


async def _check_woken(inspector: Inspector, bucket: int, named: dict[str, str], findings: Findings) -> None:
    """Where sessions were woken: each at an entry that is there, and in the order of work."""
    keys = inspector.keys
    async for page in inspector.hash_pages(keys.woken(bucket)):
        woken = {name.decode(errors="replace"): value for name, value in page.items() if not name.startswith(b":")}
        sessions = [session for session in woken if _is_session(session)]
        ends = await inspector.field_of_each([keys.head(session) for session in sessions], "position")
        scores = await inspector.scores(keys.order(bucket), sessions)
        highest = dict(zip(sessions, ends, strict=True))
        numbers = dict(zip(sessions, scores, strict=True))
        for session, value in woken.items():
            match = _WOKEN.fullmatch(value.decode(errors="replace"))
            end = highest.get(session) or b"0"
            if session not in highest or match is None:
                text = f"bucket {bucket}: woken is what nobody can look into: {look(session.encode() + b' ' + value)}"
                findings.add("pointer", 0, text)
            elif numbers[session] is None:
                findings.add("pointer", 0, f"bucket {bucket}: session {session!r} was woken, and no work waits for it")
            elif end.isdigit() and int(end) and int(match[1]) > int(end):
                text = f"bucket {bucket}: session {session!r} was woken at {match[1]}, and ends at {int(end)}"
                findings.add("pointer", int(match[1]), text)
            else:
                named[session] = "there is work"


async def _check_open(inspector: Inspector, bucket: int, group: str, named: dict[str, str], findings: Findings) -> None:
    async for page in inspector.hash_pages(inspector.keys.open(bucket, group)):
        for field, value in page.items():
            session = field.decode(errors="replace")
            if not _is_session(session) or _OPEN.fullmatch(value.decode(errors="replace")) is None:
                text = f"bucket {bucket}: group {group} has open what nobody can do: {look(field + b' ' + value)}"
                findings.add("pointer", 0, text)
            else:
                named[session] = f"group {group} has open work"


async def _check_letters(
    inspector: Inspector, bucket: int, group: str, named: dict[str, str], findings: Findings
) -> None:
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
