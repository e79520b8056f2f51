"""The views of the HTTP API beside the lanes."""

import json
from decimal import Decimal

import pytest

from lanebus.bus.messages import AssistantMessage, Cost, TextBlock, Usage, UserMessage
from lanebus.handlers.projections import Views
from lanebus.handlers.serve import compact
from lanebus.handlers.serve.api.turns import turns_view
from lanebus.handlers.serve.api.views import usage_view
from tests.support.agent.agents import fresh_bus

__all__ = ()


@pytest.mark.parametrize("total", [None, "0.0000001"])
async def test_usage_and_turns_have_the_cost_of_the_message_json(total: str | None) -> None:
    cost = None if total is None else Cost(input=Decimal("0.10"), total=Decimal(total), source="prices/1")
    usage = Usage(input=2, output=1, total_tokens=3, cost=cost)
    answer = AssistantMessage(content=(TextBlock(text="Hi"),), stop_reason="stop", usage=usage)
    async with fresh_bus() as bus:
        session = bus.session("s1")
        await session.publish(UserMessage.text("x"), answer)
        views = Views()
        wanted = {"cost": None, **json.loads(usage.to_json())}
        shown = json.loads(compact(await usage_view(views, session)))
        assert {name: shown[name] for name in wanted} == wanted
        (turn,) = json.loads(compact(await turns_view(views, session)))["turns"]
        assert turn["usage"] == wanted
