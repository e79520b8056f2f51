"""Tasks of A2A servers in sessions: read back as saved, listed as the SDK lists them; of concurrent saves one wins."""

import json
import random

import anyio
import pytest
from a2a.server.cluster import ConcurrentTaskModificationError, TaskVersion
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.types import ListTasksRequest, Part, Role, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from pydantic import JsonValue

from lanebus import Bus, DecodeFailure, ExtensionMessage
from lanebus.a2a import BackendBounds, LanebusEventStream, LanebusTaskStore
from lanebus.errors import DecodeError, InvalidArgument
from lanebus.handlers.integrations.a2a.task_record import TaskDeleted, copied
from tests.support.backends.a2a.tasks import ANYONE, artifact, call_of, events, manager, message, new_task, status
from tests.support.backends.imported import import_session
from tests.support.servers.real import AnyServer, RealServer, shortly
from tests.support.suite.scale import SEED

WORKING, COMPLETED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED


CANCELED, INPUT_REQUIRED = TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_INPUT_REQUIRED


async def read(bus: Bus, id: str = "t") -> Task | None:
    """Return a task as a store reads it that has nothing in memory."""
    stored = await LanebusTaskStore(bus).get(id, ANYONE)
    return None if stored is None else stored.task


async def saved(bus: Bus, id: str = "t") -> list[str]:
    """Return what each save stored, as JSON."""
    found = [each.message async for each in bus.session(id).read(kinds={"store.a2a.*"})]
    return [json.dumps(each.data) for each in found if isinstance(each, ExtensionMessage)]


@pytest.mark.cluster("the media of a task is in another slot than its session")
@pytest.mark.parametrize(
    "bounds", [BackendBounds(), BackendBounds(cached_sessions=1, inline_bytes=1, listed_sessions=1, reads_at_once=1)]
)
async def test_a_task_is_read_back_as_it_was_saved(server: AnyServer, bounds: BackendBounds) -> None:
    async with server.bus() as bus:
        store = LanebusTaskStore(bus, bounds=bounds)
        tasks = manager(store, "t")
        await manager(store, "other").save_task_event(new_task("other"))
        begun = new_task("t")
        begun.metadata.update({"a": {"b": [1.5, None, True]}})
        await tasks.save_task_event(begun)
        update = status("t", WORKING, "one")
        update.metadata.update({"c": "d"})
        for event in (
            update,
            artifact("t", "x", Part(text="a"), Part(raw=b"\x00\xff", media_type="image/png", filename="x.png")),
            artifact("t", "x", Part(text="b"), append=True),
            artifact("t", "y", Part(url="https://example.org/y")),
            artifact("t", "x", Part(text="c")),
            status("t", WORKING, "two"),
            status("t", COMPLETED),
        ):
            kept = await tasks.save_task_event(event)
            assert await read(bus) == kept
            other = await store.get("other", ANYONE)  # with tiny bounds, only one of both is in memory
            assert other is not None
            assert other.task == new_task("other")
        stored = await store.get("t", ANYONE)
        assert stored is not None
        assert stored.version == tasks.current_version
        assert [len(each.parts) for each in stored.task.artifacts] == [1, 1]
        assert [each.message_id for each in stored.task.history] == ["hello", "one", "two"]


async def test_a_save_appends_only_what_is_new(bus: Bus) -> None:
    tasks = manager(LanebusTaskStore(bus), "t")
    await tasks.save_task_event(new_task("t", "x" * 10_000))
    for number in range(20):
        await tasks.save_task_event(status("t", WORKING, f"tick {number}"))
        await tasks.save_task_event(artifact("t", "x", Part(text=f"piece {number}"), append=number > 0))
    task = await tasks.get_task()
    assert task is not None
    tasks.update_with_message(message("more", role=Role.ROLE_USER), task)
    await tasks.save_task_event(task)
    first, *updates, last = await saved(bus)
    assert len(first) > 10_000
    assert max(len(each) for each in (*updates, last)) < 1_000
    assert [each for each in updates if '"rest"' in each] == []  # the event alone says what changed
    assert await read(bus) == task


async def test_a_save_is_refused_after_another_version(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        first, second = LanebusTaskStore(one), LanebusTaskStore(other)
        task = new_task("t")
        begun = await first.save(task, event=task, prev_version=TaskVersion.MISSING, context=ANYONE)
        with pytest.raises(ConcurrentTaskModificationError):
            await second.save(task, event=task, prev_version=TaskVersion.MISSING, context=ANYONE)
        event = status("t", WORKING)
        task.status.CopyFrom(event.status)
        working = await second.save(task, event=event, prev_version=begun, context=ANYONE)
        assert working.is_after(begun)
        with pytest.raises(ConcurrentTaskModificationError):
            await first.save(task, event=event, prev_version=begun, context=ANYONE)
        with pytest.raises(ConcurrentTaskModificationError):
            await first.save(new_task("u"), event=None, prev_version=begun, context=ANYONE)


@pytest.mark.cluster("the tasks are on several nodes")
async def test_of_concurrent_saves_after_one_version_exactly_one_is_appended(server: AnyServer) -> None:
    async with server.bus() as one, server.bus() as other:
        stores = [LanebusTaskStore(one), LanebusTaskStore(other)]
        for name in ("t", "u", "v"):
            task = new_task(name)
            version = await stores[0].save(task, event=task, prev_version=TaskVersion.MISSING, context=ANYONE)
            won: list[str] = []

            async def save(number: int, task: Task = task, version: TaskVersion = version) -> None:
                mine, event = copied(task), status(task.id, WORKING, f"by {number}")
                mine.status.CopyFrom(event.status)
                try:
                    await stores[number % 2].save(mine, event=event, prev_version=version, context=ANYONE)
                except ConcurrentTaskModificationError:
                    return
                won.append(f"by {number}")  # noqa: B023  # the round ends with the group

            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(save, number)
            assert len(won) == 1
            kept = await read(one, name)
            assert kept is not None
            assert kept.status.message.parts[0].text == won[0]


async def test_a_cancel_needs_no_version_and_keeps_what_was_saved_meanwhile(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        running, canceling = manager(LanebusTaskStore(one), "t"), LanebusTaskStore(other)
        await running.save_task_event(new_task("t"))
        await running.save_task_event(status("t", WORKING, "one"))
        seen = await canceling.get("t", ANYONE)
        assert seen is not None
        await running.save_task_event(status("t", WORKING, "two"))
        await running.save_task_event(artifact("t", "x", Part(text="a")))
        canceled = copied(seen.task)
        canceled.status.state = CANCELED
        event = status("t", CANCELED)
        event.status.CopyFrom(canceled.status)
        await canceling.save(canceled, event=event, prev=seen.task, prev_version=seen.version, context=ANYONE)
        kept = await read(one)
        assert kept is not None
        assert kept.status.state == CANCELED
        assert [each.message_id for each in (*kept.history, kept.status.message)] == ["hello", "one", "two"]
        assert [each.artifact_id for each in kept.artifacts] == ["x"]
        with pytest.raises(ConcurrentTaskModificationError):
            await running.save_task_event(status("t", WORKING, "three"))
        with pytest.raises(ConcurrentTaskModificationError):
            await canceling.save(canceled, event=event, prev_version=seen.version, context=ANYONE)
        missing = new_task("missing")
        missing.status.state = CANCELED
        with pytest.raises(ConcurrentTaskModificationError):
            await canceling.save(missing, prev_version=TaskVersion.MISSING, context=ANYONE)


async def test_a_task_exists_only_for_its_owner(bus: Bus) -> None:
    store, ann, bob = LanebusTaskStore(bus), call_of("ann"), call_of("bob")
    task = new_task("t")
    version = await store.save(task, event=task, prev_version=TaskVersion.MISSING, context=ann)
    assert await store.get("t", bob) is None
    for version_of_bob in (version, TaskVersion.MISSING):
        with pytest.raises(ConcurrentTaskModificationError):
            await store.save(task, event=task, prev_version=version_of_bob, context=bob)
    task.status.state = CANCELED
    with pytest.raises(ConcurrentTaskModificationError):
        await store.save(task, event=task, prev_version=version, context=bob)
    await store.delete("t", bob)
    assert await store.get("t", ann) is not None


async def test_a_deleted_task_can_be_saved_anew_but_not_continued(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    task = new_task("t")
    version = await store.save(task, event=task, prev_version=TaskVersion.MISSING, context=ANYONE)
    await store.delete("t", ANYONE)
    await store.delete("t", ANYONE)
    await store.delete("missing", ANYONE)
    assert await store.get("t", ANYONE) is await read(bus) is None
    with pytest.raises(ConcurrentTaskModificationError):
        await store.save(task, event=task, prev_version=version, context=ANYONE)
    anew = await store.save(task, event=task, prev_version=TaskVersion.MISSING, context=ANYONE)
    assert anew.is_after(version)
    assert await read(bus) == task


async def test_a_fork_is_a_task_of_its_own_with_the_same_past(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    tasks = manager(store, "t")
    await tasks.save_task_event(new_task("t"))
    await tasks.save_task_event(status("t", INPUT_REQUIRED, "what?"))
    fork = await store.session("t").fork(id="fork")
    await manager(store, fork.id).save_task_event(status(fork.id, COMPLETED, "done"))
    kept, old = await read(bus, fork.id), await read(bus)
    assert kept is not None
    assert old is not None
    assert (kept.id, kept.status.state) == ("fork", COMPLETED)
    assert [each.message_id for each in kept.history] == ["hello", "what?"]
    assert (old.id, old.status.state) == ("t", INPUT_REQUIRED)


@pytest.mark.parametrize("id", ["a task / with ünusual characters", "x" * 200])
async def test_any_text_can_be_the_id_of_a_task(bus: Bus, id: str) -> None:
    await manager(LanebusTaskStore(bus), id).save_task_event(new_task(id))
    assert await read(bus, id) == new_task(id)


async def test_what_cannot_be_stored_is_refused_and_what_is_damaged_is_reported(bus: Bus) -> None:
    store = LanebusTaskStore(bus)
    bad = new_task("t")
    bad.metadata.update({"a": float("nan")})
    with pytest.raises(InvalidArgument, match="JSON"):
        await store.save(bad, event=bad, prev_version=TaskVersion.MISSING, context=ANYONE)
    assert (await bus.session("t").head()).position == 0
    await manager(store, "t").save_task_event(new_task("t"))
    wrong: tuple[JsonValue, ...] = ("x", {"owner": "", "change": {"isTask": False, "event": {"statusUpdate": 5}}})
    for number, data in enumerate(wrong):
        await bus.session(f"u{number}").publish(ExtensionMessage.of("store.a2a.saved", data))
        with pytest.raises(DecodeError):
            await store.get(f"u{number}", ANYONE)
        with pytest.raises(DecodeError):
            await manager(store, f"u{number}").save_task_event(new_task(f"u{number}"))
    assert await read(bus) == new_task("t")


async def test_a_large_artifact_goes_to_the_media_store(bus: Bus) -> None:
    tasks = manager(LanebusTaskStore(bus), "t")
    await tasks.save_task_event(new_task("t"))
    for number in range(3):
        await tasks.save_task_event(artifact("t", f"x{number}", Part(raw=bytes([number]) * 2_000_000)))
        await tasks.save_task_event(artifact("t", f"y{number}", Part(text="y" * 2_000_000)))
    assert max(len(each) for each in await saved(bus)) < 1_000
    assert await read(bus) == await tasks.get_task()
    assert [each async for each in bus.session("t").read() if isinstance(each.message, DecodeFailure)] == []


async def test_an_imported_task_does_not_exist_and_changes_no_own_one(bus: Bus) -> None:
    theirs = manager(LanebusTaskStore(bus), "theirs")
    await theirs.save_task_event(new_task("theirs"))
    await theirs.save_task_event(status("theirs", COMPLETED, "paid"))
    await import_session(bus, "theirs", "t", "a2a")
    assert await read(bus) is None
    assert [each.id for each in (await LanebusTaskStore(bus).list(ListTasksRequest(), ANYONE)).tasks] == ["theirs"]
    own = manager(LanebusTaskStore(bus), "t")
    await own.save_task_event(new_task("t"))
    await import_session(bus, "theirs", "t")
    await bus.session("t").publish(TaskDeleted().as_extension(), imported=True)
    task = await read(bus)
    assert task is not None
    assert (task.id, task.status.state) == ("t", TaskState.TASK_STATE_SUBMITTED)
    kept = await own.save_task_event(status("t", COMPLETED, "mine"))
    async with shortly():
        found = await events(LanebusEventStream(LanebusTaskStore(bus)), "t", 2)
    assert "paid" not in str(found)
    assert await read(bus) == kept


STATES = [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_INPUT_REQUIRED]


def timed(task: Task, seconds: int) -> Task:
    if seconds:
        task.status.timestamp.FromSeconds(seconds)
    return task


def requests() -> list[ListTasksRequest]:
    found = [ListTasksRequest(), ListTasksRequest(page_size=3), ListTasksRequest(context_id="c1")]
    found += [ListTasksRequest(status=state, page_size=2) for state in STATES]
    late = ListTasksRequest(page_size=4)
    late.status_timestamp_after.FromSeconds(3)
    return [*found, late]


@pytest.mark.cluster("the tasks are on several nodes")
async def test_the_pages_are_those_of_the_sdks_store(server: AnyServer) -> None:
    dice, theirs = random.Random(SEED), InMemoryTaskStore()  # noqa: S311  a test's dice
    async with server.bus() as bus:
        ours = LanebusTaskStore(bus)
        for _ in range(2):  # the second time some tasks are old, and some have changed
            for number in range(12):
                user = call_of(f"user{number % 2}")
                task = new_task(f"t{number}", context_id=f"c{dice.randrange(2)}")
                task.status.state = dice.choice(STATES)
                timed(task, dice.randrange(6))
                stored = await ours.get(task.id, user)
                if stored is not None and dice.random() < 0.5:
                    continue
                if stored is not None:
                    await ours.delete(task.id, user)
                await manager(ours, task.id, user).save_task_event(task)
                await theirs.save(task, user)
            for user in (call_of("user0"), call_of("user1"), call_of("nobody")):
                for asked in requests():
                    while True:
                        page, expected = await ours.list(asked, user), await theirs.list(asked, user)
                        assert page == expected
                        asked.page_token = page.next_page_token
                        if not asked.page_token:
                            break
        with pytest.raises(InvalidParamsError, match="page token"):
            await ours.list(ListTasksRequest(page_token="x"), ANYONE)


@pytest.mark.parametrize("bounds", [BackendBounds(), BackendBounds(listed_sessions=1, reads_at_once=1)])
async def test_a_list_has_what_other_replicas_saved_and_not_what_was_deleted(
    shared_valkey: RealServer, bounds: BackendBounds
) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        store, lists = LanebusTaskStore(one), LanebusTaskStore(other, bounds=bounds)
        for name in ("t", "u", "v", "an id with spaces"):
            await manager(store, name).save_task_event(new_task(name))
        await store.session("t").fork(id="fork")
        await one.session("foreign", agent="a2a").publish(ExtensionMessage.of("progress"))
        await one.session("damaged", agent="a2a").publish(ExtensionMessage.of("store.a2a.saved", 5))
        assert {task.id for task in (await lists.list(ListTasksRequest(), ANYONE)).tasks} == {
            *("t", "u", "v", "an id with spaces", "fork")
        }
        await manager(store, "t").save_task_event(status("t", TaskState.TASK_STATE_COMPLETED))
        await store.delete("u", ANYONE)
        await store.session("v").erase()
        page = await lists.list(ListTasksRequest(), ANYONE)
        assert {task.id: task.status.state for task in page.tasks} == {
            "t": TaskState.TASK_STATE_COMPLETED,
            "an id with spaces": TaskState.TASK_STATE_SUBMITTED,
            "fork": TaskState.TASK_STATE_SUBMITTED,
        }
        assert page.total_size == 3
