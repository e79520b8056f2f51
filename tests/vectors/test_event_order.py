"""What a turn tells of itself, in seed 001's order."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import UserMessage
from lanebus.agent import AgentLoop
from lanebus.codecs import EventWriter
from lanebus.context import build_context
from tests.support.agent.agents import ScriptedModel, answer, fresh_bus, log, messages, take_run
from tests.support.vectors.cases import Case, cases
from tests.support.vectors.native import Json, dumped

__all__ = ()


@cases("event_order")
async def test_a_turn_tells_of_itself_in_the_documented_order(case: Case) -> None:
    match case.given, case.expect:
        case (
            {"prompt": str() as prompt, "provider_reply": str() as reply},
            {
                "new_message_roles": roles,
                "context_len": length,
                "must_contain_events": needed,
                "documented_order": order,
            },
        ):
            async with fresh_bus() as bus:
                session = bus.session("s1")
                await session.publish(UserMessage.text(prompt))
                await AgentLoop(ScriptedModel(answer(reply)))(await take_run(session))
                assert [cast("Json", dumped(message))["role"] for message in await messages(session)] == roles
                assert len((await build_context(session)).messages) == length
                writer = EventWriter()
                told = [word(value) for entry in await log(session) for value in writer.write(entry).values]
            assert told == order
            assert {str(event) for event in cast("list[object]", needed)} <= {event.partition("(")[0] for event in told}
        case _:
            pytest.fail("no such case")


def word(event: JsonValue) -> str:
    match event:
        case {"type": str() as kind, "message": {"role": str() as role}} if kind.startswith("Message"):
            return f"{kind}({role})"
        case {"type": str() as kind}:
            return kind
        case other:
            pytest.fail(f"no event: {other}")
