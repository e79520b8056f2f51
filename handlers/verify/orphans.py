"""Find keys of the namespace that belong to no session. The bus would never delete such keys."""

import re

from lanebus.bus.inspection import Inspector
from lanebus.handlers.verify.problem import Findings

__all__ = ("find_orphans", "part_of")

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
                _add(findings, reported, name, "it is not a key of the bus")
                continue
            bucket, session, part = parts
            if not session:
                continue
            if session not in listed:
                listed[session] = await _is_listed(inspector, session)
            if bucket != inspector.keys.bucket(session):
                _add(findings, reported, name, f"session {session!r} belongs to another bucket")
            elif not listed[session] and not await _may_stand_alone(inspector, name, part):
                _add(findings, reported, name, f"there is no session {session!r}")
            elif listed[session] and part.startswith("p:") and await _is_unlisted(inspector, session, name, part):
                _add(findings, reported, name, "a stored projection without a checkpoint, which nothing would remove")


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


def _add(findings: Findings, reported: set[str], name: str, why: str) -> None:
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
