"""`@ag-ui/client` 1.0.0 and 0.0.59, unmodified, on a real server and a real worker."""

from pathlib import Path

import pytest

from lanebus.handlers.agent.loop import AgentLoop
from tests.support.agent.agents import ScriptedModel, answer
from tests.support.agent.served_agent import served_agent
from tests.support.node.agui import agui
from tests.support.node.running import referees

__all__ = ("referees",)

VERSIONS = pytest.mark.parametrize("version", [1, 0])


@VERSIONS
async def test_a_message_gets_its_answer(referees: Path, version: int) -> None:
    async with served_agent(AgentLoop(ScriptedModel(answer("Hello, you.")))) as served:
        seen = await agui(referees, served, version, "t1", {"do": "say", "id": "m1", "content": "hi"}, {"do": "settle"})
        assert (seen.roles, seen.texts) == (["user", "assistant"], ["hi", "Hello, you."])
        assert [each["id"] for each in seen.messages] == ["m1", "t1.main.1#0.1"]
        finished = seen.events()[-1]
        assert finished["type"] == "RUN_FINISHED"
        assert finished["outcome"] == {"type": "success"}
        assert seen.warnings == []
