"""Several replicas of an A2A server: races, kills, clients that connect to another replica, and the SDK's own check."""

# The SDK leaves these types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import uuid4

import anyio
import httpx2
import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import TaskVersion, VersionedEvent
from a2a.server.events import Event, EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    CancelTaskRequest,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatusUpdateEvent,
)
from anyio.to_thread import run_sync

from lanebus import Bus
from lanebus.a2a import LanebusEventStream, LanebusTaskStore
from tests.support.backends.a2a.replica import handler_of
from tests.support.backends.a2a.replicas import NAMESPACE, Replica, replicas
from tests.support.backends.a2a.tasks import ANYONE, events, manager, message, new_task, states_of, status, texts
from tests.support.backends.sources import source_of
from tests.support.paths import ROOT
from tests.support.servers.real import AnyServer, RealServer, shortly

WORKING, COMPLETED = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED


# --- processes ------------------------------------------------------------------------------------------------------


async def test_of_two_processes_that_save_after_one_version_exactly_one_wins(shared_valkey: RealServer) -> None:
    count = 40
    async with shared_valkey.bus() as bus:
        store = LanebusTaskStore(bus)
        await manager(store, "t").save_task_event(new_task("t"))

        async def race(name: str) -> None:
            module = "tests.support.backends.a2a.racer"
            command = [sys.executable, "-m", module, shared_valkey.url, NAMESPACE, "t", name, str(count)]
            await anyio.run_process(command, cwd=ROOT, stderr=None)

        async with shortly(), anyio.create_task_group() as group:
            for name in ("a", "b"):
                group.start_soon(race, name)
        async with shortly():
            found = texts(await events(LanebusEventStream(store), "t", 1 + 2 * count))
        for name in ("a", "b"):
            assert [text for text in found if text.startswith(name)] == [f"{name} {number}" for number in range(count)]
        stored = await store.get("t", ANYONE)
        assert stored is not None
        kept = [*stored.task.history, stored.task.status.message]
        assert [each.message_id for each in kept] == ["hello", *found]


async def send(replica: Replica, text: str, **to: str) -> dict[str, str]:
    """Send a message and return what names its task in the next one. The agent goes on in the background."""
    said = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **to}
    params = {"message": said, "configuration": {"returnImmediately": True}}
    asked = {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": params}
    async with httpx2.AsyncClient(timeout=120) as client:
        reply = (await client.post(replica.url, json=asked, headers={"A2A-Version": "1.0"})).json()
    assert "error" not in reply, reply
    task = reply["result"]["task"]
    return {"taskId": task["id"], "contextId": task["contextId"]}


async def until(
    stream: LanebusEventStream, id: str, text: str, after: TaskVersion = TaskVersion.MISSING
) -> list[VersionedEvent]:
    """Return the events after a version up to the one with this text, or to the end of the task for ""."""
    found: list[VersionedEvent] = []
    async with aclosing(stream.subscribe(id, after=after)) as subscription:
        async for each in subscription:
            found.append(each)
            event = each.event
            if isinstance(event, TaskStatusUpdateEvent) and (
                texts([each])[-1:] == [text] if text else event.status.state == COMPLETED
            ):
                return found
    raise AssertionError("the task was deleted")


async def test_after_a_sigkill_another_replica_continues_and_subscribers_miss_nothing(
    shared_valkey: RealServer,
) -> None:
    async with replicas(shared_valkey, 2, ticks=3) as (first, second), shared_valkey.bus() as bus, shortly():
        stream = LanebusEventStream(LanebusTaskStore(bus))
        task = await send(first, "hello")
        id = task["taskId"]
        seen = await until(stream, id, "[replica-0] tick 2")
        first.process.kill()
        await first.process.wait()
        assert await send(second, "go on", **task) == task
        seen += await until(stream, id, "", after=seen[-1].version)
        said = texts(seen)
        assert said[:3] == ["[replica-0] starting", "[replica-0] tick 1", "[replica-0] tick 2"]
        assert said[-4:] == ["[replica-1] starting", *(f"[replica-1] tick {number}" for number in (1, 2, 3))]
        assert seen == await until(stream, id, "")
        stored = await LanebusTaskStore(bus).get(id, ANYONE)
        assert stored is not None
        assert stored.task.status.state == COMPLETED
        assert [each.parts[0].text for each in stored.task.history if each.role == Role.ROLE_AGENT] == said
        assert [each.parts[0].text for each in stored.task.history if each.role == Role.ROLE_USER] == ["hello", "go on"]


# --- many tasks -----------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_a_thousand_tasks_at_once_are_saved_and_followed(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        store, stream = LanebusTaskStore(one), LanebusEventStream(LanebusTaskStore(other))
        found: dict[str, list[VersionedEvent]] = {}

        async def run(id: str) -> None:
            tasks = manager(store, id)
            await tasks.save_task_event(new_task(id))
            await tasks.save_task_event(status(id, WORKING, f"{id} one"))
            await tasks.save_task_event(status(id, COMPLETED, f"{id} two"))

        async def follow(id: str) -> None:
            found[id] = await events(stream, id, 3)

        async with shortly(), anyio.create_task_group() as group:
            for number in range(1_000):
                group.start_soon(follow, f"t{number}")
                group.start_soon(run, f"t{number}")
        assert {id: texts(got) for id, got in found.items()} == {
            f"t{number}": [f"t{number} one", f"t{number} two"] for number in range(1_000)
        }


# --- the SDK's request handlers -------------------------------------------------------------------------------------


class Ticker(AgentExecutor):
    """An agent that says numbers, one for each `release`, and then completes its task."""

    def __init__(self, count: int) -> None:
        self._count, self._may = count, anyio.Semaphore(0)

    def release(self) -> None:
        self._may.release()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await event_queue.enqueue_event(new_task(context.task_id, context_id=context.context_id))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        for number in range(self._count):
            await self._may.acquire()
            await updater.start_work(updater.new_agent_message([Part(text=str(number))]))
        await self._may.acquire()
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Nothing is to be cleaned up."""


def ask() -> SendMessageRequest:
    return SendMessageRequest(message=message("hello", role=Role.ROLE_USER))


async def begin(handler: DefaultRequestHandler) -> str:
    """Send a message, and disconnect as soon as there is a task."""
    stream: AsyncGenerator[Event] = handler.on_message_send_stream(ask(), ANYONE)
    async with aclosing(stream) as replies:
        async for event in replies:
            assert isinstance(event, Task)
            return event.id
    raise AssertionError("no task")


def subscribed(handler: DefaultRequestHandler, id: str) -> AsyncGenerator[Event]:
    stream: AsyncGenerator[Event] = handler.on_subscribe_to_task(SubscribeToTaskRequest(id=id), ANYONE)
    return stream


@pytest.mark.cluster("a cluster's hub follows the task")
async def test_a_client_that_subscribes_again_at_another_replica_sees_each_update(server: AnyServer) -> None:
    """The events between the answer with the task and the subscription are those that get lost elsewhere."""
    count = 12
    async with server.bus() as one, server.bus() as other:
        agent = Ticker(count)
        runs, serves = handler_of(one, agent), handler_of(other, Ticker(0))
        async with shortly():
            id, connections, said = await begin(runs), 0, list[str]()
            while len(said) < count:
                connections += 1
                async with aclosing(subscribed(serves, id)) as replies:
                    task = await anext(replies)
                    assert isinstance(task, Task)
                    known = [each.parts[0].text for each in (*task.history, task.status.message) if each.parts]
                    assert known[1 : 1 + len(said)] == said
                    said = known[1:]
                    for _ in range(3):  # three updates on this connection, and one more while nobody listens
                        if len(said) < count:
                            agent.release()
                            event = await anext(replies)
                            assert isinstance(event, TaskStatusUpdateEvent)
                            said.append(event.status.message.parts[0].text)
                if len(said) < count:
                    agent.release()
                    said.append(await missed(other, id, len(said)))
            assert said == [str(number) for number in range(count)]
            assert connections > 2
        await runs.aclose()
        await serves.aclose()


async def missed(bus: Bus, id: str, number: int) -> str:
    """Wait until the task has the update of a number, and return it."""
    stream = LanebusEventStream(LanebusTaskStore(bus))
    return texts(await until(stream, id, str(number)))[-1]


async def test_a_cancel_at_another_replica_ends_the_agent_and_all_streams(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        agent = Ticker(10)
        runs, serves = handler_of(one, agent), handler_of(other, Ticker(0))
        found: dict[str, list[str]] = {}
        async with shortly():
            id = await begin(runs)

            async def follow(name: str, handler: DefaultRequestHandler, ready: anyio.Event) -> None:
                async with aclosing(subscribed(handler, id)) as replies:
                    await anext(replies)
                    ready.set()
                    found[name] = await states_of(replies)

            async with anyio.create_task_group() as group:
                for name, handler in (("there", runs), ("here", serves)):
                    ready = anyio.Event()
                    group.start_soon(follow, name, handler, ready)
                    await ready.wait()
                canceled = await serves.on_cancel_task(CancelTaskRequest(id=id), ANYONE)
                assert canceled is not None
                assert canceled.status.state == TaskState.TASK_STATE_CANCELED
                agent.release()  # its next save is refused, which ends it
        assert {name: states[-1] for name, states in found.items()} == {
            "there": "TASK_STATE_CANCELED",
            "here": "TASK_STATE_CANCELED",
        }
        await runs.aclose()
        await serves.aclose()


async def test_the_sdks_exercise_passes_on_three_replicas(shared_valkey: RealServer) -> None:
    async with replicas(shared_valkey, 3, ticks=60) as started:
        ports = ",".join(str(replica.port) for replica in started)
        command = [sys.executable, "-m", "samples.clustermode.exercise", "--ports", ports]

        def exercise() -> subprocess.CompletedProcess[str]:
            folder = source_of("a2a-sdk")
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)

        run = await run_sync(exercise)
    kept = ROOT / "build" / "backends" / "a2a.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(run.stdout + run.stderr)
    assert (run.returncode, run.stderr) == (0, "")
    steps = [line.partition("]")[0] for line in run.stdout.splitlines() if line.startswith("[")]
    assert steps == ["[send", "[get", "[cancel", "[verify"]
    assert "cancel returned state=TASK_STATE_CANCELED" in run.stdout
    assert "replica 0 sees final state=TASK_STATE_CANCELED" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("OK: ")
