"""Find an agent by name, for the command line."""

from typing import cast

from lanebus.handlers.agent.errors import AgentNotFound
from lanebus.handlers.agent.run import Agent
from lanebus.handlers.agent.set_up import is_sync
from lanebus.handlers.load import TargetNotFound, load_object

__all__ = ("load_agent",)


def load_agent(target: str) -> Agent:
    """Return the agent at `module:attribute` or `path/to/file.py:attribute`.

    For a module, the current directory is added to `sys.path`; for a file, the file's own directory is added.

    Args:
        target: such as "my_package.agents:support". The attribute may be dotted.

    Raises:
        AgentNotFound: the text has another form, there is no such module, file or attribute, or the object is not
            an agent: a plain `def`, for example.
        Exception: any error that the module raises while it is imported.
    """
    try:
        found = load_object(target, example="lanebus.handlers.agent.demo:agent")
    except TargetNotFound as error:
        raise AgentNotFound(target, error.reason) from None
    if not callable(found) or isinstance(found, type) or is_sync(found):
        name = target.rpartition(":")[2]
        raise AgentNotFound(target, f"{name!r} is no agent: use an AgentLoop or an async function of a Run")
    return cast("Agent", found)
