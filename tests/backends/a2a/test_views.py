"""What the page and the command line show of a task: messages, turns, usage, context and state."""

import pytest
from a2a.types import Message, Part, Role, TaskState

from lanebus import ALL_LANES, AssistantMessage, Bus, Envelope, ExtensionMessage, Lane, Usage, UserMessage
from lanebus.a2a import LanebusTaskStore
from lanebus.bus.wire import kind_of
from lanebus.context import build_context
from lanebus.handlers.projections import look_at_state
from lanebus.handlers.verify import verify_all
from lanebus.projections import TURNS, USAGE, look
from tests.support.backends.a2a.tasks import ANYONE, artifact, manager, message, new_task, status

WORKING, INPUT_REQUIRED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_INPUT_REQUIRED
COMPLETED, FAILED = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED


async def converse(store: LanebusTaskStore) -> None:
    tasks = manager(store, "t")
    await tasks.save_task_event(new_task("t"))
    await tasks.save_task_event(status("t", WORKING, "looking"))
    await tasks.save_task_event(status("t", INPUT_REQUIRED, "which one?"))
    task = await tasks.get_task()
    assert task is not None
    await tasks.save_task_event(tasks.update_with_message(message("the first", role=Role.ROLE_USER), task))
    await tasks.save_task_event(status("t", WORKING))
    await tasks.save_task_event(artifact("t", "x", Part(text="result"), Part(raw=b"\x89PNG\r\n\x1a\n")))
    await tasks.save_task_event(status("t", COMPLETED, "done"))


async def shown(bus: Bus, lanes: frozenset[Lane] = ALL_LANES) -> list[Envelope]:
    return [each async for each in bus.session("t").read(lanes=lanes)]


async def state(bus: Bus) -> str:
    session = bus.session("t")
    return await look_at_state(session, await session.head(), None)


async def test_a_conversation_is_shown_as_messages_turns_states_and_artifacts_and_passes_verification(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    await converse(store)
    context = await build_context(bus.session("t"))
    assert [(kind_of(each), each.text_content()) for each in context.messages] == [
        ("user", "hello"),
        ("assistant", "looking"),
        ("assistant", "which one?"),
        ("user", "the first"),
        ("assistant", "done"),
    ]

    session = bus.session("t")
    turns = (await look(session, TURNS)).state
    said = {each.position: each.message for each in await shown(bus)}
    assert [(turn.status, len(turn.prompts)) for turn in turns.turns] == [("completed", 1), ("completed", 1)]
    answers = [said[turn.message] for turn in turns.turns if turn.message is not None]
    assert [each.text_content() for each in answers if isinstance(each, AssistantMessage)] == ["which one?", "done"]
    assert [(loop.agent, loop.status) for loop in turns.loops] == [("a2a", "completed"), ("a2a", "completed")]
    assert turns.waiting == ()
    usage = (await look(session, USAGE)).state
    assert (usage.total.usage, usage.total.calls_of_unknown_cost, usage.mismatches) == (Usage(), 3, ())
    assert await state(bus) == "idle"

    notes = [each.message for each in await shown(bus, frozenset({Lane.EXTENSION}))]
    found = [(each.kind, each.data) for each in notes if isinstance(each, ExtensionMessage)]
    states = ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    assert [data for kind, data in found if kind == "a2a.status"] == [
        {"state": f"TASK_STATE_{name}"} for name in states
    ]
    assert [data for kind, data in found if kind == "a2a.artifact"] == [
        {
            "artifactId": "x",
            "name": "x",
            "parts": [{"type": "text", "text": "result"}, {"type": "image"}],
            "append": False,
            "lastChunk": False,
        }
    ]
    assert [kind for kind, _ in found if kind.startswith("store.")] == []

    # Also of a task that is deleted while it runs.
    running = manager(store, "u")
    await running.save_task_event(new_task("u"))
    await running.save_task_event(status("u", WORKING, "one"))
    await store.delete("u", ANYONE)
    assert [report.problems async for report in verify_all(bus)] == [(), (), ()]


@pytest.mark.parametrize(
    ("end", "seen"),
    [(None, "working"), (COMPLETED, "idle"), (INPUT_REQUIRED, "idle"), (FAILED, "failed")],
)
async def test_the_page_says_what_a_task_does_and_a_failed_answer_is_not_in_the_context(
    bus: Bus, end: TaskState | None, seen: str
) -> None:
    tasks = manager(LanebusTaskStore(bus), "t")
    await tasks.save_task_event(new_task("t"))
    await tasks.save_task_event(status("t", WORKING))
    if end is not None:
        await tasks.save_task_event(status("t", end, "so"))
    assert await state(bus) == seen
    assert await bus.unfetched_work() == ()
    if end is FAILED:
        *_, last = [each.message for each in await shown(bus, frozenset({Lane.LLM}))]
        assert isinstance(last, AssistantMessage)
        assert (last.stop_reason, last.error_message) == ("error", "so")
        assert [kind_of(each) for each in (await build_context(bus.session("t"))).messages] == ["user"]


async def test_parts_that_are_not_text_are_shown_as_media_json_or_address(bus: Bus) -> None:
    asked = new_task("t")
    said = asked.history[0]
    said.parts.extend(
        [
            Part(raw=b"\x89PNG\r\n\x1a\n" + bytes(60_000), media_type="image/png", filename="x.png"),
            Part(raw=b"", filename="empty"),
            Part(url="https://example.org/x"),
            Part(text="long" * 50_000),
        ]
    )
    said.parts.add().data.struct_value.update({"a": [1, None]})
    await manager(LanebusTaskStore(bus), "t").save_task_event(asked)
    (message,) = [each.message for each in await shown(bus, frozenset({Lane.LLM}))]
    assert isinstance(message, UserMessage)
    assert [block.type for block in message.content] == ["text", "image", "text", "text", "text", "text"]
    texts = [block.text for block in message.content if block.type == "text"]
    assert texts[:3] == ["hello", "empty (0 bytes)", "https://example.org/x"]
    assert texts[3].endswith(" … (200000 characters)")
    stored = await LanebusTaskStore(bus).get("t", ANYONE)
    assert stored is not None
    assert stored.task == asked


async def test_a_message_is_shown_once_however_often_it_is_saved(bus: Bus) -> None:
    tasks = manager(LanebusTaskStore(bus), "t")
    await tasks.save_task_event(new_task("t"))
    update = status("t", WORKING, "one")
    await tasks.save_task_event(update)
    await tasks.save_task_event(update)
    task = await tasks.get_task()
    assert task is not None
    await tasks.save_task_event(tasks.update_with_message(Message(message_id="one"), task))
    assert len(await shown(bus, frozenset({Lane.LLM}))) == 2
