"""Checks of an agent's model and tools when the agent is made, so that a mistake is reported before the first
session."""

import inspect
from collections.abc import Iterable

from lanebus.handlers.agent.errors import ModelRefused, ToolRefused

__all__ = ("check_model", "check_tools")

_TOOL = ("name", "spec", "idempotent", "on_unknown", "timeout", "is_sequential", "approval", "run")


def check_model(model: object) -> None:
    """Check that an object is a model.

    Raises:
        ModelRefused: the object is not a model.
    """
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


def check_tools(tools: Iterable[object]) -> None:
    """Check that all objects are tools.

    Raises:
        ToolRefused: one of the objects is not a tool.
    """
    for tool in tools:
        name = str(getattr(tool, "__name__", None) or type(tool).__name__)
        if inspect.isroutine(tool):
            raise ToolRefused(name, "is a function: decorate it with @tool")
        if isinstance(tool, type):
            raise ToolRefused(name, "is a class: pass an instance of it")
        missing = [each for each in _TOOL if not hasattr(tool, each)]
        if missing:
            raise ToolRefused(name, f"has no {', '.join(missing)}: decorate a function with @tool to make a tool")
