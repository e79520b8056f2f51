"""An agent whose model, tools and guard act at random, and disturb their own session meanwhile."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from lanebus import AssistantMessage, TextBlock, ToolCallBlock, Usage, UserMessage
from lanebus.agent import (
    AgentLoop,
    CompactionPolicy,
    Compactor,
    FunctionTool,
    ModelFailure,
    Reject,
    ToolReply,
    Warn,
    tool,
)
from lanebus.bus import RetryPolicy
from lanebus.handlers.agent import LoopLimits, ModelRequest, ToolContext
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.providers import Begun, ModelEvent, Piece
from tests.support.laws.disturbed import Life

__all__ = ("RUN_ONCE", "Wild")

RUN_ONCE = frozenset({"plain", "asks", "ends", "hands", "alone", "bad"})
"""tools that must not run again"""


class Wild:
    """The model, and everything that the loop needs."""

    provider, name, context_window = "wild", "wild-1", None

    def __init__(self, life: Life) -> None:
        self._life, self._random = life, life.random
        self.requests: list[ModelRequest] = []
        self.ran: Counter[tuple[str, str]] = Counter()
        """number of runs of each tool, by the call's key"""
        self._calls = 0
        self._counts_anew = self._random.random() < 0.4
        """True if the model's calls are named a, b, c in each answer"""
        self._tools = self._make_tools()
        choose = self._random.choice
        policy = CompactionPolicy(window=choose([None, 300]), reserve=50, keep_recent=20, attempts=2, pause=0)
        self.loop = AgentLoop(
            self,
            self._tools,
            system=choose([None, "Be brief."]),
            limits=LoopLimits(turns=choose([1, 2, 4, 20]), tokens=choose([None, None, 60, 120])),
            guards=choose([(), (), (self._guard,)]),
            retry=RetryPolicy(attempts=2, base=0),
            drain_seconds=0.01,
            compaction=choose([None, Compactor(self, policy)]),
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        self.requests.append(request)
        self._life.story.append("asked" if request.tools else "asked for a summary")
        yield Begun()
        await self._life.disturb()
        if self._random.random() < 0.7:
            yield Piece("text", "Well, ")
            await self._life.disturb(0.2)
        fate = 1.0 if self._life.is_quiet else self._random.random()
        if fate < 0.06:
            yield with_failure(_failed("busy"), ModelFailure(is_transient=True))
        elif fate < 0.09:
            raise ValueError("no model")
        elif fate < 0.11:
            return
        elif fate < 0.13:
            yield _failed("prompt is too long: 2000 tokens > 1000 maximum")
        elif fate < 0.6 and request.tools:
            yield self._calling()
        else:
            yield AssistantMessage(content=(TextBlock(text="Well, so it is."),), usage=self._usage())
            if fate < 0.65:
                raise ValueError("after all was said")

    def _calling(self) -> AssistantMessage:
        names = [self._random.choice([*(each.name for each in self._tools), "missing"]) for _ in "abc"]
        blocks: list[ToolCallBlock] = []
        for place, name in enumerate(names[: self._random.randint(1, 3)]):
            self._calls += 1
            blocks.append(ToolCallBlock(id="abc"[place] if self._counts_anew else f"c{self._calls}", name=name))
        if self._counts_anew and self._random.random() < 0.1:
            blocks.append(blocks[0])
        return AssistantMessage(
            content=tuple(blocks), stop_reason=self._random.choice(["toolUse", "stop", "length"]), usage=self._usage()
        )

    def _usage(self) -> Usage:
        return Usage(input=self._random.choice([1, 10, 280]), output=2, total_tokens=12)

    async def _guard(self, prompts: Sequence[UserMessage]) -> Reject | Warn | None:
        await self._life.disturb(0.1)
        number = int(prompts[-1].text_content().rpartition(" ")[2])
        if number % 5 == 0:
            return Reject("no fives")
        return Warn("a three") if number % 3 == 0 else None

    def _make_tools(self) -> tuple[FunctionTool, ...]:
        def make(name: str, reply: object = "ok") -> FunctionTool:
            async def run(context: ToolContext) -> object:
                self.ran[context.key, name] += 1
                self._life.story.append(f"{name} {context.key}")
                await self._life.disturb()
                if isinstance(reply, Exception):
                    raise reply
                return reply

            return tool(
                name=name,
                idempotent=name == "safe",
                on_unknown="ask" if name == "unsure" else "tell",
                approval=name in {"asks", "unsure"},
                sequential=name == "alone",
            )(run)

        return (
            *(make(name) for name in ("plain", "safe", "asks", "unsure", "alone")),
            make("ends", ToolReply("ok", terminate=True)),
            make("hands", ToolReply("ok", handoff="", terminate=True)),
            make("bad", ValueError("no")),
            make("odd", object()),
        )


def _failed(text: str) -> AssistantMessage:
    return AssistantMessage(stop_reason="error", error_message=text, usage=Usage(input=3, total_tokens=3))
