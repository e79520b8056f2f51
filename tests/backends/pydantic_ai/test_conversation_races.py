"""Conversations under load: two processes that save one, many at a time, and what a failed process leaves."""

import asyncio
import os
import subprocess
import sys

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from lanebus.context import build_context
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.pydantic_ai import LanebusConversationStore
from tests.support.servers.kinds import Shared
from tests.support.servers.real import RealServer

__all__ = ()


def turn(text: str) -> tuple[ModelRequest, ModelResponse]:
    return ModelRequest(parts=[UserPromptPart(text)]), ModelResponse(parts=[TextPart(f"re {text}")])


async def test_of_two_processes_that_save_one_revision_exactly_one_succeeds(shared_valkey: RealServer) -> None:
    count = 40
    async with shared_valkey.bus() as bus:
        await LanebusConversationStore(bus).save(Conversation(conversation_id="c"))
        command = [sys.executable, "-m", "tests.support.backends.pydantic_ai.saver", shared_valkey.url]
        processes = [
            await asyncio.create_subprocess_exec(*command, name, str(count), stdout=subprocess.PIPE, env=os.environ)
            for name in ("one", "other")
        ]
        outputs = [(await process.communicate())[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        assert all(output.strip().isdigit() for output in outputs)
        store = LanebusConversationStore(bus)
        conversation = await store.load("c")
        assert conversation is not None
        said = [str(part.content) for message in conversation.messages for part in message.parts]  # type: ignore[union-attr]
        for name in ("one", "other"):
            assert [text for text in said if text.startswith(name)] == [f"{name} {number}" for number in range(count)]
        assert len(said) == 2 * count
        record = await store.read_record("c")
        assert record is not None
        assert record.branches == []


@pytest.mark.parametrize(
    "kind", ["valkey", pytest.param("cluster", marks=pytest.mark.cluster("the conversations are on several nodes"))]
)
async def test_a_thousand_conversations_at_a_time_keep_their_messages(shared: Shared, kind: str) -> None:
    names = [f"c{number}" for number in range(1_000)]
    async with shared[kind].bus() as bus:
        store = LanebusConversationStore(bus)

        async def talk(name: str) -> None:
            for number in range(2):
                conversation = await store.load(name) or Conversation(conversation_id=name)
                conversation.messages += turn(f"{name} {number}")
                await store.save(conversation)

        await asyncio.gather(*map(talk, names))
        other = LanebusConversationStore(bus)
        listed = await other.list_conversations()
        assert {record.conversation_id for record in listed} == {*names}
        for name in names[::100]:
            conversation = await other.load(name)
            assert conversation is not None
            assert conversation.messages[0].parts[0].content == f"{name} 0"  # type: ignore[union-attr]
            assert len(conversation.messages) == 4


async def test_a_save_in_parts_that_conflicts_leaves_the_conversation_as_it_was(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        slow = LanebusConversationStore(bus, bounds=BackendBounds(batch_bytes=1))
        await slow.save(Conversation(conversation_id="c", messages=[*turn("a")]))
        one, other = await slow.load("c"), await slow.load("c")
        assert one is not None
        assert other is not None
        one.messages += [*turn("b"), *turn("c")]
        other.messages += turn("d")
        outcomes = await asyncio.gather(
            slow.save(one), LanebusConversationStore(bus).save(other), return_exceptions=True
        )
        conflicts = [isinstance(outcome, ConversationConflict) for outcome in outcomes]
        assert sorted(conflicts) == [False, True]
        winner = other if conflicts[0] else one
        found = await slow.load("c")
        assert found is not None
        assert found.messages == winner.messages
        found.messages += turn("e")
        await slow.save(found)
        context = await build_context(bus.session("c"))
        assert len(context.messages) == len(found.messages)


async def test_an_erased_conversation_is_unknown_and_its_id_is_refused(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        store = LanebusConversationStore(bus)
        saved = Conversation(conversation_id="c", messages=[*turn("a")])
        await store.save(saved)
        await bus.session("c").erase()
        assert await store.load("c") is None
        assert await store.list_conversations() == []
        with pytest.raises(ConversationConflict):
            await store.save(saved)
