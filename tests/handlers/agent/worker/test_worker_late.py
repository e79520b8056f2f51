"""A job ends, and its session is given to the same worker again before that is told. Every message is answered."""

from collections.abc import Mapping

import anyio
import pytest

from lanebus import UserMessage
from lanebus.bus.bounds import Bounds
from lanebus.bus.log.work_bounds import WorkBounds
from lanebus.groups import RetryPolicy
from lanebus.handlers.agent.errors import TryAgain
from lanebus.handlers.agent.loop import AgentLoop
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.worker.worker import Worker
from tests.support.agent.agents import ScriptedModel, answer, until, wait_for
from tests.support.log.late import Late
from tests.support.servers.real import RealServer, shortly

__all__ = ()

ENDINGS: Mapping[str, tuple[str, Exception | None]] = {
    "acknowledged": ("ack", None),
    "put off": ("put_off", TryAgain(0, "not yet")),
    "set aside": ("dead_letter", KeyError("no")),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_message_that_comes_as_a_job_ends_is_answered_also_where_the_worker_is_told_of_that_end_later(
    ending: str, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, error = ENDINGS[ending]
    errors = [error] if error is not None else []
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 5))

    async def agent(run: Run) -> None:
        if errors:
            raise errors.pop()
        await echo(run)

    rare = Bounds(work=WorkBounds(sweep=600))  # no sweep finds what was forgotten
    async with shared_valkey.bus(bounds=rare) as bus, anyio.create_task_group() as tasks:
        worker = Worker(bus, agent, heartbeat=600, retry=RetryPolicy(retried=(OSError,), base=0))
        session = bus.session("s1")
        late = Late(monkeypatch, step)
        tasks.start_soon(worker.run)
        await session.publish(UserMessage.text("hello?"))
        async with shortly():
            await late.done.wait()
            await session.publish(UserMessage.text("and now?"))
            await late.given.wait()
        late.told.set()
        await wait_for(session, "agent.ended", count=2 if error is None else 1)

        async def is_done() -> bool:
            return (await bus.group_status("agents")).pending == 0

        await until(is_done)
        worker.stop()
