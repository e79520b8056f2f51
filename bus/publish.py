"""One publish on its way, and what the server's answer means for it. Pure; the wire is scripts/publish.lua's."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple
from zlib import crc32

from bus.codec import encode
from bus.errors import (
    BusError,
    Conflict,
    DecodeError,
    Fenced,
    KeyTooLong,
    MessageTooLarge,
    OutcomeUnknown,
    OverLimit,
    SessionClosed,
    SessionErased,
    Unavailable,
)
from bus.limits import MESSAGE_LIMIT_BYTES
from bus.log import Plan
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.message import UserMessage
from bus.receipt import Receipt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from bus.messages.reading import Publishable

__all__ = (
    "LANE_OF",
    "UNCONDITIONAL",
    "Conditions",
    "Publish",
    "PublishBounds",
    "SessionAppend",
    "plan",
)

_LETTER = {Lane.LLM: "l", Lane.EXTENSION: "e"}
LANE_OF = {letter: lane for lane, letter in _LETTER.items()}


KEY_LIMIT_BYTES = 1_024
"""The most bytes of a caller's key, in UTF-8: it is kept for the life of the session. Part of the contract, no bound to
set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBounds:
    """How much of what is published is on its way, and how long it is tried."""

    queue_bytes: int = 64 * 1_048_576
    """how much may wait to be sent; callers beyond it wait for room"""
    batch_count: int = 512
    batch_bytes: int = 4 * 1_048_576
    """how much goes out in one step, so that no step holds the server for long"""
    small_batch_count: int = 16
    """fewer publishes than this go out together; more are parted, so that two batches can take turns"""
    sessions: int = 10_000
    """sessions in which this process goes on with its numbers; in others it begins anew, and is not told there if the
    log lost what it had published before"""
    callers_at_once: int = 64
    """callers that are let into the queue, or told that their time is over, in one turn of the event loop: ten thousand
    at once held everything else up for a tenth of a second"""
    recovery_sessions: int = 64
    """sessions in trouble that are looked after in one round trip"""
    set_aside_attempts: int = 3
    """how often an append is tried again after a foreign entry was moved out of its way"""
    retry_seconds: float = 0.01
    retry_most_seconds: float = 0.5
    """the pause before what was not appended is tried again: the first, and the longest"""
    close_seconds: float = 5.0
    """how long closing a bus waits for publishes that are on their way"""


class Conditions(NamedTuple):
    """What must hold for a publish to be appended. Source: scripts/publish.lua."""

    key: str | None = None
    """the caller's own name for this publish: a repeat adds nothing"""
    expected: int | None = None
    """the session's last position"""
    epoch: int | None = None
    """of the lease that the publish belongs to"""
    wake: bool | None = None
    """wake a worker; None wakes one if a user speaks, or steers a loop"""
    state: Literal["closed", "open"] | None = None
    """what the session becomes with it; None leaves it as it is"""


UNCONDITIONAL = Conditions()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Publish:
    """One caller's publish on its way."""

    session: str
    plan: Plan
    conditions: Conditions
    future: asyncio.Future[Receipt]
    seconds: float
    deadline: float
    size_bytes: int
    turn: int = 0
    """its place among all publishes of its publisher"""
    is_sent: bool = False
    """it may be in the log"""
    reason: Unavailable | None = None
    """why it could not be appended so far, if the server said so"""

    @property
    def is_over(self) -> bool:
        """Its caller waits no longer."""
        return self.future.done()

    def expire(self) -> None:
        """Tell the caller that its time is over."""
        if self.is_sent:
            self.fail(OutcomeUnknown(self.session, self.seconds))
        else:
            unsent = Unavailable(f"publish to session {self.session!r}: not sent in {self.seconds:g} s")
            self.fail(self.reason or unsent)

    @property
    def is_control(self) -> bool:
        """It may use the reserve."""
        text = self.plan.text
        return (str(json.loads(text)["lanes"]) if text.startswith("{") else text).startswith("c")

    def succeed(self, first: int, count: int, incarnation: str) -> None:
        """Tell the caller the positions, if it still waits."""
        if not self.future.done():
            positions = (first,) if count == 1 else tuple(range(first, first + count))
            self.future.set_result(Receipt(positions, incarnation=incarnation))

    def fail(self, error: BusError) -> None:
        """Tell the caller why not, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def end(self, word: str, session_bytes: int | None) -> None:
        """Tell the caller that its publish was refused or a repeat.

        Args:
            session_bytes: the limit it was sent with.
        """
        conditions, rest = self.conditions, word[1:]
        match word[0]:
            case "d":
                first, count, *incarnation = rest.split("+")
                if not self.future.done():
                    positions = tuple(range(int(first), int(first) + int(count)))
                    self.future.set_result(Receipt(positions, True, "".join(incarnation)))
            case "c":
                self.fail(Conflict(self.session, conditions.expected or 0, int(rest)))
            case "f":
                self.fail(Fenced(self.session, conditions.epoch or 0, int(rest)))
            case "o":
                self.fail(OverLimit(self.session, "session", int(rest), session_bytes or 0))
            case "z":
                self.fail(SessionErased(self.session))
            case _:
                self.fail(SessionClosed(self.session))


@dataclass(slots=True, eq=False)
class SessionAppend:
    """All that is appended to one session in one step, under one number."""

    session: str
    number: int
    publishes: list[Publish]

    def settle(self, before: int, incarnation: str, outcomes: bytes, session_bytes: int | None) -> int:
        """Tell the callers what became of their publishes; gives the session's position afterwards.

        Args:
            before: the position before this append.
            incarnation: of the log it was appended to.
            outcomes: b"" if all were appended, else a word each.
            session_bytes: the limit it was sent with.
        """
        words = outcomes.split(b" ") if outcomes else ()
        for index, publish in enumerate(self.publishes):
            if not words or words[index] == b"a":
                count = publish.plan.message_count
                publish.succeed(before + 1, count, incarnation)
                before += count
            else:
                publish.end(words[index].decode(), session_bytes)
        return before


def plan(
    messages: Sequence[Publishable],
    conditions: Conditions,
    seeds: Mapping[Lane, int],
    heavy_bytes: int = sys.maxsize,
    limit_bytes: int = MESSAGE_LIMIT_BYTES,
) -> tuple[Plan, int] | None:
    """The publish as the script takes it, and its size in bytes; None if the JSON of a message has `heavy_bytes` or
    more, as then media may have to leave it first.

    Args:
        seeds: what the checksum of a message in a lane goes on from, see `seeds_of`.

    Raises:
        MessageTooLarge: one message is over the limit.
        DecodeError: the key is no text that UTF-8 can write.
        KeyTooLong: the key is over the limit.
    """
    size_bytes, lanes, rings, is_control = 0, "", conditions.wake, True
    parts: list[bytes] = []
    for message in messages:
        body = encode(message)
        if len(body) >= heavy_bytes:
            return None
        if len(body) > limit_bytes:
            raise MessageTooLarge(len(body), limit_bytes)
        size_bytes += len(body)
        lane = message.lane
        lanes += _LETTER[lane]
        parts += (b"%d" % crc32(body, seeds[lane]), body)
        is_command = type(message) is ExtensionMessage and message.is_control
        if rings is None and (is_command or isinstance(message, UserMessage)):
            rings = True
        if not is_command:
            is_control = False
    if rings:
        lanes = "w" + lanes
    if is_control or conditions.state == "closed":
        lanes = "c" + lanes
    if conditions[:3] == UNCONDITIONAL[:3] and conditions.state is None:
        return Plan(lanes, parts, bool(rings)), size_bytes
    if conditions.key is not None:
        try:
            key = conditions.key.encode()
        except UnicodeEncodeError:
            raise DecodeError("key", "a text holds a lone surrogate") from None
        if len(key) > KEY_LIMIT_BYTES:
            raise KeyTooLong(len(key), KEY_LIMIT_BYTES)
    terms = {
        "lanes": lanes,
        "key": conditions.key,
        "expected": conditions.expected,
        "epoch": conditions.epoch,
        "state": conditions.state,
    }
    return Plan(
        json.dumps({name: value for name, value in terms.items() if value is not None}), parts, bool(rings)
    ), size_bytes
