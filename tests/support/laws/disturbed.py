"""A session whose users, commands and kills come at places drawn from a seed, and the faults its log must not have.

They come during an answer, a tool or a guard, around any append, and while nothing runs.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from random import Random
from typing import cast

import anyio

from lanebus import (
    AssistantMessage,
    Envelope,
    ExtensionMessage,
    Lane,
    Receipt,
    Session,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus import agent as commands
from lanebus.agent import (
    AgentLoop,
    CompactionPolicy,
    Compactor,
    FunctionTool,
    ModelFailure,
    Reject,
    RunBounds,
    ToolReply,
    TryAgain,
    Warn,
    tool,
)
from lanebus.bus import Lease, RetryPolicy
from lanebus.bus.messages import (
    Abort,
    AgentEnded,
    AgentEvent,
    AgentStarted,
    ControlAnswered,
    Prune,
    Publishable,
    TurnEnded,
    parse_event,
)
from lanebus.context import Context, evolve
from lanebus.handlers.agent import Agent, LoopLimits, ModelRequest, Run, ToolContext
from lanebus.handlers.agent.models.model import with_failure
from lanebus.handlers.agent.turn.loop_state import CachedSession, SessionCache
from lanebus.handlers.projections import STATUS
from lanebus.handlers.providers import PROVIDERS, Begun, ModelEvent, Piece
from lanebus.projections import project

CANARY = "canary-e51b"
"""part of the reasons in commands, which only readers of the log may see"""

BOUNDS = RunBounds(watch_after_seconds=0.002)
"""an interrupt is noticed even during a short call"""

MOST_APPENDS, MOST_ROUNDS = 600, 60

_DEEDS = (
    *("say", "say", "follow", "steer", "steer now", "abort", "abort turn", "abort loop", "pause", "resume"),
    *("handoff", "compact", "approve", "approve", "deny", "sing"),
)


class Killed(BaseException):
    """The worker's process was killed."""


class Stuck(BaseException):
    """The session would never come to rest."""


class Life:
    """The life of one session."""

    def __init__(
        self,
        session: Session,
        random: Random,
        *,
        kills: bool,
        warm: SessionCache | None = None,
        bounds: RunBounds = BOUNDS,
    ) -> None:
        """`kills` says whether workers are killed; `warm` keeps the session in memory between its workers' runs."""
        self.session, self.random, self.kills, self._warm = session, random, kills, warm
        self.bounds = bounds
        """bounds of its workers' runs"""
        self.is_quiet = self.is_dead = False
        self.fuse = -1
        """number of appends until the worker dies; below 0 it does not"""
        self.appends = self.words = self.workers = 0
        self.story: list[str] = []

    async def say(self) -> None:
        """Publish a user's message with a new word."""
        await self.session.publish(self._word())

    async def disturb(self, chance: float = 0.35) -> None:
        """Perhaps disturb the session, and perhaps give the worker time to notice."""
        if self.is_quiet:
            return
        is_done = False
        while self.random.random() < chance:
            await self.deed()
            is_done = True
        if is_done:
            await anyio.sleep(self.random.choice([0, 0.03]))  # gives the worker time to listen, or not
        if self.kills and self.random.random() < 0.03:
            self.story.append("killed")
            self.is_dead = True
            raise Killed
        if self.kills and self.random.random() < 0.06:
            self.fuse = self.random.randint(0, 2)

    async def deed(self) -> None:
        """Let a user or a program publish something to the session."""
        session, kind = self.session, self.random.choice(_DEEDS)
        self.story.append(kind)
        match kind:
            case "say":
                await self.say()
            case "follow":
                await commands.follow_up(session, self._word())
            case "steer":
                await commands.steer(session, self._word(), by=CANARY)
            case "steer now":
                await commands.steer(session, self._word(), when="now", by=CANARY)
            case "abort":
                await commands.abort(session, reason=CANARY, by=CANARY)
            case "abort turn":
                await commands.abort(session, when="turn", reason=CANARY)
            case "abort loop":
                await commands.abort(session, loop_id=f"{session.id}.main.1", reason=CANARY)
            case "pause":
                await commands.pause(session, reason=CANARY, by=CANARY)
            case "resume":
                await commands.resume(session, by=CANARY)
            case "handoff":
                await commands.handoff(session, to=CANARY, reason=CANARY)
            case "compact":
                await commands.request_compaction(session, by=CANARY)
            case "sing":
                await session.publish(ExtensionMessage.of("control.sing", {"text": CANARY}))
            case _:
                await self._answer_a_call(is_approved=kind == "approve")

    async def work(self, agent: Agent) -> None:
        """Run workers until nothing is left to do, however often one is killed.

        Raises:
            Stuck: work was always left.
        """
        for _ in range(MOST_ROUNDS):
            self.workers += 1
            self.is_dead, self.fuse = False, -1
            lease = await self.session.acquire_lease("worker", 60)  # fences the previous lease of this owner
            assert lease is not None
            warm = nullcontext() if self._warm is None else self._warm.held(self.session.id)
            try:
                with warm as held:
                    return await self._work(agent, MortalRun(self, lease, held))
            except BaseException:
                if not self.is_dead:
                    raise
        raise Stuck(self.story[-40:])

    async def _work(self, agent: Agent, run: Run) -> None:
        for _ in range(MOST_ROUNDS):
            if not (await run.refresh()).loop_state.has_work:
                return
            try:
                await agent(run)
            except TryAgain:
                self.story.append("put off")
        raise Stuck(self.story[-40:])

    async def _answer_a_call(self, *, is_approved: bool) -> None:
        loop = (await project(self.session, STATUS)).state.loop
        if loop is None or not loop.calls_waiting:
            return
        call = self.random.choice([*loop.calls_waiting.values()])
        if is_approved:
            await commands.approve(self.session, call.turn_id, call.tool_call_id, by=CANARY)
        else:
            await commands.deny(self.session, call.turn_id, call.tool_call_id, reason=CANARY)

    def _word(self) -> UserMessage:
        self.words += 1
        return UserMessage.text(f"word {self.words}")


class MortalRun(Run):
    """A run whose worker dies when its life decides so; what the worker does afterwards has no effect."""

    def __init__(self, life: Life, lease: Lease, warm: CachedSession | None = None) -> None:
        super().__init__(cast("Session", _Mortal(life)), lease, warm, bounds=life.bounds)


class _Mortal:
    def __init__(self, life: Life) -> None:
        self._life = life

    def __getattr__(self, name: str) -> object:
        if self._life.is_dead:
            raise Killed
        return getattr(self._life.session, name)

    async def publish(
        self,
        *messages: Publishable,
        key: str | None = None,
        expected: int | None = None,
        epoch: int | None = None,
        wake: bool | None = None,
        seconds: float = 20.0,
    ) -> Receipt:
        life = self._life
        if life.is_dead:
            raise Killed
        life.appends += 1
        if life.appends > MOST_APPENDS:
            raise Stuck(life.story[-40:])
        is_last = life.fuse == 0
        life.fuse -= 1
        if is_last and life.random.random() < 0.5:
            life.is_dead = True
            raise Killed
        receipt = await life.session.publish(
            *messages, key=key, expected=expected, epoch=epoch, wake=wake, seconds=seconds
        )
        if is_last:
            life.is_dead = True
            raise Killed
        return receipt


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


@cache
def rules() -> Mapping[str, Callable[[object], None]]:
    """Return the rules of each provider. They import the SDKs' types, which takes seconds."""
    from tests.support.providers import anthropic_rules, gemini_rules, openai_chat_rules, openai_responses_rules

    return {
        "anthropic": anthropic_rules.require_legal,
        "gemini": gemini_rules.require_legal,
        "openai-chat": openai_chat_rules.require_legal,
        "openai-responses": openai_responses_rules.require_legal,
    }


def find_faults(entries: Sequence[Envelope], shown: set[str]) -> list[str]:
    """Return the faults of a session that is at rest and not halted.

    Args:
        entries: the session's log.
        shown: the users' words that were part of a model's request.
    """
    events = [(entry.position, event) for entry in entries if (event := _event(entry)) is not None]
    return [
        *_of_commands(entries, events),
        *_of_loops(entries, events),
        *_of_words(entries, events, shown),
        *(_of_contexts(entries) if entries else ()),
    ]


_Events = Sequence[tuple[int, AgentEvent]]


def _event(entry: Envelope) -> AgentEvent | None:
    return parse_event(entry.message) if isinstance(entry.message, ExtensionMessage) else None


def _of_commands(entries: Sequence[Envelope], events: _Events) -> Iterator[str]:
    sent = [e.position for e in entries if isinstance(e.message, ExtensionMessage) and e.message.is_control]
    answered = [event.control for _, event in events if isinstance(event, ControlAnswered)]
    if sent != answered:
        yield f"commands {sent} are answered as {answered}"


def _of_loops(entries: Sequence[Envelope], events: _Events) -> Iterator[str]:
    is_open: str | None = None
    began = [event.loop_id for _, event in events if isinstance(event, AgentStarted)]
    for position, event in events:
        match event:
            case AgentStarted(loop_id=loop):
                if is_open is not None or began.count(loop) > 1:
                    yield f"{position}: {loop} begins, {is_open} is open"
                is_open = loop
            case AgentEnded(loop_id=loop, usage=usage):
                if is_open != loop:
                    yield f"{position}: {loop} ends, {is_open} is open"
                is_open = None
                spent = _spent(entries, loop, position)
                if (spent.input, spent.output) != (usage.input, usage.output):
                    yield f"{position}: {loop} took {spent}, and says {usage}"
            case _:
                pass
    if is_open is not None:
        yield f"{is_open} is left open"
    turns = Counter(str(event.turn_id) for _, event in events if isinstance(event, TurnEnded))
    messages = [entry.message for entry in entries]
    results = Counter((str(m.turn_id), m.tool_call_id) for m in messages if isinstance(m, ToolResultMessage))
    yield from (f"{turn} ended {times} times" for turn, times in turns.items() if times > 1)
    yield from (f"{call} has {times} results" for call, times in results.items() if times > 1)


def _spent(entries: Sequence[Envelope], loop: str, before: int) -> Usage:
    usage = Usage()
    for entry in entries:
        message = entry.message
        if isinstance(message, AssistantMessage) and message.turn_id is not None and entry.position < before:
            usage = usage.combine(message.usage or Usage()) if message.turn_id.loop_id == loop else usage
    return usage


def _of_words(entries: Sequence[Envelope], events: _Events, shown: set[str]) -> Iterator[str]:
    """Return the words without an outcome: each word is shown to a model, aborted, rejected or left by a limit."""
    aborts = {e.position for e in entries if _is_abort(e)}
    over = [event.control for _, event in events if isinstance(event, ControlAnswered) and event.outcome == "applied"]
    ends = [*(position for position in over if position in aborts)]
    ends += [at for at, event in events if isinstance(event, AgentEnded) and event.stop_reason in _LIMITS]
    rejected = {position for e in entries if isinstance(e.message, Prune) for position in e.message.pruned}
    for entry in entries:
        message = entry.message
        if not isinstance(message, UserMessage) or message.turn_id is not None or message.text_content() in shown:
            continue
        if entry.position not in rejected and not any(end > entry.position for end in ends):
            yield f"{entry.position}: {message.text_content()} was shown to nobody"


_LIMITS = frozenset({"guardRail", "maxTurns"})


def _is_abort(entry: Envelope) -> bool:
    return isinstance(entry.message, ExtensionMessage) and entry.message.kind == Abort.KIND


def _of_contexts(entries: Sequence[Envelope]) -> Iterator[str]:
    """Check that every provider accepts the context at every position, and that it contains no word of a command."""
    context = Context(entries[0].session)
    for entry in entries:
        if entry.lane is not Lane.LLM:
            continue
        if CANARY in repr(entry.message):
            yield f"{entry.position}: what a command says stands in the LLM lane"
        context = evolve(context, entry)
        if not context.messages:
            continue
        for name, provider in PROVIDERS.items():
            try:
                rules()[name](provider.to_request(context, model="m").body)
            except AssertionError as error:
                yield f"{entry.position}: {name} does not take the context: {error}"
