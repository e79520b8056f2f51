"""Verify all sessions of a namespace, then the keys that belong to no session, and the records of work."""

import re
from collections.abc import AsyncGenerator

from lanebus.bus import Bus, Inspector, resumable
from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.wire import ALL_BYTES, AgentBucket, check_session_id
from lanebus.handlers.verify.entries import (
    DEFAULT_VERIFY_BOUNDS,
    Findings,
    Pointers,
    Report,
    VerifyBounds,
    look,
    read_pointers,
    typed,
)
from lanebus.handlers.verify.session import check_agent_counts, verify_session


@resumable
async def verify_all(bus: Bus, *, bounds: VerifyBounds = DEFAULT_VERIFY_BOUNDS) -> AsyncGenerator[Report, None]:
    """Yield a report for each session, sorted by id. The last report, of session "", is about all other keys, and about
    losses of the whole log that no person has accepted.

    Args:
        bus: the bus whose namespace to verify.
        bounds: bounds on the problems that are kept, and on attempts.

    Raises:
        Unavailable: the server cannot be reached.
    """
    inspector, rest = bus.inspector, Findings("", bounds)
    for loss in await bus.namespace.unaccepted():
        rest.add(loss.kind, 0, f"{loss.text}: {loss.remedy(bus.namespace.name)}")
    risks = await inspector.loss_risks()
    buckets = range(inspector.keys.buckets)
    pointers = [Pointers() for _ in buckets]
    for bucket in buckets:
        await typed(read_pointers(inspector, bucket, into=pointers[bucket]), rest, f"bucket {bucket}")
    sessions = [(session, bucket) for bucket in buckets for session in await _sessions(inspector, bucket)]
    for session, bucket in sorted(sessions):
        report = await verify_session(bus, session, pointers[bucket], risks=risks, bounds=bounds)
        if report is not None:
            yield report
    for bucket in buckets:
        await typed(_check_pointers(inspector, bucket, pointers[bucket], rest), rest, f"bucket {bucket}")
        await typed(check_waiting(inspector, bucket, rest), rest, f"bucket {bucket}")
        await typed(_check_bytes(inspector, bucket, rest), rest, f"bucket {bucket}")
        await typed(check_agent_counts(inspector, bucket, rest), rest, f"bucket {bucket}")
    await typed(find_orphans(inspector, rest), rest, "keys of no session")
    yield rest.report(0)


async def _sessions(inspector: Inspector, bucket: int) -> set[str]:
    names: set[str] = set()
    async for page in inspector.hash_pages(inspector.keys.sessions(bucket)):
        names.update(name.decode(errors="replace") for name in page)
    return {name for name in names if not name.startswith(":")}


async def _check_pointers(inspector: Inspector, bucket: int, pointers: Pointers, rest: Findings) -> None:
    """Check that every pointer names a listed session. The list of sessions is read after the pointers."""
    for text in pointers.bad:
        rest.add("pointer", 0, f"bucket {bucket}: {text}")
    names = sorted(pointers.highest)
    listed = await _sessions(inspector, bucket)
    now = Pointers()
    if not listed.issuperset(names):  # sessions may have been erased, with their pointers, since the pointers were read
        await read_pointers(inspector, bucket, into=now)
    for name in names:
        if name not in listed and name in now.highest:
            text = f"bucket {bucket}: a pointer names session {name!r}, which does not exist"
            rest.add("pointer", pointers.highest[name], text)


async def _check_bytes(inspector: Inspector, bucket: int, rest: Findings) -> None:
    """Check that a bucket's byte count is the sum over its sessions. Retry if the count changed during the check."""
    key = inspector.keys.sessions(bucket)
    for _ in range(rest.bounds.byte_attempts):
        before = (await inspector.fields(key, (ALL_BYTES,))).get(ALL_BYTES, b"0")
        heads = [inspector.keys.head(name) for name in await _sessions(inspector, bucket)]
        counted = await inspector.field_of_each(heads, "bytes") if heads else []
        if before == (await inspector.fields(key, (ALL_BYTES,))).get(ALL_BYTES, b"0"):
            if not all(len(number or b"0") < 19 and (number or b"0").isdigit() for number in (*counted, before)):
                text = f"the byte count of bucket {bucket}, {before!r}, or of one of its sessions is no number"
                rest.add("bucket_bytes", 0, text)
            elif int(before) != sum(int(number or 0) for number in counted):
                total = sum(int(number or 0) for number in counted)
                rest.add("bucket_bytes", 0, f"bucket {bucket} counts {int(before)} bytes, its sessions {total}")
            return
    rest.note(f"bucket {bucket}: its byte count was not checked, as it changed all the time")


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


# Find keys of the namespace that belong to no session. The bus would never delete such keys.

_NAME = "[A-Za-z0-9_.-]{1,64}"
_SHARED = re.compile(
    f"index|sessions|forged|live|order:{_NAME}|woken|wakeups|groups|(?:open|due):{_NAME}:{_NAME}|dead:{_NAME}"
)
"""names of the keys that the sessions of a bucket share"""
_PARTS = re.compile(r"llm|ext|live|head|keys|checkpoints|archive|p:.+@[0-9]{1,18}")
"""names of the keys of one session"""
_GROUP = re.compile(r"group:\{[A-Za-z0-9_.-]{1,64}\}:consumers")
"""names of the keys of a consumer group, which is not limited to one bucket"""
_KEY = re.compile(r"\{([0-9]{1,9})\}:(?:s:([A-Za-z0-9_-]{1,64}):)?(.+)", re.DOTALL)


async def find_orphans(inspector: Inspector, findings: Findings) -> None:
    """Report each key of the namespace that is neither a shared key of the bus nor a key of a listed session.

    Raises:
        Unavailable: the server cannot be reached.
    """
    listed: dict[str, bool] = {}
    reported: set[str] = set()
    async for page in inspector.key_names():
        for name in page:
            parts = part_of(inspector.keys.namespace, name)
            if parts is None:
                _add_orphan(findings, reported, name, "it is not a key of the bus")
                continue
            bucket, session, part = parts
            if not session:
                continue
            if session not in listed:
                listed[session] = await _is_listed(inspector, session)
            if bucket != inspector.keys.bucket(session):
                _add_orphan(findings, reported, name, f"session {session!r} belongs to another bucket")
            elif not listed[session] and not await _may_stand_alone(inspector, name, part):
                _add_orphan(findings, reported, name, f"there is no session {session!r}")
            elif listed[session] and part.startswith("p:") and await _is_unlisted(inspector, session, name, part):
                _add_orphan(
                    findings, reported, name, "a stored projection without a checkpoint, which nothing would remove"
                )


def part_of(namespace: str, name: str) -> tuple[int, str, str] | None:
    """Split a key's name into (bucket, session, part). Return None if the bus writes no key with this name. Pure.

    The session is "" for keys of a whole bucket or of the whole namespace. Keys of the whole namespace have bucket 0.
    """
    rest = name.removeprefix(f"{namespace}:")
    if rest == "config" or rest.startswith("media:") or _GROUP.fullmatch(rest):
        return 0, "", rest
    match = _KEY.fullmatch(rest)
    if match is None or (_PARTS if match[2] else _SHARED).fullmatch(match[3]) is None:
        return None
    return int(match[1]), match[2] or "", match[3]


def _add_orphan(findings: Findings, reported: set[str], name: str, why: str) -> None:
    if name not in reported:
        reported.add(name)
        findings.add("orphan", 0, f"key {name[:200]}: {why}")


async def _is_listed(inspector: Inspector, session: str) -> bool:
    key = inspector.keys.sessions(inspector.keys.bucket(session))
    return bool(await inspector.fields(key, (session,)))


async def _is_unlisted(inspector: Inspector, session: str, name: str, part: str) -> bool:
    """Whether a stored state has no checkpoint. State and checkpoint are written and removed in one step."""
    key = inspector.keys.checkpoints(session)
    return (
        not await inspector.fields(key, (part,))
        and bool(await inspector.existing([name]))
        and not await inspector.fields(key, (part,))
    )


async def _may_stand_alone(inspector: Inspector, name: str, part: str) -> bool:
    """Whether a key may exist without a session: a lease, a preview, a reader's checkpoint, or a tombstone."""
    return part in {"live", "checkpoints"} or (part == "head" and not await inspector.fields(name, ("position",)))
