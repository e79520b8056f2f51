"""Check the records that refer to a session's positions: producers, publish keys, checkpoints and live deltas.

The records are read between two reads of the head. So at the second read, every entry that a record refers to must
exist.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from lanebus.bus.digits import number_in
from lanebus.bus.inspection import Inspector
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import decode_delta
from lanebus.bus.wire.envelope import DecodeFailure
from lanebus.handlers.verify.entries import HIGHEST, place_of
from lanebus.handlers.verify.head_fields import HeadFields
from lanebus.handlers.verify.problem import Findings, look
from lanebus.handlers.verify.replay_check import PROJECTION_KEYS

__all__ = ("CLAIMS", "Claimant")

_ANSWER = re.compile(r"([0-9]{1,18}) ([0-9]{1,18}) (\S{0,32}) .*", re.DOTALL)
_PLACES = re.compile(r"([0-9]{1,18})\+([0-9]{1,18})(?:\+(\S{0,32}))?")
_CHECKPOINT = re.compile(r"([0-9]{1,18})(?:-[0-9]{1,18}(?:\.\S{1,32})?)?")


class Claimant(NamedTuple):
    """The arguments of the functions in `CLAIMS`."""

    inspector: Inspector
    session: str
    head_fields: HeadFields
    """the head, read before the check"""
    findings: Findings
    """receives the problems"""


async def _producers(at: Claimant) -> None:
    """Check that the stored answers to a producer have numbers without gaps, and refer to entries that exist."""
    inspector, findings = at.inspector, at.findings
    async for page in inspector.hash_pages(inspector.keys.head(at.session), "p:*"):
        for field, value in page.items():
            name = field.decode(errors="replace").removeprefix("p:")
            _, _, kept = value.decode(errors="replace").partition(" ")
            answers = [_ANSWER.fullmatch(answer) for answer in kept.split("|")]
            numbers = [int(answer[1]) for answer in answers if answer]
            if len(numbers) < len(answers) or [numbers[0] - index for index in range(len(numbers))] != numbers:
                findings.add("producer", 0, f"{name}: {look(value)}")
                continue
            for answer in answers:
                if answer:
                    findings.suspect("producer", int(answer[2]), f"{name}: its append {answer[1]} begins after it")


async def _caller_keys(at: Claimant) -> None:
    """Check that the entries published under a caller's key exist."""
    inspector, findings = at.inspector, at.findings
    async for page in inspector.hash_pages(inspector.keys.caller_keys(at.session)):
        for field, value in page.items():
            name = field.decode(errors="replace")[:80]
            if value == b"0+1+":  # a handover to the agent that the session had from its first message on
                continue
            places = _PLACES.fullmatch(value.decode(errors="replace"))
            if places is None or not int(places[1]) or not int(places[2]):
                findings.add("caller_key", 0, f"{name!r}: {look(value)}")
                continue
            first, last = int(places[1]), int(places[1]) + int(places[2]) - 1
            written_by = at.head_fields.incarnation_of(first)
            if last <= at.head_fields.position and places[3] and written_by not in {None, places[3]}:
                text = f"{name!r}: published in incarnation {places[3]}, but the entry is from {written_by}"
                findings.add("caller_key", first, text)
            findings.suspect("caller_key", last, f"{name!r}: published at positions {first} to {last}")


async def _checkpoints(at: Claimant) -> None:
    """Check that every checkpoint is at an entry that exists, and that every stored projection has a checkpoint."""
    inspector, findings = at.inspector, at.findings
    listed: set[str] = set()
    async for page in inspector.hash_pages(inspector.keys.checkpoints(at.session)):
        for field, value in page.items():
            name = field.decode(errors="replace")
            listed.add(name)
            place = _CHECKPOINT.fullmatch(value.decode(errors="replace"))
            if place is None:
                findings.add("checkpoint", 0, f"{name[:80]}: {look(value)}")
                continue
            findings.suspect("checkpoint", int(place[1]), f"{name[:80]}: its checkpoint is here")
    for name in sorted({name.removeprefix("p:") for name in listed if name.startswith("p:")} | PROJECTION_KEYS):
        await _stored_state(at, name)


async def _stored_state(at: Claimant, name: str) -> None:
    """Check that a projection's checkpoint equals the checkpoint stored with its state. Retry if they differ.

    Both are written in one step but read in two steps.
    """
    keys, listed, stored = at.inspector.keys, None, None
    plain, _, digits = name.rpartition("@")
    version = number_in(digits)
    if version is None:
        at.findings.add("checkpoint", 0, f"p:{name[:80]}: not a name of a projection")
        return
    for _ in range(at.findings.bounds.state_attempts):
        listed = (await at.inspector.fields(keys.checkpoints(at.session), (f"p:{name}",))).get(f"p:{name}")
        fields = await at.inspector.fields(keys.projection(at.session, plain, version), ("position",))
        stored = fields.get("position")
        if listed == stored:
            return
    checkpoint = "is stored without a checkpoint" if listed is None else f"its checkpoint is {look(listed)}"
    at.findings.add("checkpoint", 0, f"projection {name}: {checkpoint}, the state has {look(stored or b'')}")


async def _live(at: Claimant) -> None:
    """Check that live deltas can be decoded, and belong to positions that exist."""
    async for page in at.inspector.stream_pages(at.inspector.keys.live(at.session)):
        for entry in page:
            position, delta = place_of(entry)
            if not delta:
                at.findings.add("live", position, "a live delta has the id of an entry")
            elif isinstance(message := decode_delta(at.session, entry).message, DecodeFailure):
                at.findings.add("live", position, f"delta {delta}: {message.error}; {look(message.raw)}")
            at.findings.suspect("live", position, f"live delta {delta} belongs to it")


async def _above(at: Claimant) -> None:
    """Check that no lane has entries after the head's last position."""
    for lane in Lane:
        key = at.inspector.keys.lane(at.session, lane)
        async for page in at.inspector.stream_pages(key, f"({at.head_fields.position}-{HIGHEST}"):
            for entry in page:
                text = f"entry {entry[0].decode()} of the {lane} lane is after the head: {look(b' '.join(entry[1]))}"
                at.findings.suspect("above_head", place_of(entry)[0], text)


CLAIMS: Mapping[str, Callable[[Claimant], Awaitable[None]]] = {
    "producers": _producers,
    "caller's keys": _caller_keys,
    "checkpoints": _checkpoints,
    "live deltas": _live,
    "lanes": _above,
}
"""function that checks all records of a kind, by the kind's name"""
