"""The settings of an agent's loop, which all its steps share, and their checks when the agent is made."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import NamedTuple, Protocol, cast

from lanebus.bus import RetryPolicy
from lanebus.bus.errors import (
    InvalidArgument,
    require_all,
    require_count,
    require_instance,
    require_methods,
    require_seconds,
    require_text,
)
from lanebus.bus.messages import AgentStarted, UserMessage
from lanebus.handlers.agent.errors import ModelRefused, ToolRefused
from lanebus.handlers.agent.interrupt import SYSTEM_CLOCK, Clock
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, SILENCE_SECONDS, Model
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool import Tool
from lanebus.handlers.agent.turn.decision import (
    DEFAULT_LIMITS,
    MODEL_RETRY,
    CompactContext,
    CompactionRule,
    LoopLimits,
    LoopStart,
)
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.agent.turn.request import Definitions, Offer

# Guards check user messages before the model reads them.


class Reject(NamedTuple):
    """Result of a guard: remove the messages from the context, and end the loop for this reason."""

    reason: str


class Warn(NamedTuple):
    """Result of a guard: accept the messages, and append this text after them as a note to the model."""

    text: str


Guard = Callable[[Sequence[UserMessage]], Awaitable[Reject | Warn | None]]
"""An async function that checks the user messages that no model has read yet. The guard returns None to accept the
messages. After a crash the guard may be called with the same messages again."""


class GuardVerdict(NamedTuple):
    """The combined verdict of all guards."""

    rejection: str | None
    """reason of the first rejection"""
    warnings: tuple[str, ...]


async def ask_guards(guards: Sequence[Guard], prompts: Sequence[UserMessage]) -> GuardVerdict:
    """Call the guards in order, up to the first one that rejects.

    Raises:
        InvalidArgument: a guard is not async, or returned something else than a verdict.
        Exception: any error that a guard raises.
    """
    warnings: list[str] = []
    for guard in guards if prompts else ():
        answer: object = guard(prompts)
        if not isawaitable(answer):
            raise InvalidArgument("guards", guard, "make the guard an `async def`")
        verdict: object = await answer
        match verdict:
            case Reject(reason=str() as reason):
                return GuardVerdict(reason, ())
            case Warn(text=str() as text):
                warnings.append(text)
            case None:
                pass
            case _:  # not taken for None: the guard may have meant to reject
                name = f"{getattr(guard, '__name__', type(guard).__name__)}(…)"
                raise InvalidArgument(name, verdict, "a guard returns Reject(reason), Warn(text) or None")
    return GuardVerdict(None, tuple(warnings))


class ContextCompactor(CompactionRule, Protocol):
    """Replaces the older part of a context by a summary."""

    async def compact(self, run: Run, snapshot: SessionSnapshot, step: CompactContext, /) -> None:
        """Compact once: end an open loop as `contextCompacted`, and answer `step.command` if there is one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """The arguments of `AgentLoop`, which documents them."""

    model: Model
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    system: str | None = None
    name: str = "agent"
    config: str = "main"
    limits: LoopLimits = DEFAULT_LIMITS
    max_tokens: int = DEFAULT_MAX_TOKENS
    guards: Sequence[Guard] = ()
    retry: RetryPolicy = MODEL_RETRY
    drain_seconds: float = 2.0
    silence_seconds: float | None = SILENCE_SECONDS
    clock: Clock = SYSTEM_CLOCK
    compaction: ContextCompactor | None = None
    definitions: Definitions = field(default_factory=Definitions, compare=False, repr=False)

    def offer(self) -> Offer:
        """Return the tools and options of a request made now. Tools may change their specs between calls."""
        return self.definitions.offer(self.model, [tool.spec for tool in self.tools.values()], self.max_tokens)

    def name_in(self, run: Run) -> str:
        """Return the agent's name in events and traces: that of the session's agent, else its own."""
        return run.lease.agent or self.name

    def started(self, run: Run, loop_id: str, start: LoopStart) -> AgentStarted:
        """Return the event that records the beginning of a loop."""
        return AgentStarted(
            loop_id=loop_id,
            agent=self.name_in(run),
            parent_loop_id=start.parent,
            continuation=start.continuation,
            config={
                "provider": self.model.provider,
                "model": self.model.name,
                "tools": [*self.tools],
                "maxTurns": self.limits.turns,
                "maxTokens": self.max_tokens,
            },
        )


# Checks of an agent's model and tools when the agent is made, so that a mistake is reported before the first
# session.

_GUARDS = "pass a list of async functions"
_TOOL = ("name", "spec", "idempotent", "on_unknown", "timeout", "is_sequential", "approval", "run")


def check_model(model: object) -> None:
    """Check that an object is a model.

    Raises:
        InvalidArgument: the object is a text.
        ModelRefused: the object is not a model.
    """
    if isinstance(model, str):
        target = model if "/" in model else f"anthropic/{model}"
        raise InvalidArgument("model", model, f'pass a model, such as load_model("{target:.60}")')
    if isinstance(model, type):
        raise ModelRefused(model.__name__, "is a class: pass an instance of it")
    name = type(model).__name__
    for text in ("provider", "name"):
        if not isinstance(getattr(model, text, None), str):
            raise ModelRefused(name, f'has no text as its {text!r}: set it, for example {text} = "my-{text}"')
    stream: object = getattr(model, "stream", None)
    if not callable(stream):
        raise ModelRefused(name, "has no method 'stream': write `async def stream(self, request)` with `yield`")
    if inspect.iscoroutinefunction(stream):
        raise ModelRefused(name, "returns its answer from 'stream': yield each event, with `yield` in `async def`")
    if inspect.isgeneratorfunction(stream):
        raise ModelRefused(name, "has a sync 'stream': make it an async generator, with `yield` in `async def`")


def check_tools(tools: object, kinds: tuple[type, ...] = ()) -> None:
    """Check that an argument `tools` is a list of tools.

    Args:
        tools: the value to check.
        kinds: classes whose objects are valid too.

    Raises:
        InvalidArgument: `tools` is not a list, most often because it is a single tool.
        ToolRefused: one of the objects is not a tool.
    """
    require_all("tools", tools, object, "pass a list of tools, such as tools=[add]")
    for tool in cast("Collection[object]", tools):
        if not isinstance(tool, kinds):
            _check_tool(tool)


def _check_tool(tool: object) -> None:
    name = str(getattr(tool, "__name__", None) or type(tool).__name__)
    if inspect.isroutine(tool):
        raise ToolRefused(name, "is a function: decorate it with @tool")
    if isinstance(tool, type):
        raise ToolRefused(name, "is a class: pass an instance of it")
    missing = [each for each in _TOOL if not hasattr(tool, each)]
    if missing:
        raise ToolRefused(name, f"has no {', '.join(missing)}: decorate a function with @tool to make a tool")


def check_runnable(argument: str, agent: object) -> None:
    """Raise InvalidArgument if a worker cannot run this object.

    Args:
        argument: the argument's name, for the error.
        agent: the value to check.
    """
    if isinstance(agent, type) or not callable(agent):
        raise InvalidArgument(argument, agent, "pass an AgentLoop(…), or an async function of a Run")
    if is_sync(agent):
        raise InvalidArgument(argument, agent, "define it with `async def`: a worker awaits its agent")


def is_sync(agent: object) -> bool:
    """Return whether an agent is a function that cannot be awaited: a plain `def`, or a generator.

    A plain `def` whose return type is annotated may return an awaitable, and so may a lambda and a wrapper of an async
    function (`functools.wraps`). A worker checks what these return.
    """
    while isinstance(agent, partial):
        agent = cast("partial[object]", agent).func
    if not inspect.isroutine(agent):
        agent = getattr(agent, "__call__", agent)  # noqa: B004  # the method is inspected
    function = inspect.unwrap(cast("Callable[..., object]", agent))
    if inspect.iscoroutinefunction(function):
        return False
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return True
    code = getattr(function, "__func__", function)
    returns = getattr(code, "__annotations__", {}).get("return")
    return inspect.isfunction(code) and code.__name__ != "<lambda>" and returns in {None, "None"}


def check_settings(settings: LoopSettings) -> None:
    """Raise InvalidArgument if an argument of `AgentLoop` is not valid. The model and the tools are not checked."""
    require_text("system", settings.system, is_optional=True)
    require_text("config", settings.config, is_filled=True)
    require_count("max_tokens", settings.max_tokens, least=1)
    # Only a failure or a full context uses these, so a wrong object would be noticed late.
    require_instance("retry", settings.retry, RetryPolicy, "pass RetryPolicy(…)")
    require_methods("compaction", settings.compaction, ("wants", "compact"), "pass Compactor(…)", is_optional=True)
    require_seconds("drain_seconds", settings.drain_seconds)
    require_seconds("silence_seconds", settings.silence_seconds, is_optional=True)


def check_guards(guards: object) -> None:
    """Raise InvalidArgument if `guards` is not a list of functions."""
    require_all("guards", guards, object, _GUARDS)
    for guard in cast("Collection[object]", guards):
        if not callable(guard):
            raise InvalidArgument("guards", guard, _GUARDS)
