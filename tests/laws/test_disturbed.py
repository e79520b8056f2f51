"""Users, commands, failures and kills in any order: the session comes to rest and its log is consistent."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from lanebus import Bus, Session, UserMessage
from lanebus import agent as commands
from lanebus.agent import WorkerBounds
from lanebus.bus import open_server
from lanebus.context import build_context
from lanebus.handlers.agent.turn.loop_state import LoopState, SessionCache, SessionSnapshot
from lanebus.handlers.projections import STATUS
from lanebus.projections import project
from tests.support.agent.agents import short_folder
from tests.support.laws.disturbed import BOUNDS, CANARY, RUN_ONCE, Life, Wild, find_faults, rules
from tests.support.laws.tiny import LAW_TINY, RUN_TINY, WORKER_TINY, is_tiny
from tests.support.servers.bounded import OUTPUT_LIMIT
from tests.support.servers.resp import Resp
from tests.support.suite.scale import count, randomness

LIVES = 60
"""number of sessions at scale 1"""

SIDE_BY_SIDE = 6

SECONDS = 120.0
"""seconds after which a life counts as stuck"""


@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
async def test_a_session_comes_to_rest_however_it_is_disturbed(*, kills: bool) -> None:
    rules()  # import them before a life is timed
    async with _two_buses() as buses:
        for number in range(count(LIVES)):
            with anyio.fail_after(SECONDS):
                assert await _live(buses, number, kills=kills) == [], f"life {number}"


async def test_sessions_come_to_rest_side_by_side_with_room_for_three_in_memory() -> None:
    rules()
    async with _two_buses() as buses:
        bounds = WorkerBounds(warm_sessions=3), WORKER_TINY
        warm = [SessionCache(bus.session, each) for bus, each in zip(buses, bounds, strict=True)]
        numbers = iter(range(count(LIVES)))

        async def live_one_after_another() -> None:
            for number in numbers:
                with anyio.fail_after(SECONDS):
                    assert await _live(buses, number, kills=number % 2 == 0, warm=warm) == [], f"life {number}"

        async with anyio.create_task_group() as tasks:
            for _ in range(SIDE_BY_SIDE):
                tasks.start_soon(live_one_after_another)


@asynccontextmanager
async def _two_buses() -> AsyncGenerator[tuple[Bus, Bus], None]:
    """Open two buses on one embedded server with a small output limit: one with default and one with tiny bounds."""
    async with (
        short_folder() as folder,
        open_server(folder / "d") as server,
        Bus.open(data_dir=folder / "d") as bus,
        Bus.open(data_dir=folder / "d", bounds=LAW_TINY) as tiny,
    ):
        with Resp(server.socket) as say:
            say("CONFIG", "SET", "client-output-buffer-limit", OUTPUT_LIMIT)
        yield bus, tiny


async def _live(
    buses: Sequence[Bus], number: int, *, kills: bool, warm: Sequence[SessionCache | None] = (None, None)
) -> list[str]:
    small = is_tiny(number // 2)  # also every second one of those that are killed
    life = Life(
        buses[small].session(f"s{number}"),
        randomness("life", number, kills),
        kills=kills,
        warm=warm[small],
        bounds=RUN_TINY if small else BOUNDS,
    )
    wild = Wild(life)
    for _ in range(life.random.randint(2, 6)):
        await (life.say() if life.random.random() < 0.6 else life.deed())
        if life.random.random() < 0.7:
            await life.work(wild.loop)
    faults = await _rest(life, wild)
    shown = {
        message.text_content()
        for request in wild.requests
        for message in request.context.messages
        if isinstance(message, UserMessage)
    }
    entries = [entry async for entry in life.session.read()]
    if life.words and not entries:  # without words it may be empty: a life of answers to calls that were never made
        faults.append(f"the log is empty after {life.words} words")
    faults += find_faults(entries, shown)
    faults += [
        f"{name} {key} ran {times} times" for (key, name), times in wild.ran.items() if name in RUN_ONCE and times > 1
    ]
    faults += [f"{spoken.message_id} is still shown" for spoken in await life.session.open_messages()]
    if any(CANARY in repr([*request.context.messages, *request.context.system]) for request in wild.requests):
        faults.append("a model was told what a command says")
    return faults


async def _rest(life: Life, wild: Wild) -> list[str]:
    """Let the session come to rest: no more disturbances, and people answer every request for approval."""
    life.is_quiet = True
    for _ in range(20):
        await life.work(wild.loop)
        view = await _view(life.session)
        state = view.loop_state
        if state.is_halted:
            await commands.resume(life.session)
        elif state.is_waiting and state.answer is not None and view.status.loop is not None:
            call = view.status.loop.calls_waiting[state.answer.open_calls[0].id]
            await commands.approve(life.session, call.turn_id, call.tool_call_id)
        else:
            return _left(state)
    return ["it does not come to rest"]


def _left(state: LoopState) -> list[str]:
    left = (*state.prompts, *state.deferred, *([] if state.answer is None else [state.answer]))
    return [f"{each} is left" for each in left]


async def _view(session: Session) -> SessionSnapshot:
    return SessionSnapshot(await build_context(session), (await project(session, STATUS)).state)
