"""Programs that use a bus as other programs embed it: in a forked child, in another thread, in a second event loop.

    python -m tests.support.servers.embeddings NAME DIR

DIR is the data directory of an embedded server. What the program found is printed as JSON. Its caller bounds its time.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from lanebus import Bus, Cursor, Delta, Envelope, Session, UserMessage
from lanebus.agent import AgentLoop, OfflineModel, Worker
from lanebus.projections import TURNS, follow, project
from tests.support.servers.real import eventually

Calls = dict[str, Callable[[], Awaitable[object]]]

GROUP = "g"


async def calls_of(bus: Bus) -> Calls:
    """Return one call of each public part of a bus. Some are of objects that were used before."""
    session, letters, consumer = bus.session("s"), bus.dead_letters(GROUP), bus.consumer(GROUP, "c")
    following, subscribed, reading = session.follow(), session.subscribe(), session.read()
    lease, states = session.lease("holder"), follow(session, TURNS)
    for items in (following, subscribed, reading, states):
        await anext(items)
    await consumer.fetch(1)
    await lease.__aenter__()
    unread = session.follow()
    delta = Delta(kind="text", message_id="m", delta="a")
    return {
        "publish": lambda: session.publish(UserMessage.text("foreign")),
        "try_publish": lambda: session.try_publish(UserMessage.text("foreign")),
        "publish to a new session": lambda: bus.session("new").publish(UserMessage.text("foreign")),
        "close": session.close,
        "preview": lambda: session.preview(delta),
        "head": session.head,
        "open_messages": session.open_messages,
        "read": lambda: anext(session.read()),
        "pages": lambda: anext(session.pages()),
        "follow": lambda: anext(session.follow()),
        "subscribe": lambda: anext(session.subscribe()),
        "a follower": lambda: anext(following),
        "a follower that was not used": lambda: anext(unread),
        "a subscriber": lambda: anext(subscribed),
        "a follower is closed": following.aclose,
        "a reader": lambda: anext(reading),
        "a projection": lambda: project(session, TURNS),
        "a followed projection": lambda: anext(states),
        "load_checkpoint": lambda: session.load_checkpoint("c"),
        "save_checkpoint": lambda: session.save_checkpoint("c", Cursor(1)),
        "fork": lambda: session.fork(id="fork"),
        "trim": lambda: session.trim(1),
        "erase": session.erase,
        "lease": lambda: session.lease("other", wait=0).__aenter__(),
        "a lease": lease.wait_lost,
        "a lease again": lease.__aenter__,
        "acquire_lease": lambda: session.acquire_lease("owner", 1),
        "wait_for_wake_up": lambda: session.wait_for_wake_up(Cursor(0)),
        "media are put": lambda: bus.media.put_if_absent(b"media"),
        "media are got": lambda: bus.media.get("0" * 64),
        "sessions": bus.sessions,
        "newest sessions": lambda: bus.catalog.newest(limit=1),
        "activity": bus.activity,
        "agents": bus.agents,
        "groups": bus.groups,
        "group_status": lambda: bus.group_status(GROUP),
        "lease_status": lambda: bus.lease_status(["s"]),
        "live_workers": bus.live_workers,
        "dead letters": letters.count,
        "dead letters are read": lambda: anext(letters.read()),
        "monitor": bus.monitor.ping,
        "a consumer": lambda: consumer.fetch(1),
        "a consumer's heartbeat": consumer.heartbeat,
        "a consumer is closed": consumer.close,
        "a new consumer": lambda: bus.consumer(GROUP, "other").fetch(1),
        "a worker": lambda: Worker(bus, AgentLoop(OfflineModel())).run(),
    }


async def outcomes(calls: Calls) -> dict[str, str]:
    """Return the class of the error that each call raises."""
    found: dict[str, str] = {}
    for name, call in calls.items():
        try:
            found[name] = f"returned {await call()!r:.60}"
        except Exception as error:  # noqa: BLE001  # the test looks at it
            found[name] = type(error).__name__
    return found


async def first(bus: Bus) -> Session:
    session = bus.session("s")
    await session.publish(UserMessage.text("first"))
    return session


async def texts(session: Session) -> list[str]:
    return [e.message.text_content() for e in [e async for e in session.read()] if isinstance(e.message, UserMessage)]


def _has_ended(child: BaseProcess) -> bool:
    return not child.is_alive()


def in_child(calls: Calls, results: Connection) -> None:
    found = asyncio.run(outcomes(calls))
    calls.clear()
    gc.collect()
    results.send(found)


async def forked(data_dir: str) -> object:
    """A child that was forked uses the bus of its parent, in an event loop of its own."""
    context = multiprocessing.get_context("fork")
    async with Bus.open(data_dir=data_dir) as bus:
        session = await first(bus)
        found: list[object] = []
        for number in range(3):
            calls = await calls_of(bus) if not number else {"publish": lambda: session.publish(UserMessage.text("no"))}
            ours, theirs = context.Pipe()
            child = context.Process(target=in_child, args=(calls, theirs))
            child.start()
            theirs.close()
            await eventually(partial(_has_ended, child))
            found.append(ours.recv())
            await session.publish(UserMessage.text(f"parent {number}"))
        return {"calls": found, "log": await texts(session)}


async def forked_within(data_dir: str) -> object:
    """A child that was forked within a coroutine leaves the blocks of its parent."""
    async with Bus.open(data_dir=data_dir) as bus:
        session = await first(bus)
        following = session.follow()
        await anext(following)
        publishing = asyncio.ensure_future(session.publish(UserMessage.text("in flight")))
        await asyncio.sleep(0)
        child = os.fork()
        if not child:
            sys.exit(7)
        statuses: list[int] = []

        def has_ended() -> bool:  # not in a thread: the child's copy of the loop takes the wake-ups of threads with it
            pid, status = os.waitpid(child, os.WNOHANG)
            statuses.extend([status] if pid else [])
            return bool(statuses)

        await eventually(has_ended)
        await publishing
        await session.publish(UserMessage.text("after"))
        return {
            "status": os.waitstatus_to_exitcode(statuses[0]),
            "followed": [(await anext(following)).position for _ in range(2)],
            "log": await texts(session),
        }


async def outlived(data_dir: str) -> object:
    """The parent ends, and its child lives on until its input ends."""
    async with Bus.open(data_dir=data_dir) as bus:
        await first(bus)
        child = os.fork()
        if not child:
            os.close(1)
            sys.stdin.read()
            os._exit(0)
        print(json.dumps(child), flush=True)
        os._exit(0)  # as a kill would: nothing is closed


def spawned_child(data_dir: str) -> None:
    async def publish() -> None:
        async with Bus.open(data_dir=data_dir) as bus:
            await bus.session("s").publish(UserMessage.text("child"))

    asyncio.run(publish())


async def started(data_dir: str) -> object:
    """Children of each kind open a bus of their own."""
    async with Bus.open(data_dir=data_dir) as bus:
        session = await first(bus)
        for context in map(multiprocessing.get_context, ("fork", "spawn", "forkserver")):
            with ProcessPoolExecutor(1, mp_context=context) as children:
                await asyncio.wrap_future(children.submit(spawned_child, data_dir))
        return {"log": await texts(session)}


async def threaded(data_dir: str) -> object:
    """Another thread uses the bus in an event loop of its own, and in the loop of the bus."""
    opening = Bus.open(data_dir=data_dir)
    bus = await opening.__aenter__()
    session, loop, found = await first(bus), asyncio.get_running_loop(), dict[str, object]()
    calls = await calls_of(bus)
    calls["the bus is closed"] = lambda: opening.__aexit__(None, None, None)

    def run() -> None:
        found["calls"] = asyncio.run(outcomes(calls))
        asyncio.run_coroutine_threadsafe(session.publish(UserMessage.text("thread")), loop).result()

    thread = threading.Thread(target=run)
    thread.start()
    await eventually(lambda: not thread.is_alive())
    found["log"] = await texts(session)
    await opening.__aexit__(None, None, None)
    return found


def twice(data_dir: str) -> object:
    """A bus is used in a second event loop, after the first has ended."""
    opening = Bus.open(data_dir=data_dir)

    async def opened() -> Calls:
        bus = await opening.__aenter__()
        await first(bus)
        return await calls_of(bus)

    return {"calls": asyncio.run(outcomes(asyncio.run(opened())))}


def nested(data_dir: str) -> object:
    """One event loop is run anew for each call, as in a notebook."""
    loop, closing = asyncio.new_event_loop(), asyncio.Event()

    async def hold(opened: asyncio.Future[Bus]) -> None:
        async with Bus.open(data_dir=data_dir) as bus:
            opened.set_result(bus)
            await closing.wait()

    async def position(following: AsyncGenerator[Envelope, None]) -> int:
        return (await anext(following)).position

    waiting: asyncio.Future[Bus] = loop.create_future()
    holding = loop.create_task(hold(waiting))
    session = loop.run_until_complete(first(loop.run_until_complete(waiting)))
    following = session.follow()
    followed = [loop.run_until_complete(position(following))]
    loop.run_until_complete(session.publish(UserMessage.text("second")))
    followed.append(loop.run_until_complete(position(following)))
    loop.run_until_complete(following.aclose())
    log = loop.run_until_complete(texts(session))
    closing.set()
    loop.run_until_complete(holding)
    loop.close()
    return {"followed": followed, "log": log}


def main(name: str, data_dir: str) -> None:
    match name:
        case "twice":
            found = twice(data_dir)
        case "nested":
            found = nested(data_dir)
        case _:
            programs = {each.__name__: each for each in (forked, forked_within, outlived, started, threaded)}
            found = asyncio.run(programs[name](data_dir))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
