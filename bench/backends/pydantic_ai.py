"""Measure the conversation store of pydantic-ai beside the harness' own in SQLite: saves with one new message."""

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai_harness.step_persistence.conversations import ConversationSummary, SqliteConversationStore

from bench.embedded import opened_server
from lanebus import Bus
from lanebus.pydantic_ai import LanebusConversationStore

__all__ = ("main",)

SIZES = (1_000, 10_000)
SAVES = 20


async def main() -> None:
    """Print the time of a save with one new message, and of a load in a new process' store, at two sizes."""
    print(f"{'conversation store':34} {'messages':>9} {'save, median':>14} {'slowest':>10} {'load':>12}")
    for size in SIZES:
        async with opened_server() as (url, _), Bus.open(url) as bus:
            await _lanebus(bus, size)
        with tempfile.TemporaryDirectory() as directory:
            await _sqlite(Path(directory) / "log.db", size)


async def _lanebus(bus: Bus, size: int) -> None:
    conversation = Conversation(conversation_id="c", messages=[_message(number) for number in range(size)])
    store = LanebusConversationStore(bus)
    await store.save(conversation)

    async def save(number: int) -> None:
        conversation.messages.append(_message(number))
        await store.save(conversation)

    async def load() -> int:
        loaded = await LanebusConversationStore(bus).load("c")
        return 0 if loaded is None else len(loaded.messages)

    await _measured("LanebusConversationStore", size, save, load)


async def _sqlite(database: Path, size: int) -> None:
    messages = [_message(number) for number in range(size)]
    store = SqliteConversationStore(database=database)
    summary = await store.save(summary=ConversationSummary(id="c", workspace="w"), messages=messages)

    async def save(number: int) -> None:
        nonlocal summary
        messages.append(_message(number))
        summary = await store.save(summary=summary, messages=messages)

    async def load() -> int:
        return len((await SqliteConversationStore(database=database).get(conversation_id="c")).messages)

    await _measured("SqliteConversationStore", size, save, load)


async def _measured(
    name: str, size: int, save: Callable[[int], Awaitable[None]], load: Callable[[], Awaitable[int]]
) -> None:
    saves = list[float]()
    for number in range(size, size + SAVES):
        begun = time.perf_counter()
        await save(number)
        saves.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    loaded = await load()
    took = time.perf_counter() - begun
    if loaded != size + SAVES:
        raise RuntimeError(f"the store returned {loaded} of {size + SAVES} messages")
    median, slowest = statistics.median(saves) * 1e3, max(saves) * 1e3
    print(f"{name:34} {size:9,} {median:11.2f} ms {slowest:7.2f} ms {took * 1e3:9.1f} ms")


def _message(number: int) -> ModelMessage:
    if number % 2 == 0:
        return ModelRequest(parts=[UserPromptPart(f"Question {number}. " + "word " * 20)])
    return ModelResponse(parts=[TextPart(f"Answer {number}. " + "word " * 60)])
