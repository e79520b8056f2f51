"""One caller's publish: its conditions, the JSON of its messages, and its way from the queue to its outcome. Pure."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple
from zlib import crc32

from lanebus.bus.errors import (
    Conflict,
    DecodeError,
    Fenced,
    KeyTooLong,
    LogRolledBack,
    MessageTooLarge,
    NotAMessage,
    OutcomeUnknown,
    OverLimit,
    SessionClosed,
    SessionErased,
    Unavailable,
    WrongAgent,
)
from lanebus.bus.log.log import start_of
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import ContextEntry, Delta, LlmMessage, UserMessage
from lanebus.bus.wire.codec import IMPORTED, MESSAGE_LIMIT_BYTES, START, Receipt, encode, imported_seed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.messages.json_reader import Publishable
    from lanebus.bus.wire.codec import Cursor


# Encode a publish for scripts/publish.lua: its conditions, and the JSON of its messages. Pure.

_LETTER = {Lane.LLM: "l", Lane.EXTENSION: "e"}
LANE_OF = {letter: lane for lane, letter in _LETTER.items()}

KEY_LIMIT_BYTES = 1_024
"""Maximum number of UTF-8 bytes of a publish's key. A key is stored as long as the session exists. This limit is part
of the stored format, not a setting."""


class AppendConditions(NamedTuple):
    """The conditions of a publish, and its effects besides the append. Source: scripts/publish.lua."""

    key: str | None = None
    """the caller's idempotency key: another publish with the same key adds nothing. None means no key"""
    expected: Cursor | None = None
    """the session must end with the entry of this cursor; None means any end"""
    epoch: int | None = None
    """the epoch that the session's lease must have; None means that no lease is needed"""
    wake: bool | None = None
    """whether to wake the workers. None wakes them if one of the messages is a user message or a command"""
    state: Literal["closed", "open"] | None = None
    """the state to set for the session; None leaves it unchanged"""
    agent: str | None = None
    """the agent that the session must belong to; None means any"""
    assign: str | None = None
    """the agent to hand the session over to; a handover always wakes a worker. None leaves the session with its
    agent"""
    is_imported: bool = False
    """whether to mark the entries as imported"""


UNCONDITIONAL = AppendConditions()


class EncodedPublish(NamedTuple):
    """A publish in the form that scripts/publish.lua takes."""

    text: str
    """flags, then one letter for the lane of each message, as scripts/publish.lua describes. With conditions, a JSON
    object that holds these letters and the conditions"""
    parts: Sequence[bytes]
    """checksum and JSON of each message, alternating"""
    size_bytes: int
    """size of the messages' JSON"""
    wakes: bool = False
    """whether the publish wakes the workers"""
    is_control: bool = False
    """whether the publish may use `Limits.reserve_bytes`"""
    conditions: AppendConditions = UNCONDITIONAL

    @property
    def message_count(self) -> int:
        """The number of messages."""
        return len(self.parts) // 2


def encode_publish(
    messages: Sequence[Publishable],
    conditions: AppendConditions,
    seeds: Mapping[Lane, int],
    heavy_bytes: int = sys.maxsize,
    limit_bytes: int = MESSAGE_LIMIT_BYTES,
) -> EncodedPublish | None:
    """Encode messages and conditions for scripts/publish.lua.

    Args:
        messages: the messages.
        conditions: conditions and effects of the publish.
        seeds: initial value of the checksum in each lane; see `seeds_of`.
        heavy_bytes: if the JSON of a message has this size or more, encode nothing and return None. The caller then
            moves media from the messages to the media store.
        limit_bytes: maximum number of bytes of a message's JSON.

    Returns:
        The encoded publish, or None if a message has `heavy_bytes` or more.

    Raises:
        NotAMessage: an argument is not a message.
        MessageTooLarge: a message is over `limit_bytes`.
        DecodeError: the key contains a lone surrogate.
        KeyTooLong: the key is over `KEY_LIMIT_BYTES`.
    """
    size_bytes, lanes, wakes, is_control = 0, "", conditions.wake, True
    parts: list[bytes] = []
    form = b"%d"
    if conditions.is_imported:
        seeds, form = {lane: imported_seed(seed) for lane, seed in seeds.items()}, IMPORTED + form
    try:
        for message in messages:
            body = encode(message)
            if len(body) >= heavy_bytes:
                _require_messages(messages)  # check all arguments before any media are stored
                return None
            if len(body) > limit_bytes:
                raise MessageTooLarge(len(body), limit_bytes)
            size_bytes += len(body)
            lane = message.lane
            lanes += _LETTER[lane]
            parts += (form % crc32(body, seeds[lane]), body)
            is_command = type(message) is ExtensionMessage and message.is_control
            if wakes is None and (is_command or isinstance(message, UserMessage)):
                wakes = True
            if not is_command:
                is_control = False
    except (AttributeError, KeyError, TypeError):  # hot path: types are checked only after an error
        _require_messages(messages)
        raise
    if wakes:
        lanes = "w" + lanes
    if is_control or conditions.state == "closed" or conditions.assign is not None:
        is_control, lanes = True, "c" + lanes
    if conditions[:3] == UNCONDITIONAL[:3] and conditions[4:] == UNCONDITIONAL[4:]:
        return EncodedPublish(lanes, parts, size_bytes, bool(wakes), is_control)
    if conditions.key is not None:
        try:
            key = conditions.key.encode()
        except UnicodeEncodeError:
            raise DecodeError("key", "a text holds a lone surrogate") from None
        if len(key) > KEY_LIMIT_BYTES:
            raise KeyTooLong(len(key), KEY_LIMIT_BYTES)
    expected = conditions.expected
    terms = {
        "lanes": lanes,
        "key": conditions.key,
        "expected": None if expected is None else expected.position,
        "incarnation": (expected.incarnation or None) if expected and expected.position else None,
        "proof": (expected.proof or None) if expected else None,
        "epoch": conditions.epoch,
        "state": conditions.state,
        "agent": conditions.agent,
        "assign": conditions.assign,
    }
    text = json.dumps({name: value for name, value in terms.items() if value is not None})
    return EncodedPublish(text, parts, size_bytes, bool(wakes), is_control, conditions)


def _require_messages(messages: Sequence[object]) -> None:
    """Raise NotAMessage if one of `messages` is not a message."""
    for message in messages:
        if not isinstance(message, LlmMessage | ContextEntry | ExtensionMessage):
            name = f"the class {message.__name__}" if isinstance(message, type) else type(message).__name__
            raise NotAMessage(name, _advice(message))


def _advice(given: object) -> str:
    """Return advice how to make a message from `given`. The advice quotes no content, because content may be
    private."""
    match given:
        case str() | None:
            return "make one, such as UserMessage.text(…)"
        case dict() | bytes() | bytearray():
            return "read its JSON with lanebus.messages.read_message(…), or make one, such as UserMessage.text(…)"
        case list() | tuple():
            return "give its messages one by one, as in publish(*messages)"
        case Delta():
            return "show it with Session.preview(…)"
        case type():
            return "make one of the class, such as UserMessage.text(…)"
        case _ if hasattr(given, "as_extension"):
            return "publish what its as_extension() returns"
        case _:
            return "make one, such as UserMessage.text(…) or ExtensionMessage.of(…)"


@dataclass(slots=True, eq=False, weakref_slot=True)
class PendingPublish:
    """A publish whose caller waits for the outcome."""

    session: str
    plan: EncodedPublish
    future: asyncio.Future[Receipt]
    seconds: float
    """longest time that the caller waits"""
    deadline: float
    """when `seconds` are over, on the event loop's clock"""
    turn: int = 0
    """number of this publish in the order in which its publisher received all publishes"""
    is_sent: bool = False
    """whether the publish may be in the log"""
    reason: BusError | None = None
    """the last error that prevented the append; None if there was no error"""
    agent: str = ""
    """the agent that the session gets if this is its first publish"""
    cause: Callable[[], Unavailable | None] | None = None
    """returns why the server ended, if it is known"""

    @property
    def is_over(self) -> bool:
        """Whether the caller has its outcome or was cancelled."""
        return self.future.done()

    def expire(self) -> None:
        """Fail the publish because its deadline has passed."""
        cause = self.cause() if self.cause is not None else None
        if self.is_sent:
            self.fail(OutcomeUnknown(self.session, self.seconds, cause=cause))
        else:
            what = f"publish to session {self.session!r}: not sent within {self.seconds:g} s"
            unsent = Unavailable(f"{what}; nothing was appended", "publish again, or allow more `seconds`")
            self.fail(cause or self.reason or unsent)

    @property
    def size_bytes(self) -> int:
        """See `EncodedPublish`."""
        return self.plan.size_bytes

    @property
    def is_control(self) -> bool:
        """See `EncodedPublish`."""
        return self.plan.is_control

    def succeed(self, first: int, count: int, incarnation: str, proof: str) -> None:
        """Return the positions of the messages to the caller, if the caller still waits.

        Args:
            first: position of the first message.
            count: number of messages.
            incarnation: incarnation of the log.
            proof: proof of the last message's entry; "" if unknown.
        """
        if not self.future.done():
            positions = (first,) if count == 1 else tuple(range(first, first + count))
            self.future.set_result(Receipt(positions, incarnation=incarnation, proof=proof))

    def fail(self, error: BusError) -> None:
        """Raise `error` in the caller, if the caller still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def end(self, word: str, session_bytes: int | None) -> None:
        """Give the caller the outcome of a publish that was refused or is a duplicate.

        Args:
            word: the outcome, as scripts/publish.lua returns it.
            session_bytes: the `PublishLimits.session_bytes` that the publish was sent with.
        """
        conditions, rest = self.plan.conditions, word[1:]
        match word[0]:
            case "d":
                first, count, incarnation, proof = (*rest.split("+"), "", "")[:4]
                if not self.future.done():
                    positions = tuple(range(int(first), int(first) + int(count)))
                    self.future.set_result(Receipt(positions, True, incarnation, proof))
            case "c":
                self.fail(Conflict(self.session, (conditions.expected or START).position, int(rest)))
            case "r":
                expected = conditions.expected or START
                found = max(start_of(expected.incarnation), 0)
                self.fail(LogRolledBack(self.session, expected.position, found, of_expected=True))
            case "f":
                self.fail(Fenced(self.session, conditions.epoch or 0, int(rest)))
            case "g":
                self.fail(WrongAgent(self.session, conditions.agent or "", rest))
            case "o":
                self.fail(OverLimit(self.session, "session", int(rest), session_bytes or 0))
            case "z":
                self.fail(SessionErased(self.session))
            case _:
                self.fail(SessionClosed(self.session))
