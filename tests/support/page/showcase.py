"""Sessions to show people: an agent that answers a customer with tools and an approval, among other sessions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal

import anyio

from lanebus import AssistantMessage, Bus, ExtensionMessage, SystemMessage, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import AgentLoop, tool
from lanebus.bus.messages import AgentStarted, Approve, ToolWaiting, TurnStarted
from lanebus.handlers.agent import ModelRequest, ToolContext, Worker, send
from lanebus.handlers.providers import ModelEvent, Piece
from lanebus.messages import Cost, ThinkingBlock, TurnId
from tests.support.agent.agents import wait_for
from tests.support.page.recorded import record_loops

SHOWN = "order-4711"

_POLICY = """Items that arrive **damaged** within 30 days are refunded in full:

1. Ask for a photo above $50.
2. Refund to the card that paid.
3. Never promise a date; banks take *3 to 5 days*."""
_ORDER = {
    "number": 4711,
    "status": "delivered",
    "delivered": "2026-11-19",
    "items": [{"sku": "LAMP-2", "name": "Desk lamp", "price": 49.0}, {"sku": "BULB-9", "name": "Bulb", "price": 6.5}],
    "paid": {"card": "•••• 1881", "total": 55.5},
}
_DONE = """I have refunded **$49.00** for the desk lamp to your card ending in 1881. Banks take 3 to 5 days to show it.

| Item | Paid | Refunded |
|---|---:|---:|
| Desk lamp | $49.00 | $49.00 |
| Bulb | $6.50 | – |

You may keep the lamp. Shall I send you a new one?"""


@dataclass
class _Model:
    """Answers from a script, with pauses."""

    answers: list[AssistantMessage]
    pace: float
    provider: str = "anthropic"
    name: str = "claude-sonnet-4-5"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield an answer word by word."""
        answer = self.answers.pop(0)
        await anyio.sleep(0.7 * self.pace)
        for index, block in enumerate(answer.content):
            match block:
                case ThinkingBlock(text=str(text)):
                    yield Piece("thinking", text, index)
                case TextBlock(text=text):
                    for word in text.split(" "):
                        yield Piece("text", word + " ", index)
                        await anyio.sleep(0.012 * self.pace)
                case _:
                    pass
        yield answer


def _answer(
    *content: TextBlock | ThinkingBlock | ToolCallBlock, fresh: int, cached: int, output: int
) -> AssistantMessage:
    calls = any(isinstance(block, ToolCallBlock) for block in content)
    dollars = (Decimal(3) * fresh + Decimal("0.3") * cached + Decimal(15) * output) / 1_000_000
    return AssistantMessage(
        content=content,
        stop_reason="toolUse" if calls else "stop",
        provider="anthropic",
        model="claude-sonnet-4-5",
        usage=Usage(
            input=fresh,
            cache_read=cached,
            output=output,
            total_tokens=fresh + cached + output,
            cost=Cost(total=dollars),
        ),
    )


def _agent(pace: float) -> AgentLoop:
    @tool
    async def get_order(context: ToolContext, number: int) -> dict[str, object]:
        """Look up an order."""
        await context.progress("Asking the warehouse")
        await anyio.sleep(0.35 * pace)
        return {**_ORDER, "number": number}

    @tool
    async def search_policy(query: str) -> str:
        """Search the shop's policies."""
        await anyio.sleep(0.9 * pace)
        return f"{_POLICY}\n\nFound for “{query}”."

    @tool(approval=True)
    async def refund(order: int, sku: str, amount: float) -> dict[str, object]:
        """Refund an item to the card that paid."""
        await anyio.sleep(0.6 * pace)
        return {"refund": "re_9f31", "order": order, "sku": sku, "amount": amount, "state": "pending"}

    look = ToolCallBlock(id="toolu_01", name="get_order", arguments={"number": 4711})
    search = ToolCallBlock(id="toolu_02", name="search_policy", arguments={"query": "item arrived broken"})
    pay = ToolCallBlock(id="toolu_03", name="refund", arguments={"order": 4711, "sku": "LAMP-2", "amount": 49.0})
    answers = [
        _answer(
            ThinkingBlock(text="I need the order and the policy for damaged items."),
            TextBlock(text="I am sorry about that. Let me look up your order and our policy."),
            *(look, search),
            **{"fresh": 1_840, "cached": 0, "output": 164},
        ),
        _answer(
            TextBlock(
                text="The lamp was delivered **5 days ago** and cost $49.00, so our policy allows a full refund."
            ),
            pay,
            **{"fresh": 655, "cached": 1_840, "output": 121},
        ),
        _answer(TextBlock(text=_DONE), fresh=212, cached=2_495, output=138),
        _answer(
            TextBlock(text="Yes: a new **Desk lamp** leaves our warehouse tomorrow. It is free of charge."),
            **{"fresh": 180, "cached": 2_707, "output": 44},
        ),
    ]
    return AgentLoop(_Model(answers, pace), (get_order, search_policy, refund), name="support")


@asynccontextmanager
async def showcase(bus: Bus, *, pace: float = 0) -> AsyncGenerator[None]:
    """Record the sessions. A worker serves them during the block.

    Args:
        bus: an empty bus.
        pace: how long models, tools and people take; 1 is as in life, and 0 is at once.
    """
    await _others(bus)
    session = bus.session(SHOWN)
    rules = SystemMessage.text("You help the customers of a lamp shop. Follow the policies. Be brief.")
    await session.publish(rules, agent="support")
    await session.publish(
        UserMessage.text("Order 4711 arrived today, and the desk lamp is broken. Can I get my money back?"),
        wake=True,
    )
    async with Worker(bus, _agent(pace), name="worker-1"):
        await wait_for(session, "agent.tool.waiting")
        await session.publish(
            ExtensionMessage.of("ticket", {"assignee": "maria", "priority": "high", "tags": ["refund", "damaged"]})
        )
        await anyio.sleep(1.6 * pace)
        waits = [e.message async for e in session.read(kinds={ToolWaiting.KIND})]
        assert isinstance(waits[0], ExtensionMessage)
        asked = ToolWaiting.read(waits[0].data)
        await send(session, Approve(turn_id=asked.turn_id, tool_call_id=asked.tool_call_id, by="maria"))
        await wait_for(session, "agent.ended")
        await session.publish(UserMessage.text("Yes, please!"), wake=True)
        await wait_for(session, "agent.ended", 2)
        yield


async def _others(bus: Bus) -> None:
    for name, question, loops in (
        ("vat-research", "Which EU countries changed their VAT on books this year?", 6),
        ("release-notes", "Write the notes of release 2.4 from the merged changes", 3),
        ("nightly-report", "Summarise yesterday's sales for the team", 2),
    ):
        await bus.session(name).publish(UserMessage.text(question), agent="support")
        await record_loops(bus.session(name), loops=loops, turns=4, failed=3 if name == "release-notes" else None)
    waiting, loop = bus.session("clean-up"), "clean-up.main.1"
    turn = TurnId(loop_id=loop, turn_index=0)
    await waiting.publish(
        UserMessage.text("Delete the branches that were merged"),
        AgentStarted(loop_id=loop, agent="agent").as_extension(),
        TurnStarted(turn_id=turn, trigger="user").as_extension(),
        AssistantMessage(
            turn_id=turn, content=(ToolCallBlock(id="c1", name="delete_branches", arguments={"merged": True}),)
        ),
        ToolWaiting(turn_id=turn, tool_call_id="c1", tool_name="delete_branches").as_extension(),
        agent="support",
    )
