"""Encode and decode messages, compared with a flat pydantic model of the same JSON.

The ratio shows the cost of lanebus's classes and checks. Only CPU time of this process counts; nothing here does I/O.
"""

from collections.abc import Callable
from time import process_time
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

from bench.plain import Plain
from bench.rounds import Compared, Measure, compare
from lanebus import Bus, LlmMessage
from lanebus.bus.messages import read_llm
from lanebus.bus.wire import encode

__all__ = ("decoding", "encoding", "there_and_back")

_COUNT = 2_000


class _Flat(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class _FlatBlock(_Flat):
    """Any block: all fields that a block can have, without checks."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    mime_type: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: JsonValue = None
    media: dict[str, JsonValue] | None = None
    metadata: dict[str, JsonValue] | None = None


class _FlatUsage(BaseModel):
    input: int
    output: int
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: dict[str, JsonValue] | None = None


class _FlatMessage(_Flat):
    """Any message: all fields that a message can have, without checks."""

    role: str
    content: list[_FlatBlock]
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool | None = None
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: _FlatUsage | None = None
    timestamp: int | None = None
    turn_id: dict[str, JsonValue] | None = None
    id: str | None = None
    response_id: str | None = None
    raw_stop_reason: str | None = None
    metadata: dict[str, JsonValue] | None = None


Said = list[tuple[LlmMessage, _FlatMessage]]
Way = Callable[[Said, list[bytes]], None]


async def encoding(_: Bus, __: Plain, messages: list[LlmMessage]) -> Compared:
    """Measure how many messages a second are encoded to the bytes of an entry."""
    return await _compare("encode a message", "-", messages, ways=(_encode, _encode_flat))


async def decoding(_: Bus, __: Plain, messages: list[LlmMessage]) -> Compared:
    """Measure how many messages a second are decoded from the bytes of an entry."""
    return await _compare("decode a message", "-", messages, ways=(_decode, _decode_flat))


async def there_and_back(_: Bus, __: Plain, messages: list[LlmMessage]) -> Compared:
    """Measure encoding and decoding together, as every message goes through both."""

    def ours(said: Said, entries: list[bytes]) -> None:
        _encode(said, entries)
        _decode(said, entries)

    def flat(said: Said, entries: list[bytes]) -> None:
        _encode_flat(said, entries)
        _decode_flat(said, entries)

    return await _compare("encode and decode a message", "≥ 0.8", messages, ways=(ours, flat))


async def _compare(what: str, goal: str, messages: list[LlmMessage], ways: tuple[Way, Way]) -> Compared:
    said = [(message, _FlatMessage.model_validate_json(encode(message))) for message in messages[:_COUNT]]
    entries = [encode(message) for message, _ in said]

    def measure(way: Way) -> Measure:
        async def rate() -> float:
            start = process_time()
            way(said, entries)
            return len(said) / (process_time() - start)

        return rate

    ours, flat = ways
    return await compare(f"{what}; plain: a flat pydantic model", "msg/s", goal, measure(flat), measure(ours))


def _encode(said: Said, entries: list[bytes]) -> None:
    del entries
    for message, _ in said:
        encode(message)


def _encode_flat(said: Said, entries: list[bytes]) -> None:
    del entries
    for _, flat in said:
        flat.__pydantic_serializer__.to_json(flat, by_alias=True, exclude_none=True)


def _decode(_: Said, entries: list[bytes]) -> None:
    for data in entries:
        read_llm(data)


def _decode_flat(_: Said, entries: list[bytes]) -> None:
    for data in entries:
        _FlatMessage.__pydantic_validator__.validate_json(data)
