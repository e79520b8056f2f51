"""One suite for conversations in memory and on lanebus. Of ours also: races, and what a page shows."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryImage,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage, RunUsage

from lanebus import AssistantMessage, Bus, Delta, Lane, ToolResultMessage, UserMessage
from lanebus.bus.wire import DecodeFailure
from lanebus.context import build_context
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.projections import TURNS, USAGE, project
from lanebus.pydantic_ai import LanebusConversationStore
from tests.support.held import held
from tests.support.servers.kinds import Shared
from tests.support.servers.real import RealServer

TINY = BackendBounds(cached_sessions=1, inline_bytes=1, batch_bytes=1)


ON_CLUSTER = pytest.param("cluster", marks=pytest.mark.cluster("a fork and its origin are on several nodes"))


@pytest.fixture(params=["memory", "valkey", "tiny", ON_CLUSTER])
async def store(request: pytest.FixtureRequest, shared: Shared) -> AsyncGenerator[ConversationStore]:
    """Their store, and ours. With tiny bounds, each call reads the log."""
    if request.param == "memory":
        yield InMemoryConversationStore()
        return
    bounds = TINY if request.param == "tiny" else BackendBounds()
    async with held(shared[request.param].bus()) as bus:
        yield LanebusConversationStore(bus, bounds=bounds)


def ask(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def tell(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], usage=RequestUsage(input_tokens=3, output_tokens=2))


def talk(count: int, *, first: int = 0) -> list[ModelMessage]:
    """`count` turns of two messages."""
    return [each for n in range(first, first + count) for each in (ask(f"q{n}"), tell(f"a{n}"))]


def conversation(name: str = "c", *messages: ModelMessage) -> Conversation:
    return Conversation(conversation_id=name, messages=[*messages])


async def loaded(store: ConversationStore, name: str = "c", limit: int | None = None) -> Conversation:
    found = await store.load(name, limit=limit)
    assert found is not None
    return found


async def recorded(store: ConversationStore, name: str = "c") -> ConversationRecord:
    found = await store.read_record(name)
    assert found is not None
    return found


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    return [part.content for each in messages for part in each.parts if isinstance(part, TextPart | UserPromptPart)]  # type: ignore[misc]  # all are texts


async def words(store: ConversationStore, name: str = "c") -> list[str]:
    return texts((await loaded(store, name)).messages)


# --- load and save ----------------------------------------------------------------------------------------------------


async def test_an_unknown_conversation_loads_as_none_and_an_empty_one_as_empty(store: ConversationStore) -> None:
    assert await store.load("c") is None
    assert await store.load_entries("c") is None
    assert await store.read_record("c") is None
    assert await store.list_conversations() == []
    assert await store.save(conversation()) == []
    assert (await loaded(store)).messages == []
    assert (await recorded(store)).head_id is None


async def test_a_saved_conversation_loads_as_it_was(store: ConversationStore) -> None:
    saved = conversation("c", *talk(2))
    saved.usage = RunUsage(requests=2, input_tokens=6, output_tokens=4, cost=Decimal("0.25"), details={"x": 1})
    entries = await store.save(saved)
    assert [entry.message for entry in entries] == saved.messages
    assert [entry.parent_id for entry in entries] == [None, *(entry.id for entry in entries[:-1])]
    found = await loaded(store)
    assert (found, found.new_message_index) == (saved, 4)
    assert await store.load_entries("c") == entries


async def test_a_save_stores_only_what_is_new(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(1)))
    found = await loaded(store)
    found.messages += talk(1, first=1)
    new = await store.save(found)
    assert texts([entry.message for entry in new]) == ["q1", "a1"]
    assert await store.save(found) == []
    assert await words(store) == ["q0", "a0", "q1", "a1"]


async def test_a_message_or_a_loaded_copy_can_be_changed_without_changing_the_store(store: ConversationStore) -> None:
    said = ask("q0")
    await store.save(conversation("c", said, tell("a0")))
    said.parts = [UserPromptPart("changed")]
    found = await loaded(store)
    found.messages.clear()
    record = await recorded(store)
    record.branches.append("x")
    assert await words(store) == ["q0", "a0"]
    assert (await recorded(store)).branches == []


async def test_messages_of_all_parts_load_as_they_were(store: ConversationStore) -> None:
    picture = BinaryImage(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 600, media_type="image/png")
    parts: list[ModelMessage] = [
        ModelRequest(
            parts=[
                SystemPromptPart("be brief"),
                UserPromptPart(["look", picture, ImageUrl("https://example.org/cat.png")]),
            ],
            instructions="as told",
            metadata={"a": [1, None]},
        ),
        ModelResponse(
            parts=[
                ThinkingPart("hm", signature="s", provider_name="p"),
                ToolCallPart("find", {"n": 1}, "call-1"),
                ToolCallPart("find", '{"n": 2', "call-2"),
            ],
            model_name="m",
            provider_name="p",
            finish_reason="tool_call",
            provider_details={"x": {"y": 1}},
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("find", {"found": [1, 2]}, "call-1", metadata={"private": True}),
                ToolReturnPart("find", "not JSON", "call-2", outcome="failed"),
            ]
        ),
        tell("x" * 300_000),
        tell(""),
    ]
    await store.save(conversation("c", *parts))
    assert (await loaded(store)).messages == parts


async def test_a_long_history_is_saved_at_once(store: ConversationStore) -> None:
    messages = [tell("x" * 60_000) for _ in range(150)]
    await store.save(conversation("c", *messages))
    assert len((await loaded(store)).messages) == 150


async def test_ids_of_any_characters_are_different_conversations(store: ConversationStore) -> None:
    names = ["a b", "a:b", "ä" * 100, "x" * 65, "a-b", "", "/"]
    for name in names:
        await store.save(conversation(name, ask(name)))
    assert [await words(store, name) for name in names] == [[name] for name in names]
    assert {record.conversation_id for record in await store.list_conversations()} == {*names}


async def test_the_last_messages_load_with_a_limit_that_is_not_negative(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(3)))
    for limit, expected in ((0, []), (1, ["a2"]), (3, ["a1", "q2", "a2"]), (6, None), (99, None)):
        assert texts((await loaded(store, limit=limit)).messages) == (texts(talk(3)) if expected is None else expected)
        entries = await store.load_entries("c", limit=limit)
        assert entries is not None
        assert len(entries) == min(limit, 6)
    found = await loaded(store, limit=1)
    found.messages += talk(1, first=3)
    await store.save(found)
    assert await words(store) == texts(talk(4))
    for refused in (store.load, store.load_entries):
        with pytest.raises(UserError):
            await refused("c", limit=-1)
    with pytest.raises(UserError):
        await store.list_conversations(limit=-1)


async def test_a_rewritten_history_leaves_a_branch(store: ConversationStore) -> None:
    entries = await store.save(conversation("c", *talk(2)))
    found = await loaded(store)
    found.messages[2:] = [ask("other")]
    new = await store.save(found)
    assert new[0].parent_id == entries[1].id
    assert await words(store) == ["q0", "a0", "other"]
    assert (await recorded(store)).branches == [entries[-1].id]
    assert [entry.id for entry in await store.read_history(entries[-1].id)] == [entry.id for entry in entries]


async def test_a_serialized_conversation_is_compared_with_the_stored_history(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(2)))
    found = await loaded(store)
    again = ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(found))
    again.messages += talk(1, first=2)
    again.new_message_index = None
    assert texts([entry.message for entry in await store.save(again)]) == ["q2", "a2"]
    assert (await recorded(store)).branches == []


# --- conflicts --------------------------------------------------------------------------------------------------------


async def test_a_save_of_an_old_revision_or_of_none_conflicts_and_changes_nothing(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(1)))
    one, other = await loaded(store), await loaded(store)
    one.messages += talk(1, first=1)
    other.messages += talk(1, first=2)
    await store.save(one)
    for late in (other, conversation("c", *talk(1))):
        with pytest.raises(ConversationConflict) as caught:
            await store.save(late)
        assert caught.value.conversation_id == "c"
    assert await words(store) == ["q0", "a0", "q1", "a1"]


async def test_of_concurrent_saves_one_succeeds(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(1)))
    copies = [await loaded(store) for _ in range(8)]
    for number, copy in enumerate(copies):
        copy.messages.append(ask(f"of {number}"))
    outcomes = await asyncio.gather(*(store.save(copy) for copy in copies), return_exceptions=True)
    won = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    assert len(won) == 1
    assert all(isinstance(each, ConversationConflict) for n, each in enumerate(outcomes) if n not in won)
    assert await words(store) == ["q0", "a0", f"of {won[0]}"]


# --- the primitives ---------------------------------------------------------------------------------------------------


def entry(entry_id: str, parent: str | None) -> ConversationEntry:
    return ConversationEntry(id=entry_id, parent_id=parent, message=ask(entry_id))


def record(name: str, head: str | None, **fields: object) -> ConversationRecord:
    return replace(ConversationRecord(conversation_id=name, head_id=head), **fields)  # type: ignore[arg-type]  # any field


async def test_a_record_is_written_only_with_a_known_head_and_over_the_expected_revision(
    store: ConversationStore,
) -> None:
    with pytest.raises(ConversationConflict):
        await store.write_record(record("c", "x"), expected_revision=None)
    with pytest.raises(ConversationConflict):
        await store.write_record(record("c", "x"), new_entries=[entry("y", None)], expected_revision=None)
    assert await store.read_record("c") is None
    with pytest.raises(LookupError):
        await store.read_entry("y")
    with pytest.raises(ConversationConflict):
        await store.write_record(record("c", None), expected_revision="none")
    first = record("c", "x", scope="s")
    await store.write_record(first, new_entries=[entry("x", None)], expected_revision=None)
    assert await store.read_record("c") == first
    second = record("c", "y", branches=["x"])
    for expected in (None, "old"):
        with pytest.raises(ConversationConflict):
            await store.write_record(second, new_entries=[entry("y", "x")], expected_revision=expected)
    await store.write_record(second, new_entries=[entry("y", "x")], expected_revision=first.revision)
    assert await store.read_record("c") == second


async def test_entries_are_read_by_their_ids_and_a_history_up_to_any_entry(store: ConversationStore) -> None:
    entries = await store.save(conversation("c", *talk(2)))
    await store.save(conversation("d", *talk(1)))
    assert [await store.read_entry(each.id) for each in entries] == entries
    assert await store.read_history(entries[2].id) == entries[:3]
    assert await store.read_history(entries[2].id, limit=2) == entries[1:3]
    assert await store.read_history(entries[2].id, limit=0) == []
    assert await store.read_history(None) == []
    with pytest.raises(LookupError):
        await store.read_history("unknown")
    with pytest.raises(LookupError):
        await store.read_entry("unknown")


# --- scopes and lists -------------------------------------------------------------------------------------------------


async def test_another_scope_sees_no_conversation(store: ConversationStore) -> None:
    saved = conversation("c", *talk(1))
    await store.save(saved, scope="ann")
    for scope, is_seen in (("ann", True), (None, True), ("bob", False)):
        assert (await store.load("c", scope=scope) is not None) is is_seen
        assert (await store.load_entries("c", scope=scope) is not None) is is_seen
    with pytest.raises(ConversationConflict):
        await store.save(saved, scope="bob")
    with pytest.raises(UserError):
        await store.fork("c", source_scope="bob")
    with pytest.raises(UserError):
        await store.branch("c", at=0, expected_revision=saved.revision, scope="bob")
    await store.delete("c", scope="bob")
    assert await words(store) == ["q0", "a0"]
    await store.save(saved)
    assert (await recorded(store)).scope == "ann"


async def test_conversations_are_listed_by_scope_newest_first_up_to_a_limit(store: ConversationStore) -> None:
    started = datetime(2026, 1, 1, tzinfo=UTC)
    for number, name in enumerate(("a", "b", "c", "d")):
        moment = started + timedelta(seconds=number)
        await store.write_record(record(name, None, scope="xy"[number % 2], updated_at=moment), expected_revision=None)
    again = replace(await recorded(store, "a"), updated_at=started + timedelta(hours=1))
    await store.write_record(again, expected_revision=again.revision)

    async def names(scope: str | None = None, limit: int | None = None) -> list[str]:
        return [each.conversation_id for each in await store.list_conversations(scope=scope, limit=limit)]

    assert await names() == ["a", "d", "c", "b"]
    assert await names(limit=2) == ["a", "d"]
    assert await names(limit=0) == []
    assert await names("x") == ["a", "c"]
    assert await names("y", 1) == ["d"]
    assert await names("z") == []


# --- branches ---------------------------------------------------------------------------------------------------------


async def test_a_branch_continues_from_an_earlier_message_or_the_start_and_leads_back(store: ConversationStore) -> None:
    entries = await store.save(conversation("c", *talk(2)))
    branched = await store.branch("c", at=2, expected_revision=(await recorded(store)).revision)
    assert texts(branched.messages) == await words(store) == ["q0", "a0"]
    branched.messages += talk(1, first=8)
    other = await store.save(branched)
    assert await words(store) == ["q0", "a0", "q8", "a8"]
    assert (await recorded(store)).branches == [entries[-1].id]
    back = await store.branch("c", from_entry=entries[-1].id, expected_revision=branched.revision)
    assert texts(back.messages) == ["q0", "a0", "q1", "a1"]
    assert (await recorded(store)).branches == [other[-1].id]
    part = await store.branch("c", from_entry=other[0].id, expected_revision=back.revision)
    assert texts(part.messages) == ["q0", "a0", "q8"]
    anew = await store.branch("c", at=0, expected_revision=part.revision)
    assert anew.messages == []
    anew.messages.append(ask("anew"))
    await store.save(anew)
    assert await words(store) == ["anew"]
    fork = await store.fork("c", from_entry=entries[2].id)  # in a branch that was left
    assert texts(fork.messages) == ["q0", "a0", "q1"]


async def test_a_wrong_branch_is_refused_and_changes_nothing(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(1)))
    others = await store.save(conversation("d", *talk(1)))
    before = await recorded(store)
    with pytest.raises(UserError):
        await store.branch("unknown", at=0, expected_revision=None)
    with pytest.raises(ConversationConflict):
        await store.branch("c", at=0, expected_revision="old")
    wrong: list[tuple[int | None, str | None]] = [(3, None), (-1, None), (None, None), (1, "x"), (None, others[0].id)]
    for at, from_entry in wrong:
        with pytest.raises(UserError):
            await store.branch("c", at=at, from_entry=from_entry, expected_revision=before.revision)
    assert await recorded(store) == before


# --- forks ------------------------------------------------------------------------------------------------------------


async def test_a_fork_shares_the_history_and_goes_its_own_way(store: ConversationStore) -> None:
    entries = await store.save(conversation("c", *talk(2)), scope="ann")
    fork = await store.fork("c", new_conversation_id="f")
    assert texts(fork.messages) == ["q0", "a0", "q1", "a1"]
    fork.messages += talk(1, first=8)
    await store.save(fork)
    found = await loaded(store)
    found.messages += talk(1, first=9)
    await store.save(found)
    assert await words(store, "f") == ["q0", "a0", "q1", "a1", "q8", "a8"]
    assert await words(store) == ["q0", "a0", "q1", "a1", "q9", "a9"]
    stored = await recorded(store, "f")
    assert (stored.forked_from, stored.forked_at, stored.scope) == ("c", entries[-1].id, "ann")
    shared = await store.load_entries("f")
    assert shared is not None
    assert shared[:4] == entries
    assert {each.conversation_id for each in await store.list_conversations()} == {"c", "f"}


@pytest.mark.parametrize("at", [0, 1, 3, 4])
async def test_a_fork_keeps_the_first_messages(store: ConversationStore, at: int) -> None:
    saved = conversation("c", *talk(2))
    saved.usage = RunUsage(requests=2)
    entries = await store.save(saved)
    fork = await store.fork("c", at=at, scope="bob")
    assert texts(fork.messages) == texts(talk(2))[:at]
    assert fork.usage.requests == (2 if at == 4 else 0)
    stored = await recorded(store, fork.conversation_id)
    assert stored.forked_at == (entries[at - 1].id if at else None)
    assert stored.scope == "bob"
    fork.messages.append(ask("own"))
    await store.save(fork)
    assert await words(store, fork.conversation_id) == [*texts(talk(2))[:at], "own"]


async def test_a_fork_of_a_fork_shares_the_whole_history(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(2)))
    first = await store.fork("c", at=3, new_conversation_id="f")
    first.messages.append(tell("own"))
    await store.save(first)
    second = await store.fork("f", at=2, new_conversation_id="g")
    third = await store.fork("f", new_conversation_id="h")
    assert texts(second.messages) == await words(store, "g") == ["q0", "a0"]
    assert texts(third.messages) == await words(store, "h") == ["q0", "a0", "q1", "own"]


async def test_a_wrong_fork_is_refused(store: ConversationStore) -> None:
    for name in ("c", "d"):
        await store.save(conversation(name, *talk(1)))
    with pytest.raises(UserError):
        await store.fork("unknown")
    wrong: list[tuple[int | None, str | None]] = [(3, None), (-1, None), (1, "x"), (None, "x")]
    for at, from_entry in wrong:
        with pytest.raises(UserError):
            await store.fork("c", at=at, from_entry=from_entry)
    for known in ("c", "d"):
        with pytest.raises(ConversationConflict):
            await store.fork("c", new_conversation_id=known)
    assert len(await store.list_conversations()) == 2


async def test_a_fork_outlives_the_conversation_it_came_from(store: ConversationStore) -> None:
    entries = await store.save(conversation("c", *talk(2)))
    await store.fork("c", at=2, new_conversation_id="f")
    await store.delete("c")
    assert await store.load("c") is None
    assert await words(store, "f") == ["q0", "a0"]
    assert await store.read_entry(entries[1].id) == entries[1]
    with pytest.raises(LookupError):
        await store.read_entry(entries[3].id)
    with pytest.raises(ConversationConflict):
        await store.write_record(record("g", entries[3].id, forked_from="c"), expected_revision=None)
    await store.write_record(record("g", entries[1].id, forked_from="c"), expected_revision=None)
    assert await words(store, "g") == ["q0", "a0"]


async def test_a_deleted_id_can_be_a_fork(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(2)))
    await store.save(conversation("f", ask("old")))
    await store.delete("f")
    fork = await store.fork("c", at=3, new_conversation_id="f")
    fork.messages.append(tell("own"))
    await store.save(fork)
    assert await words(store, "f") == ["q0", "a0", "q1", "own"]
    assert await words(store) == ["q0", "a0", "q1", "a1"]


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_a_copy_loaded_before_a_deletion_cannot_be_saved_over_it(store: ConversationStore) -> None:
    await store.save(conversation("c", *talk(1)))
    old = await loaded(store)
    await store.delete("c")
    with pytest.raises(ConversationConflict):
        await store.save(old)
    await store.save(conversation("c", ask("anew")))
    with pytest.raises(ConversationConflict):
        await store.save(old)
    assert await words(store) == ["anew"]


async def test_a_record_is_deleted_only_in_its_revision_and_neither_loads_nor_lists(store: ConversationStore) -> None:
    saved = conversation("c", *talk(1))
    entries = await store.save(saved)
    await store.save(conversation("d", *talk(1)))
    for name, revision in (("c", "old"), ("unknown", "old")):
        with pytest.raises(ConversationConflict):
            await store.delete_record(name, expected_revision=revision)
    assert saved.revision is not None
    await store.delete_record("c", expected_revision=saved.revision)
    with pytest.raises(ConversationConflict):
        await store.delete_record("c", expected_revision=saved.revision)
    for name in ("c", "c", "unknown"):
        await store.delete(name)
    assert await store.load("c") is None
    assert [each.conversation_id for each in await store.list_conversations()] == ["d"]
    with pytest.raises(LookupError):
        await store.read_entry(entries[0].id)


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_runs_of_an_agent_continue_a_stored_conversation(store: ConversationStore) -> None:
    agent = Agent(TestModel(custom_output_text="yes"))
    for question in ("one", "two", "three"):
        found = await store.load("c") or conversation()
        result = await agent.run(question, conversation=found)
        assert len(await store.save(result)) == 2
    found = await loaded(store)
    assert texts(found.messages) == ["one", "yes", "two", "yes", "three", "yes"]
    assert found.usage.requests == 3


async def test_a_run_that_waits_for_an_approval_goes_on_after_a_load(store: ConversationStore) -> None:
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def remove(path: str) -> str:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        return f"{path} is gone"

    result = await agent.run("go", conversation=conversation())
    await store.save(result)
    found = await loaded(store)
    assert found.deferred_tool_requests is not None
    (call,) = found.deferred_tool_requests.approvals
    answers = DeferredToolResults(approvals={call.tool_call_id: True})
    again = await agent.run(conversation=found, deferred_tool_results=answers)
    await store.save(again)
    assert (await loaded(store)).deferred_tool_requests is None
    returns = [
        part.content
        for each in (await loaded(store)).messages
        for part in each.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert returns == ["a is gone"]


async def test_an_imported_conversation_is_not_continued_and_replaces_no_own_one(shared_valkey: RealServer) -> None:
    call = ModelResponse(parts=[ToolCallPart("pay", {"amount": 999}, "c")])
    async with shared_valkey.bus() as bus, shared_valkey.bus(namespace="mine") as mine:
        for store, text in ((LanebusConversationStore(bus), "theirs"), (LanebusConversationStore(mine), "own")):
            await store.save(conversation("c", ask(text), tell(text)))
        await LanebusConversationStore(bus).save(conversation("d", ask("x"), call))
        for name in ("c", "d"):
            async for envelope in bus.session(name).read():
                if not isinstance(envelope.message, DecodeFailure | Delta):
                    await mine.session(name, agent="pydantic-ai").publish(envelope.message, imported=True)
        store = LanebusConversationStore(mine)
        assert await store.load("d") is None
        assert [record.conversation_id for record in await store.read_records()] == ["c"]
        assert await words(store) == ["own", "own"]


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
        said = await words(store)
        for name in ("one", "other"):
            assert [text for text in said if text.startswith(name)] == [f"{name} {number}" for number in range(count)]
        assert len(said) == 2 * count
        assert (await recorded(store)).branches == []


@pytest.mark.parametrize(
    "kind", ["valkey", pytest.param("cluster", marks=pytest.mark.cluster("the conversations are on several nodes"))]
)
async def test_a_thousand_conversations_at_a_time_keep_their_messages(shared: Shared, kind: str) -> None:
    names = [f"c{number}" for number in range(1_000)]
    async with shared[kind].bus() as bus:
        store = LanebusConversationStore(bus)

        async def converse(name: str) -> None:
            for number in range(2):
                conversation = await store.load(name) or Conversation(conversation_id=name)
                conversation.messages += [ask(f"{name} {number}"), tell("yes")]
                await store.save(conversation)

        await asyncio.gather(*map(converse, names))
        other = LanebusConversationStore(bus)
        listed = await other.list_conversations()
        assert {record.conversation_id for record in listed} == {*names}
        for name in names[::100]:
            assert await words(other, name) == [f"{name} 0", "yes", f"{name} 1", "yes"]


async def test_a_save_in_parts_that_conflicts_leaves_the_conversation_as_it_was(bus: Bus) -> None:
    slow = LanebusConversationStore(bus, bounds=BackendBounds(batch_bytes=1))
    await slow.save(conversation("c", *talk(1)))
    one, other = await loaded(slow), await loaded(slow)
    one.messages += talk(2, first=1)
    other.messages += talk(1, first=8)
    outcomes = await asyncio.gather(slow.save(one), LanebusConversationStore(bus).save(other), return_exceptions=True)
    conflicts = [isinstance(outcome, ConversationConflict) for outcome in outcomes]
    assert sorted(conflicts) == [False, True]
    winner = other if conflicts[0] else one
    found = await loaded(slow)
    assert found.messages == winner.messages
    found.messages += talk(1, first=9)
    await slow.save(found)
    context = await build_context(bus.session("c"))
    assert len(context.messages) == len(found.messages)


async def test_an_erased_conversation_is_unknown_and_its_id_is_refused(bus: Bus) -> None:
    store = LanebusConversationStore(bus)
    saved = conversation("c", *talk(1))
    await store.save(saved)
    await bus.session("c").erase()
    assert await store.load("c") is None
    assert await store.list_conversations() == []
    with pytest.raises(ConversationConflict):
        await store.save(saved)


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_saved_run_shows_its_messages_turns_and_usage(bus: Bus) -> None:
    agent = Agent(TestModel(custom_output_text="done"), instructions="Be brief.", tools=[double])
    store = LanebusConversationStore(bus)
    first = await agent.run("Hello", conversation=Conversation(conversation_id="c"))
    await store.save(first)
    await store.save(await agent.run("Again", conversation=await store.load("c")))
    session = bus.session("c")
    context = await build_context(session)
    assert [type(message) for message in context.messages] == [
        *(UserMessage, AssistantMessage, ToolResultMessage, AssistantMessage),
        *(UserMessage, AssistantMessage),
    ]
    assert [instruction.text_content() for instruction in context.system] == ["Be brief."]
    state = (await project(session, TURNS)).state
    assert [(str(turn.turn_id), turn.status) for turn in state.turns] == [
        ("c.main.1#0", "completed"),
        ("c.main.1#1", "completed"),
        ("c.main.2#0", "completed"),
    ]
    assert [run.name for run in state.turns[0].tools] == ["double"]
    assert state.turns[0].results
    assert state.waiting == ()
    total = (await project(session, USAGE)).state.total.usage
    used = (await loaded(store)).usage
    assert (total.input, total.output) == (used.input_tokens, used.output_tokens)
    assert [envelope async for envelope in session.read(lanes={Lane.EXTENSION})] == []
    answers = [envelope.message async for envelope in session.read(lanes={Lane.LLM})]
    assert [each.text_content() for each in answers if isinstance(each, AssistantMessage)] == ["", "done", "done"]
