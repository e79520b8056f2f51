"""Check the records of which agent a session belongs to: its head, the list of sessions, and the bucket's counts."""

import json
from collections import Counter
from typing import cast

from lanebus.bus.inspection import Inspector
from lanebus.bus.wire.keys import ALL_AGENTS
from lanebus.handlers.verify.problem import Findings, look

__all__ = ("check_agent", "check_agent_counts")


async def check_agent(inspector: Inspector, session: str, findings: Findings) -> None:
    """Check that the list of sessions and the session's head name the same agent. The bus writes both in one step.

    Workers and `lanebus agents` read the agent from the list; appends read it from the head. The check is repeated if
    the session is handed over meanwhile.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    keys = inspector.keys
    for _ in range(findings.bounds.session_attempts):
        before = await _agent_of_head(inspector, session)
        listed = (await inspector.fields(keys.sessions(keys.bucket(session)), (session,))).get(session)
        if before == await _agent_of_head(inspector, session):
            if listed is not None and _agent_listed(listed) != before:
                text = f"the list of sessions names the agent {_agent_listed(listed)!r}, its head {before!r}"
                findings.add("agent", 0, text)
            return
    findings.note("its agent was not checked, as it was handed over all the time")


async def check_agent_counts(inspector: Inspector, bucket: int, findings: Findings) -> None:
    """Check that a bucket's counts of sessions by agent agree with its list of sessions. Retry if either changes
    meanwhile.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    key = inspector.keys.sessions(bucket)
    for _ in range(findings.bounds.byte_attempts):
        before = (await inspector.fields(key, (ALL_AGENTS,))).get(ALL_AGENTS, b"{}")
        listed = await _listed(inspector, key)
        if before == (await inspector.fields(key, (ALL_AGENTS,))).get(ALL_AGENTS, b"{}"):
            if (counted := _counts(before)) != listed:
                shown = look(before) if counted is None else str(dict(sorted(counted.items())))
                text = f"bucket {bucket} counts sessions of agents {shown}, its list has {dict(sorted(listed.items()))}"
                findings.add("agent", 0, text)
            return
    findings.note(f"bucket {bucket}: its sessions of agents were not counted, as they changed all the time")


async def _agent_of_head(inspector: Inspector, session: str) -> str:
    fields = await inspector.fields(inspector.keys.head(session), ("agent",))
    return fields.get("agent", b"").decode(errors="replace")


def _agent_listed(value: bytes) -> str:
    return value.decode(errors="replace").partition(" ")[2]


async def _listed(inspector: Inspector, key: str) -> dict[str, int]:
    agents = dict[str, str]()  # by session: a page may repeat one
    async for page in inspector.hash_pages(key):
        named = {name.decode(errors="replace"): value for name, value in page.items() if not name.startswith(b":")}
        agents.update((name, agent) for name, value in named.items() if (agent := _agent_listed(value)))
    return dict(Counter(agents.values()))


def _counts(text: bytes) -> dict[str, int] | None:
    """Return the stored counts; None if they are invalid."""
    try:
        counts = cast("object", json.loads(text))
    except ValueError:
        return None
    return cast("dict[str, int]", counts) if isinstance(counts, dict) else None
