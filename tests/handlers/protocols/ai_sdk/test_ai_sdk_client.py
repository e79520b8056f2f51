"""The clients of AI SDK 5, 6 and 7, unmodified, with `useChat`'s transport, on a real server and a real worker."""

from pathlib import Path

import pytest

from lanebus.handlers.agent.loop import AgentLoop
from tests.support.agent.agents import ScriptedModel, answer
from tests.support.agent.served_agent import served_agent
from tests.support.node.chat import chat, texts
from tests.support.node.running import referees

__all__ = ("referees",)

VERSIONS = pytest.mark.parametrize("version", [5, 6, 7])


@VERSIONS
async def test_a_message_gets_its_answer(referees: Path, version: int) -> None:
    model = ScriptedModel(answer("Hello, you."))
    async with served_agent(AgentLoop(model)) as served:
        seen = await chat(referees, served, version, "c1", {"do": "send", "text": "hi"}, {"do": "settle"})
        assert [each["role"] for each in seen.messages] == ["user", "assistant"]
        assert (seen.messages[-1]["id"], texts(seen)) == ("c1.main.1", ["Hello, you."])
        assert (seen.status, seen.errors, seen.replies) == ("ready", [], [[200, "v1"]])
