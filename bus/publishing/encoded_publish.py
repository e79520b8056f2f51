"""One publish as scripts/publish.lua takes it: its conditions, and the JSON of its messages. Pure."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple
from zlib import crc32

from lanebus.bus.errors import DecodeError, KeyTooLong, MessageTooLarge
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lanebus.bus.messages.json_reader import Publishable

__all__ = ("LANE_OF", "UNCONDITIONAL", "AppendConditions", "EncodedPublish", "encode_publish")

_LETTER = {Lane.LLM: "l", Lane.EXTENSION: "e"}
LANE_OF = {letter: lane for lane, letter in _LETTER.items()}

KEY_LIMIT_BYTES = 1_024
"""The most bytes of a caller's key, in UTF-8: it is kept for the life of the session. Part of the contract, no bound to
set."""


class AppendConditions(NamedTuple):
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


UNCONDITIONAL = AppendConditions()


class EncodedPublish(NamedTuple):
    """One publish as the script takes it."""

    text: str
    """the lanes of its messages; with conditions, a JSON object that holds both"""
    parts: Sequence[bytes]
    """the checksum and the JSON of each message, in turn"""
    size_bytes: int
    """of the messages' JSON"""
    wakes: bool = False
    """it wakes a worker"""
    is_control: bool = False
    """it may use the reserve"""
    conditions: AppendConditions = UNCONDITIONAL

    @property
    def message_count(self) -> int:
        """How many messages it has."""
        return len(self.parts) // 2


def encode_publish(
    messages: Sequence[Publishable],
    conditions: AppendConditions,
    seeds: Mapping[Lane, int],
    heavy_bytes: int = sys.maxsize,
    limit_bytes: int = MESSAGE_LIMIT_BYTES,
) -> EncodedPublish | None:
    """Return the publish as the script takes it.

    It is None if the JSON of a message has `heavy_bytes` or more: then media may have to leave it first.

    Args:
        seeds: what the checksum of a message in a lane goes on from, see `seeds_of`.

    Raises:
        MessageTooLarge: one message is over the limit.
        DecodeError: the key is no text that UTF-8 can write.
        KeyTooLong: the key is over the limit.
    """
    size_bytes, lanes, wakes, is_control = 0, "", conditions.wake, True
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
        if wakes is None and (is_command or isinstance(message, UserMessage)):
            wakes = True
        if not is_command:
            is_control = False
    if wakes:
        lanes = "w" + lanes
    if is_control or conditions.state == "closed":
        is_control, lanes = True, "c" + lanes
    if conditions[:3] == UNCONDITIONAL[:3] and conditions.state is None:
        return EncodedPublish(lanes, parts, size_bytes, bool(wakes), is_control)
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
    text = json.dumps({name: value for name, value in terms.items() if value is not None})
    return EncodedPublish(text, parts, size_bytes, bool(wakes), is_control, conditions)
