"""The settings of an agent's loop, which all its steps share, and work that a command or a deadline can interrupt."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import NamedTuple, Protocol, TypeVar, cast

import anyio

from lanebus.bus import RetryPolicy
from lanebus.bus.errors import (
    InvalidArgument,
    Unavailable,
    require_all,
    require_count,
    require_instance,
    require_methods,
    require_seconds,
    require_text,
)
from lanebus.bus.messages import AgentStarted, UserMessage
from lanebus.handlers.agent.errors import ModelRefused, ToolRefused
from lanebus.handlers.agent.models.model import DEFAULT_MAX_TOKENS, SILENCE_SECONDS, Model
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.tool import Tool
from lanebus.handlers.agent.turn.decision import (
    DEFAULT_LIMITS,
    MODEL_RETRY,
    CompactContext,
    CompactionRule,
    Interrupt,
    LoopLimits,
    LoopStart,
    find_interrupt,
)
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.agent.turn.request import Definitions, Offer

# The clock of an agent's loop. Tests pass a clock of their own, so that they need not wait.


class Clock(Protocol):
    """A source of time that can also wait."""

    def time(self) -> float:
        """Return seconds UTC. The clock may be set forward or back."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. The wait can be cancelled."""
        ...


class SystemClock:
    """The clock of the machine."""

    def time(self) -> float:
        """See `Clock`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await anyio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


# The deadline of a running call: the time limit of its loop, or the longest silence of the call.


class Late(NamedTuple):
    """Why a call was cut."""

    text: str
    is_limit: bool
    """whether the loop's time limit was reached. False means that the call was silent for too long"""


class Deadline:
    """The time limit and the longest silence of one call."""

    def __init__(
        self, clock: Clock, *, left: float | None, reached: str = "", silence: float | None = None, name: str = ""
    ) -> None:
        """
        Args:
            left: seconds until the loop's time limit; None means no limit.
            reached: the text for a reached limit.
            silence: maximum number of seconds between two calls of `restart_silence`; None means no limit.
            name: subject of the text for a silence, such as "the model".
        """
        self._clock, self._silence, self._reached, self._name = clock, silence, reached, name
        self._last_activity = clock.monotonic()
        self._ends = None if left is None else self._last_activity + left

    @property
    def is_open(self) -> bool:
        """Whether the call may run forever: its time and its silence are unlimited."""
        return self._ends is None and self._silence is None

    def restart_silence(self) -> None:
        """Record that the call is active, so that its silence is counted from now."""
        self._last_activity = self._clock.monotonic()

    async def wait(self) -> Late:
        """Wait until the deadline and return its reason. Call this only if `is_open` is false."""
        while True:
            now = self._clock.monotonic()
            if self._ends is not None and now >= self._ends:
                return Late(self._reached, is_limit=True)
            if self._silence is not None and now >= self._last_activity + self._silence:
                return Late(f"{self._name} said nothing for {self._silence:g} s", is_limit=False)
            ends = [] if self._ends is None else [self._ends]
            if self._silence is not None:
                ends.append(self._last_activity + self._silence)
            await self._clock.sleep(min(ends) - now)


class InterruptWatch:
    """Watches for a command or deadline that interrupts work, and then cancels `scope`.

    The caller runs the work in `scope` and then calls `close`.
    """

    def __init__(self, run: Run, deadline: Deadline | None = None) -> None:
        """Start watching after `RunBounds.watch_after_seconds`.

        Args:
            deadline: also interrupts the work. None means no deadline.
        """
        self._run = run
        self.scope = anyio.CancelScope()
        self.interrupt: Interrupt | Late | None = None
        self.failure: Exception | None = None
        """the error that ended the watching; None while an unreachable server is retried"""
        self._watching: list[asyncio.Task[None]] = []
        self._deadline = deadline
        # No task group: work that ends at once then costs no task, and a timer cannot start a task in a group.
        self._timer = asyncio.get_running_loop().call_later(run.bounds.watch_after_seconds, self._begin)

    async def close(self) -> None:
        """Stop watching, and wait until the watching tasks have ended. The wait is shielded from cancellation."""
        self._timer.cancel()
        for task in self._watching:
            task.cancel()
        if self._watching:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._watching)

    def _begin(self) -> None:
        self._watching.append(asyncio.create_task(self._watch()))
        if self._deadline is not None and not self._deadline.is_open:
            self._watching.append(asyncio.create_task(self._watch_time(self._deadline)))

    async def _watch(self) -> None:
        try:
            # If the work refreshes the session itself, it may have read the command before this task started.
            self.interrupt = find_interrupt(self._run.snapshot.loop_state)
            while self.interrupt is None:
                try:
                    await self._run.wait_for_wake_up()
                    self.interrupt = find_interrupt((await self._run.refresh()).loop_state)
                except Unavailable:
                    await anyio.sleep(self._run.bounds.watch_pause_seconds)
        except Exception as error:  # noqa: BLE001  # raised by the caller
            self.failure = error
        self.scope.cancel()

    async def _watch_time(self, deadline: Deadline) -> None:
        late = await deadline.wait()
        if self.interrupt is None:
            self.interrupt = late
            self.scope.cancel()


async def until_interrupted(
    run: Run, work: Callable[[], Awaitable[None]], deadline: Deadline | None = None
) -> Interrupt | Late | None:
    """Run `work` until it ends, or until a command or `deadline` interrupts it.

    Interrupted work is cancelled, and its clean-up has ended before this function returns.

    Args:
        run: the run whose session is watched for commands, after `RunBounds.watch_after_seconds`.
        work: the async function to run.
        deadline: None means no deadline.

    Returns:
        The interrupt; None if the work ended without an interrupt.

    Raises:
        Exception: the error that `work` raised, not in a group.
        BusError: the log cannot be watched. While the server cannot be reached, watching is retried and the work
            continues, because the work may have cost money and may end before the server is back.
    """
    watch = InterruptWatch(run, deadline)
    try:
        with watch.scope:
            await work()
    finally:
        await watch.close()
    if watch.failure is not None:
        raise watch.failure
    return watch.interrupt


T = TypeVar("T")

_log = logging.getLogger(__name__)


async def end_task(task: asyncio.Future[T], name: str, *, seconds: float) -> bool:
    """Cancel a task and wait until the task has ended. Return whether it ended in time.

    The task is cancelled once, not at every await as a cancel scope would, so it can await its clean-up. The wait is
    shielded from cancellation. A task that does not end in time is cancelled once more and abandoned, so code that
    ignores cancellation does not block the caller.

    Args:
        task: a task that runs in no cancel scope of the caller.
        name: name of the code that the task runs, for the log.
        seconds: longest wait.
    """
    if not task.done():
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,), timeout=seconds)
    if task.done():
        return True
    _log.warning("%s did not end after it was cancelled, and is abandoned", name)
    task.cancel()
    task.add_done_callback(_forget)
    return False


def _forget(task: asyncio.Future[T]) -> None:
    """Retrieve the task's exception, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


# The settings of an agent's loop, which all its steps share, and their checks when the agent is made.


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
