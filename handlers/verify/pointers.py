"""Read the two streams that a bucket's sessions share: the index of new entries, and the quarantined entries."""

from collections import defaultdict
from dataclasses import dataclass, field

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.inspection import Inspector
from lanebus.bus.wire.codec import Entry
from lanebus.bus.wire.keys import check_session_id
from lanebus.handlers.verify.problem import Findings, look

__all__ = ("Pointers", "read_pointers")

SHOWN = 20
"""maximum number of quarantined entries to report per session"""


@dataclass
class Pointers:
    """The contents of a bucket's index and of the bucket's stream of quarantined entries, by session."""

    highest: dict[str, int] = field(default_factory=dict[str, int])
    """the highest position that a pointer names, by session id"""
    quarantined: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """descriptions of quarantined entries, by session id"""
    bad: list[str] = field(default_factory=list[str])
    """descriptions of invalid pointers"""

    def add_to(self, findings: Findings) -> None:
        """Add to `findings` what concerns its session: a note for each quarantined entry, and the highest pointer as a
        suspected problem."""
        session = findings.session
        if session in self.highest:
            findings.suspect("pointer", self.highest[session], "a pointer of the index names it")
        for text in self.quarantined.get(session, []):
            findings.note(text)


async def read_pointers(inspector: Inspector, bucket: int, *, into: Pointers, only: str | None = None) -> None:
    """Read a bucket's index and its stream of quarantined entries.

    Args:
        inspector: the bus's inspector.
        bucket: number of the bucket.
        into: receives the contents.
        only: id of the session to read; None means all sessions.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server cannot be reached.
    """
    async for page in inspector.stream_pages(inspector.keys.index(bucket)):
        for entry in page:
            _take_pointer(into, entry, only)
    async for page in inspector.stream_pages(inspector.keys.forged(bucket)):
        for _, fields in page:
            named = dict(zip(fields[::2], fields[1::2], strict=False))
            session = named.get(b"s", b"").decode(errors="replace")
            if only in {None, session} and len(into.quarantined[session]) < SHOWN:
                lane, entry_id = (named.get(name, b"").decode(errors="replace") for name in (b"lane", b"id"))
                text = f"quarantined from the {lane} lane, not written by the bus: entry {entry_id}, "
                into.quarantined[session].append(text + look(b" ".join(fields[6:])))


def _take_pointer(pointers: Pointers, entry: Entry, only: str | None) -> None:
    fields = entry[1]
    named = dict(zip(fields[::2], fields[1::2], strict=False))
    session, position = named.get(b"s", b"").decode(errors="replace"), named.get(b"z", b"")
    try:
        check_session_id(session)
        number = int(position) if position.isdigit() and len(position) < 19 else None
    except InvalidSessionId:
        number = None
    if only not in {None, session}:
        return
    if number is not None:  # 0 is that of a fork without shared entries
        pointers.highest[session] = max(pointers.highest.get(session, 0), number)
    else:
        pointers.bad.append(f"pointer {entry[0].decode()} of the index is invalid: {look(b' '.join(fields))}")
