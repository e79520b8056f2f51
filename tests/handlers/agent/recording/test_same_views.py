"""The same conversation, by a worker's loop and by an own loop with a recorder: their logs and views are equal."""

from collections.abc import Callable, Coroutine, Sequence

import anyio
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, DecodeFailure, Session
from lanebus.agent import AgentLoop, LoopLimits, ModelRequest, RecordedTurn, Recorder, Tool, abort, approve, deny, tool
from lanebus.handlers.agent import ToolContext
from lanebus.handlers.projections import STATUS, TURNS, USAGE, doing
from lanebus.handlers.verify import verify_session
from lanebus.messages import AgentEnded, ToolCallBlock, ToolWaiting, UserMessage
from lanebus.projections import rebuild
from tests.support.agent.agents import Pause, ScriptedModel, Step, answer, calls, fresh_bus, take_run
from tests.support.agent.logs import events, events_of, log, until, wait_for

People = Callable[[Session], Coroutine[object, object, None]]
"""what people do while an agent works"""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


TOOLS: tuple[Tool, ...] = (add, divide, pay)
BY_NAME = {each.name: each for each in TOOLS}


def call(id: str, name: str, **arguments: JsonValue) -> ToolCallBlock:
    return ToolCallBlock(id=id, name=name, arguments=arguments)


async def nothing(_: Session) -> None:
    pass


async def say_yes(session: Session) -> None:
    await wait_for(session, "agent.tool.waiting")
    (asked,) = await events_of(session, ToolWaiting)
    await approve(session, asked.turn_id, asked.tool_call_id)


async def say_no(session: Session) -> None:
    await wait_for(session, "agent.tool.waiting")
    (asked,) = await events_of(session, ToolWaiting)
    await deny(session, asked.turn_id, asked.tool_call_id)


async def stop_it(session: Session) -> None:
    await wait_for(session, "agent.message.started")

    async def is_shown() -> bool:
        return bool(await session.open_messages())

    await until(is_shown)
    await abort(session)


CONVERSATIONS: dict[str, tuple[Callable[[], Sequence[Sequence[Step]]], People]] = {
    "an answer": (lambda: [answer("Hello.")], nothing),
    "tools": (
        lambda: [calls(call("c1", "divide", a=1, b=0)), calls(call("c1", "add", a=3, b=3)), answer("Six.")],
        nothing,
    ),
    "an approval": (lambda: [calls(call("c1", "pay", amount=3)), answer("Paid.")], say_yes),
    "a denial": (lambda: [calls(call("c1", "pay", amount=3)), answer("Not paid.")], say_no),
    "an abort": (lambda: [[*answer("x" * 3_000)[:2], Pause()]], stop_it),
}


def named(script: Sequence[Sequence[Step]]) -> ScriptedModel:
    """The model of a script, which names itself in its answers."""
    own = {"provider": ScriptedModel.provider, "model": ScriptedModel.name}
    return ScriptedModel(
        *(
            [step.model_copy(update=own) if isinstance(step, AssistantMessage) else step for step in steps]
            for steps in script
        )
    )


async def by_worker(session: Session, script: Sequence[Sequence[Step]]) -> None:
    loop = AgentLoop(named(script), TOOLS, drain_seconds=0)
    while not any(isinstance(event, AgentEnded) for event in await events(session)):
        run = await take_run(session)
        await loop(run)
        await session.release_lease(run.lease)


async def by_recorder(session: Session, script: Sequence[Sequence[Step]]) -> None:
    model = named(script)
    async with Recorder(session, limits=LoopLimits()) as recorder:
        while not any(isinstance(event, AgentEnded) for event in await events(session)):
            assert await recorder.wait_for_work()
            async with recorder.turn(model=model, tools=TOOLS) as turn:
                async for event in model.stream(ModelRequest(turn.context)):
                    turn.piece(event)
                await turn.answer()
                for each in turn.calls:
                    if each.name != "pay" or await turn.approval(each):
                        await run_tool(turn, each)


async def run_tool(turn: RecordedTurn, each: ToolCallBlock) -> None:
    async with turn.tool(each) as recorded:
        context = ToolContext("s1", turn.id, each.id, recorded.progress)
        recorded.result = await BY_NAME[each.name].run(each, context)


async def plain_log(session: Session) -> list[JsonValue]:
    """The log without what differs from run to run: times, and the epochs in the ids of answers."""

    def plain(value: JsonValue) -> JsonValue:
        match value:
            case dict():
                return {
                    name: plain(each) for name, each in value.items() if name not in {"timestamp", "id", "messageId"}
                }
            case list():
                return [plain(each) for each in value]
            case _:
                return value

    return [
        plain(envelope.message.model_dump(mode="json", by_alias=True, exclude_none=True))
        for envelope in await log(session)
        if not isinstance(envelope.message, DecodeFailure)
    ]


async def views(session: Session) -> list[object]:
    status = (await rebuild(session, STATUS)).state
    turns = (await rebuild(session, TURNS)).state
    usage = (await rebuild(session, USAGE)).state
    loops = [loop.model_copy(update={"started": 0, "ended": loop.ended is not None}) for loop in turns.loops]
    return [doing(session.id, status), status.commands, usage, loops, len(turns.turns), turns.waiting, turns.running]


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_an_own_loop_leaves_the_log_and_the_views_of_a_worker(name: str) -> None:
    script, people = CONVERSATIONS[name]
    logs: list[list[JsonValue]] = []
    seen: list[list[object]] = []
    for loop in (by_worker, by_recorder):
        async with fresh_bus() as bus, anyio.create_task_group() as tasks:
            session = bus.session("s1")
            await session.publish(UserMessage.text("go"))
            tasks.start_soon(people, session)
            await loop(session, script())
            logs.append(await plain_log(session))
            seen.append(await views(session))
            report = await verify_session(bus, session.id)
            assert report is not None
            assert report.problems == ()
    assert logs[0] == logs[1]
    assert seen[0] == seen[1]
