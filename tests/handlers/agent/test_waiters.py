"""Each waiter knows each end: it returns when the work on a session ends, and names how it ended."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, BusError, Receipt, Session, ToolCallBlock, UserMessage
from lanebus.agent import Agent, AgentLoop, Run, Worker, abort, ask, handoff, pause, resume, tool
from lanebus.agent import answered as answered_command
from lanebus.errors import LogRolledBack
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent.tools.subagent import wait_child
from tests.support.agent.agents import SECONDS, Pause, ScriptedModel, answer, calls
from tests.support.agent.logs import wait_for
from tests.support.node.agui import read_events
from tests.support.page.serving import client_of, serving
from tests.support.servers.real import RealServer

ASKED = UserMessage.text("How many walls?")
KEY = "asked"
AT_ONCE = RetryPolicy(attempts=1, base=0.0)


def worker(bus: Bus, agent: Agent, name: str = "w1") -> Worker:
    return Worker(bus, agent, name=name, heartbeat=60, retry=AT_ONCE)


# --- the ends ---------------------------------------------------------------------------------------------------------


async def answered(bus: Bus, session: Session) -> None:
    async with worker(bus, AgentLoop(ScriptedModel(answer("Four.")))):
        await wait_for(session, "agent.ended")


async def answered_by_a_function(bus: Bus, session: Session) -> None:
    async def agent(run: Run) -> None:
        await run.publish(AssistantMessage.text("Four.").model_copy(update={"metadata": {"lanebus.readUpTo": 1}}))

    async with worker(bus, agent):
        await wait_for(session, "assistant")


async def answered_by_another_agent(bus: Bus, session: Session) -> None:
    await session.hand_over("other")
    async with worker(bus, AgentLoop(ScriptedModel(answer("Four.")), name="other")):
        await wait_for(session, "agent.ended")


async def failed(bus: Bus, session: Session) -> None:
    broken = AssistantMessage(stop_reason="error", error_message="no network")
    async with worker(bus, AgentLoop(ScriptedModel([broken]))):
        await wait_for(session, "agent.ended")


async def fails(run: Run) -> None:
    raise RuntimeError("no network")


async def became_a_dead_letter(bus: Bus, session: Session) -> None:
    async with worker(bus, fails):
        await wait_for(session, "assistant error")


async def aborted_while_running(bus: Bus, session: Session) -> None:
    gate = Pause()
    async with worker(bus, AgentLoop(ScriptedModel([gate]))):
        await gate.reached.wait()
        await abort(session)
        await wait_for(session, "agent.control.answered")


async def aborted_before_the_first_loop(bus: Bus, session: Session) -> None:
    await abort(session)
    async with worker(bus, AgentLoop(ScriptedModel())):
        await wait_for(session, "agent.control.answered")


async def stopped(bus: Bus, session: Session, stop: Callable[[Session], Awaitable[object]]) -> None:
    """Stop a loop between two turns."""
    gate = Pause()

    @tool
    async def look() -> str:
        """Look around."""
        await gate.wait()
        return "A wall."

    async with worker(bus, AgentLoop(ScriptedModel(calls(ToolCallBlock(id="c1", name="look"))), (look,))):
        await gate.reached.wait()
        await stop(session)
        gate.over.set()
        await wait_for(session, "agent.control.answered")


async def aborted_after_a_pause(bus: Bus, session: Session) -> None:
    await stopped(bus, session, pause)
    await abort(session)
    async with worker(bus, AgentLoop(ScriptedModel())):
        await wait_for(session, "agent.control.answered", 2)


async def aborted_after_a_handoff(bus: Bus, session: Session) -> None:
    await stopped(bus, session, handoff)
    await abort(session)
    async with worker(bus, AgentLoop(ScriptedModel())):
        await wait_for(session, "agent.control.answered", 2)


async def failed_after_a_pause(bus: Bus, session: Session) -> None:
    await stopped(bus, session, pause)
    await resume(session)
    async with worker(bus, fails):
        await wait_for(session, "assistant error")


async def closed(bus: Bus, session: Session) -> None:
    await session.close()


async def erased(bus: Bus, session: Session) -> None:
    await session.erase()


# --- the waiters ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def client(bus: Bus) -> AsyncGenerator[httpx2.AsyncClient]:
    async with serving(bus) as served, client_of(served) as client:
        yield client


async def child(session: Session) -> str:
    outcome = await wait_child(session)
    return f"{outcome.stop_reason} {outcome.fault or outcome.text}".strip()


async def question(session: Session) -> str:
    return (await ask(session, ASKED, key=KEY)).text_content()


async def agui(session: Session, client: httpx2.AsyncClient, begun: anyio.Event) -> str:
    body: dict[str, JsonValue] = {"threadId": session.id, "runId": "r1", "messages": []}
    async with client.stream("POST", f"/agui/{(await session.head()).agent}", json=body) as reply:
        begun.set()
        last = read_events((await reply.aread()).decode())[-1]
    return f"{last['type']} {last.get('message', '')}".strip()


async def chat(session: Session, client: httpx2.AsyncClient, begun: anyio.Event) -> str:
    async with client.stream("GET", f"/chat/{session.id}/stream") as reply:
        begun.set()
        frames = (await reply.aread()).decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    last: dict[str, JsonValue] = json.loads(frames[-3].removeprefix("data: "))
    return f"{last['type']} {last.get('errorText', '')}".strip()


CUT_SHORT = "The session was closed before this answer was complete."
OK = {"child": "stop Four.", "question": "Four.", "agui": "RUN_FINISHED", "chat": "finish"}
FAILED = {
    "child": "error no network",
    "question": "LoopFailed",
    "agui": "RUN_ERROR no network",
    "chat": "error no network",
}
RAISED = {name: text.replace("no network", "RuntimeError: no network") for name, text in FAILED.items()}
ABORTED = {"child": "aborted Aborted by the user", "question": "LoopAborted", "agui": "RUN_FINISHED", "chat": "abort"}
# A stopped session needs a person, and only the parent of a child waits on. Who asks again later is told the end.
HALTED = {"question": "PersonNeeded", "agui": "RUN_FINISHED", "chat": "finish"}
ERASED = "session 's1' was erased: use another session id"
ENDS: list[tuple[Callable[[Bus, Session], Awaitable[None]], Mapping[str, str]]] = [
    (answered, OK),
    (answered_by_a_function, OK),
    (answered_by_another_agent, OK),
    (failed, FAILED),
    (became_a_dead_letter, RAISED),
    (aborted_while_running, ABORTED),
    (aborted_before_the_first_loop, ABORTED),
    (aborted_after_a_pause, {**HALTED, "child": ABORTED["child"], "late": "LoopAborted"}),
    (aborted_after_a_handoff, {**HALTED, "child": ABORTED["child"], "late": "LoopAborted"}),
    (failed_after_a_pause, {**HALTED, "child": RAISED["child"], "late": "LoopFailed"}),
    (
        closed,
        {
            "child": "SessionClosed",
            "question": "SessionClosed",
            "agui": f"RUN_ERROR {CUT_SHORT}",
            "chat": f"error {CUT_SHORT}",
        },
    ),
    (
        erased,
        {
            "child": "SessionErased",
            "question": "SessionErased",
            "agui": f"RUN_ERROR {ERASED}",
            "chat": f"error {ERASED}",
        },
    ),
]


@pytest.mark.parametrize(("end", "told"), [pytest.param(*each, id=each[0].__name__) for each in ENDS])
async def test_each_waiter_ends_with_the_work_and_names_its_outcome(
    bus: Bus, session: Session, end: Callable[[Bus, Session], Awaitable[None]], told: Mapping[str, str]
) -> None:
    found: dict[str, str] = {}

    async def note(name: str, wait: Callable[[], Awaitable[str]]) -> None:
        try:
            found[name] = await wait()
        except BusError as error:
            found[name] = type(error).__name__

    with anyio.fail_after(SECONDS):
        async with client(bus) as http:
            await session.publish(ASKED, key=KEY)
            streams = [anyio.Event(), anyio.Event()]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(note, "child", partial(child, session))
                tasks.start_soon(note, "question", partial(question, session))
                tasks.start_soon(note, "agui", partial(agui, session, http, streams[0]))
                tasks.start_soon(note, "chat", partial(chat, session, http, streams[1]))
                for each in streams:
                    await each.wait()
                await end(bus, session)
            early = {name: text for name, text in told.items() if name != "late"}
            assert found == early
            # A waiter that comes late finds the end in the log.
            await note("child", partial(child, session))
            await note("question", partial(question, session))
            assert found == {**early, "question": told.get("late", told["question"])}


# --- commands ---------------------------------------------------------------------------------------------------------


async def lost_its_beginning(bus: Bus, session: Session) -> None:
    after = (await session.head()).cursor
    await session.trim(after.position, force=True)
    told = session.follow(kinds={"assistant"}, after=after)
    async with worker(bus, AgentLoop(ScriptedModel())), aclosing(told) as entries:
        await anext(entries)


async def refuses(bus: Bus, session: Session) -> None:
    async def agent(run: Run) -> None:
        """Answer no command."""

    async with worker(bus, agent):
        await wait_for(session, "agent.control.answered")


async def handed_over(bus: Bus, session: Session) -> None:
    await session.hand_over("other")
    async with worker(bus, AgentLoop(ScriptedModel(), name="other")):
        await wait_for(session, "agent.control.answered")


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (became_a_dead_letter, "refused the agent failed"),
        (refuses, "refused this agent answers no commands"),
        (handed_over, "applied"),
        (lost_its_beginning, "refused the session can no longer be read"),
        (closed, "SessionClosed"),
        (erased, "SessionErased"),
    ],
)
async def test_who_waits_for_the_answer_to_a_command_is_told_each_end(
    bus: Bus, session: Session, end: Callable[[Bus, Session], Awaitable[None]], told: str
) -> None:
    found: list[str] = []

    async def wait(session: Session, command: Receipt) -> None:
        try:
            answer = await answered_command(session, command)
            found.append(f"{answer.outcome} {answer.reason or ''}".strip())
        except BusError as error:
            found.append(type(error).__name__)

    with anyio.fail_after(SECONDS):
        await session.publish(ASKED)
        command = await pause(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, session, command)
            await end(bus, session)
    assert found == [told]


async def test_who_waits_for_a_command_that_the_log_has_lost_is_told(process: RealServer) -> None:
    async with process.bus() as bus:
        session = bus.session("s1")
        await session.publish(ASKED)
        command = await pause(session)
        process.do("FLUSHALL")
    async with process.bus() as bus:
        session = bus.session("s1")
        await session.publish(ASKED, ASKED)
        with pytest.raises(LogRolledBack), anyio.fail_after(SECONDS):
            await answered_command(session, command)
