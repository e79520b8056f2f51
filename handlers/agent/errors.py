"""What can be wrong with an agent before it runs."""

from bus.errors import MissingExtra, SetupError

__all__ = ("AgentNotFound", "DuplicateTool", "MissingExtra")


class AgentNotFound(SetupError):
    """The text `module:attribute` leads to no agent.

    Fields: `target`, the text; `reason`, what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"no agent at {target!r}: {reason}")
        self.target, self.reason = target, reason


class DuplicateTool(SetupError):
    """Two tools of one agent have the same name, so a call would not say which is meant."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two tools are called {name!r}")
        self.name = name
