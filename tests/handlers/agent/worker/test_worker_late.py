"""A session is delivered again before its worker knows that the job has ended. Every message is answered."""

from collections.abc import Mapping

import anyio
import pytest

from lanebus import UserMessage
from lanebus.agent import AgentLoop, Run, TryAgain, Worker
from lanebus.bounds import Bounds, WorkBounds
from lanebus.groups import RetryPolicy
from tests.support.agent.agents import ScriptedModel, answer
from tests.support.agent.logs import until, wait_for
from tests.support.log.late import Late
from tests.support.servers.real import RealServer, shortly

__all__ = ()

ENDINGS: Mapping[str, tuple[str, Exception | None]] = {
    "acknowledged": ("ack", None),
    "put off": ("nack", TryAgain(0, "not yet")),
    "set aside": ("dead_letter", KeyError("no")),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_message_at_the_end_of_a_job_is_answered_even_if_the_worker_learns_of_the_end_later(
    ending: str, shared_valkey: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, error = ENDINGS[ending]
    errors = [error] if error is not None else []
    echo = AgentLoop(ScriptedModel(*[answer("Yes.")] * 5))

    async def agent(run: Run) -> None:
        if errors:
            raise errors.pop()
        await echo(run)

    rare = Bounds(work=WorkBounds(sweep_seconds=600))  # no sweep finds lost work
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
