"""What can be wrong with an agent before it runs, and what it tells its worker."""

from lanebus.bus.errors import BusError, MessageError, MissingExtra, SetupError
from lanebus.bus.messages.turn import TurnId

__all__ = (
    "AgentNotFound",
    "ApprovalRefused",
    "CostUnknown",
    "DuplicateAgent",
    "DuplicateTool",
    "MissingExtra",
    "ModelNotFound",
    "NoProgress",
    "ParameterRefused",
    "RequestUnknown",
    "TryAgain",
)


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
        super().__init__(f"two tools are called {name!r}: rename one, as by @tool(name=…)")
        self.name = name


class ParameterRefused(SetupError):
    """A tool's function has a parameter that no model can give: `*args` or `**kwargs`.

    Fields: `tool`, the function's name; `parameter`, as it is written.
    """

    def __init__(self, tool: str, parameter: str) -> None:
        super().__init__(
            f"tool {tool!r} has the parameter {parameter}, and a model gives arguments by name only: name each "
            "parameter; a decorator between needs functools.wraps"
        )
        self.tool, self.parameter = tool, parameter


class ApprovalRefused(SetupError):
    """A tool's `approval` is an async function, whose answer would be a coroutine and so always count as yes.

    Fields: `tool`, the tool's name.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(f"the approval of tool {tool!r} is async, which always counts as yes: make it a plain def")
        self.tool = tool


class CostUnknown(SetupError):
    """A cost limit could never be reached, as nobody knows what the model costs. Fields: `model`, its name."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"the cost limit needs the price of model {model!r}, which is not known: give the model `rates`, or "
            "install the price lists if they have it (pip install 'lanebus[cost]')"
        )
        self.model = model


class ModelNotFound(SetupError):
    """The text `api/name` leads to no model.

    Fields: `target`, the text; `known`, the names that may stand before the stroke.
    """

    def __init__(self, target: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no model at {target!r}: want one of {', '.join(known)}, a stroke and the model's name")
        self.target, self.known = target, known


class DuplicateAgent(SetupError):
    """Two agents of one tree have the same name, so a session that was begun for it would not say which is meant."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two agents are called {name!r}: give one another name")
        self.name = name


class TryAgain(BusError):
    """An agent tells its worker to come back to the session later, and to take others meanwhile.

    All that is needed to go on is in the log. Fields: `delay`, seconds; `reason`, for those who watch.
    """

    def __init__(self, delay: float, reason: str) -> None:
        super().__init__(f"again in {delay:.1f} s: {reason}")
        self.delay, self.reason = delay, reason


class NoProgress(BusError):
    """A step of a loop changed nothing in the log, so the next one would be the same for ever.

    Fields: `session`; `step`, what it was called.
    """

    def __init__(self, session: str, step: str) -> None:
        super().__init__(
            f"session {session!r}: the step {step} changes nothing: look at the agent's compaction, guards and tools"
        )
        self.session, self.step = session, step


class RequestUnknown(MessageError):
    """The log does not tell what a turn's model was asked.

    Fields: `session`, `turn_id`; `reason`, what is missing.
    """

    def __init__(self, session: str, turn_id: TurnId, reason: str) -> None:
        super().__init__(f"session {session!r}: the request of turn {turn_id} cannot be rebuilt: {reason}")
        self.session, self.turn_id, self.reason = session, turn_id, reason
