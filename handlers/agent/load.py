"""Find an agent by name, for the command line."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from lanebus.handlers.agent.errors import AgentNotFound
from lanebus.handlers.agent.run import Agent

__all__ = ("load_agent",)


def load_agent(target: str) -> Agent:
    """Return the agent at `module:attribute` or `path/to/file.py:attribute`.

    Modules are also searched in the current directory, or in the file's own directory. The directory is added to
    `sys.path`.

    Args:
        target: such as "my_package.agents:support". The attribute may be dotted.

    Raises:
        AgentNotFound: the text has another form, there is no such module, file or attribute, or it is not callable.
        Exception: any error that the module raises while it is imported.
    """
    module_name, _, attribute = target.rpartition(":")
    if not module_name or not attribute:
        raise AgentNotFound(
            target, "write module:attribute or path/to/file.py:attribute, such as lanebus.handlers.agent.demo:agent"
        )
    load = _load_file if module_name.endswith(".py") else _load_module
    found: object = load(target, module_name)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise AgentNotFound(target, f"{module_name!r} has no attribute {attribute!r}")
        found = cast("object", getattr(found, name))
    if not callable(found) or isinstance(found, type):
        raise AgentNotFound(target, f"{attribute!r} is no agent: use an AgentLoop or an async function of a Run")
    return cast("Agent", found)


def _load_module(target: str, name: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and one of its own imports is missing
        raise AgentNotFound(target, f"there is no module {error.name!r}") from None


def _load_file(target: str, name: str) -> ModuleType:
    path = Path(name).absolute()
    if not path.is_file():
        raise AgentNotFound(target, f"there is no file {name!r}")
    _search(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise AgentNotFound(target, f"{name!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _search(folder: Path) -> None:
    """Search a folder for modules first, as Python does with the folder of a script."""
    if str(folder) not in sys.path and not ("" in sys.path and folder == Path.cwd()):
        sys.path.insert(0, str(folder))
