"""Checks of an agent's model and tools when the agent is made, so that a mistake is reported before the first
session."""

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import cast

from lanebus.bus.errors import (
    InvalidArgument,
    require_all,
    require_count,
    require_instance,
    require_methods,
    require_seconds,
    require_text,
)
from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.handlers.agent.clock import require_clock
from lanebus.handlers.agent.errors import ModelRefused, ToolRefused
from lanebus.handlers.agent.limits import LoopLimits
from lanebus.handlers.agent.settings import LoopSettings

__all__ = ("check_guards", "check_limits", "check_model", "check_runnable", "check_settings", "check_tools", "is_sync")

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
    for field in ("provider", "name"):
        if not isinstance(getattr(model, field, None), str):
            raise ModelRefused(name, f'has no text as its {field!r}: set it, for example {field} = "my-{field}"')
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
    check_limits(settings.config, settings.limits, settings.clock)
    require_count("max_tokens", settings.max_tokens, least=1)
    require_instance("retry", settings.retry, RetryPolicy, "pass RetryPolicy(…)")
    require_seconds("drain_seconds", settings.drain_seconds)
    require_seconds("silence_seconds", settings.silence_seconds, is_optional=True)
    require_methods("compaction", settings.compaction, ("wants", "compact"), "pass Compactor(…)", is_optional=True)


def check_guards(guards: object) -> None:
    """Raise InvalidArgument if `guards` is not a list of functions."""
    require_all("guards", guards, object, _GUARDS)
    for guard in cast("Collection[object]", guards):
        if not callable(guard):
            raise InvalidArgument("guards", guard, _GUARDS)


def check_limits(config: object, limits: object, clock: object) -> None:
    """Raise InvalidArgument if `config`, `limits` or `clock` of an `AgentLoop` or `Recorder` is not valid."""
    require_text("config", config, is_filled=True)
    require_instance("limits", limits, LoopLimits, "pass LoopLimits(…)")
    require_clock(clock)
