"""What a bucket holds for all of its sessions: pointers to new entries, and what was set aside from their lanes."""

from collections import defaultdict
from dataclasses import dataclass, field

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.inspection import Inspector
from lanebus.bus.wire.codec import Entry
from lanebus.bus.wire.keys import check_session_id
from lanebus.handlers.verify.problem import Findings, look

__all__ = ("Pointers", "read_pointers")

SHOWN = 20
"""of the entries of one session that were set aside"""


@dataclass
class Pointers:
    """What a bucket's change notices and its stream of forged entries say of each session."""

    highest: dict[str, int] = field(default_factory=dict[str, int])
    """session → the highest position that a pointer names"""
    quarantined: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """session → what was set aside from its lanes"""
    bad: list[str] = field(default_factory=list[str])
    """pointers that nobody can follow"""

    def tell(self, session: str, findings: Findings) -> None:
        """Put what is known of a session into its findings."""
        if session in self.highest:
            findings.suspect("pointer", self.highest[session], "a pointer of the index names it")
        for text in self.quarantined.get(session, []):
            findings.note(text)


async def read_pointers(inspector: Inspector, bucket: int, *, into: Pointers, only: str | None = None) -> None:
    """What stands in a bucket's shared streams.

    Args:
        only: the session to look for; None are all of them.

    Raises:
        Refused: a key is of another type.
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
                text = f"set aside from the {lane} lane, not written by the bus: entry {entry_id}, "
                into.quarantined[session].append(text + look(b" ".join(fields[6:])))


def _take_pointer(found: Pointers, entry: Entry, only: str | None) -> None:
    fields = entry[1]
    named = dict(zip(fields[::2], fields[1::2], strict=False))
    session, position = named.get(b"s", b"").decode(errors="replace"), named.get(b"z", b"")
    try:
        check_session_id(session)
        number = int(position) if position.isdigit() and len(position) < 19 else 0
    except InvalidSessionId:
        number = 0
    if only not in {None, session}:
        return
    if number:
        found.highest[session] = max(found.highest.get(session, 0), number)
    else:
        found.bad.append(f"pointer {entry[0].decode()} of the index leads nowhere: {look(b' '.join(fields))}")
