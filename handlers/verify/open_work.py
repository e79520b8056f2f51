"""Check a bucket's records of work: woken sessions, and the open work and dead letters of consumer groups."""

import re

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.inspection import Inspector
from lanebus.bus.wire.keys import AgentBucket, check_session_id
from lanebus.handlers.verify.problem import Findings, look

__all__ = ("check_waiting",)

_OPEN = re.compile(r"\S{0,128} [0-9]{1,18} [0-9]{1,18} [0-9]{1,9} [0-9]{1,18} [a-z]* .*", re.DOTALL)
_WOKEN = re.compile(r"([0-9]{1,18})(?: .*)?", re.DOTALL)


async def check_waiting(inspector: Inspector, bucket: int, findings: Findings) -> None:
    """Check that every record of work in a bucket belongs to a session that exists.

    The sessions are read after the records, so a session that is created meanwhile is not reported.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    named: dict[str, str] = {}
    groups: set[str] = set()
    await _check_woken(inspector, bucket, named, findings)
    async for page in inspector.hash_pages(inspector.keys.groups(bucket)):
        for field in page:
            agent, _, group = field.decode(errors="replace").partition(":")
            if agent and ":" not in group:
                await _check_open(inspector, AgentBucket(bucket, agent), group, named, findings)
                groups.add(group)
    for group in sorted(groups):
        await _check_letters(inspector, bucket, group, named, findings)
    for session, text in sorted(named.items()):
        if not await inspector.fields(inspector.keys.sessions(bucket), (session,)):
            findings.add("pointer", 0, f"bucket {bucket}: {text} of session {session!r}, which does not exist")


async def _check_woken(inspector: Inspector, bucket: int, named: dict[str, str], findings: Findings) -> None:
    """Check that every woken session was woken at a position that exists, and is listed in the order of work."""
    keys = inspector.keys
    async for page in inspector.hash_pages(keys.woken(bucket)):
        woken = {name.decode(errors="replace"): value for name, value in page.items() if not name.startswith(b":")}
        sessions = [session for session in woken if _is_session(session)]
        ends = await inspector.field_of_each([keys.head(session) for session in sessions], "position")
        agents = await inspector.field_of_each([keys.head(session) for session in sessions], "agent")
        orders = [keys.order(bucket, (agent or b"").decode(errors="replace")) for agent in agents]
        scores = await inspector.score_of_each(orders, sessions)
        highest = dict(zip(sessions, ends, strict=True))
        numbers = dict(zip(sessions, scores, strict=True))
        for session, value in woken.items():
            match = _WOKEN.fullmatch(value.decode(errors="replace"))
            end = highest.get(session) or b"0"
            if session not in highest or match is None:
                text = f"bucket {bucket}: an invalid record of a woken session: {look(session.encode() + b' ' + value)}"
                findings.add("pointer", 0, text)
            elif numbers[session] is None:
                text = f"bucket {bucket}: session {session!r} was woken, but is not in the order of work of its agent"
                findings.add("pointer", 0, text)
            elif end.isdigit() and len(end) < 19 and int(end) and int(match[1]) > int(end):
                text = f"bucket {bucket}: session {session!r} was woken at {match[1]}, but ends at {int(end)}"
                findings.add("pointer", int(match[1]), text)
            else:
                named[session] = "there is work"


async def _check_open(
    inspector: Inspector, place: AgentBucket, group: str, named: dict[str, str], findings: Findings
) -> None:
    bucket, agent = place
    async for page in inspector.hash_pages(inspector.keys.open(bucket, agent, group)):
        for field, value in page.items():
            session = field.decode(errors="replace")
            if not _is_session(session) or _OPEN.fullmatch(value.decode(errors="replace")) is None:
                what = f"bucket {bucket}: group {group} has invalid open work of the agent {agent}"
                text = f"{what}: {look(field + b' ' + value)}"
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
