"""Find an agent by its name, for the command line."""

import importlib
import sys
from pathlib import Path
from typing import cast

from handlers.agent.errors import AgentNotFound
from handlers.agent.run import Agent

__all__ = ("load_agent",)


def load_agent(target: str) -> Agent:
    """The agent at `module:attribute`. The present directory counts as a place of modules.

    Raises:
        AgentNotFound: the text has another form, there is no such module or attribute, or it cannot be called.
        Exception: whatever the module raises while it is imported.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise AgentNotFound(target, "want module:attribute, such as handlers.agent.demo:agent")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and misses another one
        raise AgentNotFound(target, f"there is no module {error.name!r}") from None
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise AgentNotFound(target, f"{module_name!r} has no attribute {attribute!r}")
        found = cast("object", getattr(found, name))
    if not callable(found) or isinstance(found, type):
        raise AgentNotFound(target, f"{attribute!r} is no agent: want an AgentLoop or async function that takes a Run")
    return cast("Agent", found)
