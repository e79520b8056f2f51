"""Errors of an agent's set-up, and those that it raises to its worker."""

from lanebus.bus.errors import BusError, MessageError, MissingExtra, SetupError
from lanebus.bus.messages.turn import TurnId

__all__ = (
    "AgentNotFound",
    "ApprovalRefused",
    "CostUnknown",
    "DuplicateAgent",
    "DuplicateTool",
    "LoopHalted",
    "MissingExtra",
    "ModelNotFound",
    "NoProgress",
    "ParameterRefused",
    "RecorderMisused",
    "RequestUnknown",
    "TryAgain",
)


class AgentNotFound(SetupError):
    """`load_agent` found no agent at `module:attribute`.

    Fields: `target`, the text; `reason`, what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"no agent at {target!r}: {reason}")
        self.target, self.reason = target, reason


class DuplicateTool(SetupError):
    """Two tools of one agent have the same name, so a call would be ambiguous. Fields: `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two tools are called {name!r}: rename one, for example with @tool(name=…)")
        self.name = name


class ParameterRefused(SetupError):
    """A tool's function has a parameter that a model cannot pass: `*args` or `**kwargs`.

    Fields: `tool`, the function's name; `parameter`, as it is written.
    """

    def __init__(self, tool: str, parameter: str) -> None:
        super().__init__(
            f"tool {tool!r} has the parameter {parameter}, but a model passes arguments by name: name each parameter, "
            "and use functools.wraps in decorators"
        )
        self.tool, self.parameter = tool, parameter


class ApprovalRefused(SetupError):
    """A tool's `approval` is an async function. Its result, a coroutine, would always count as true.

    Fields: `tool`, the tool's name.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"the approval of tool {tool!r} is async, so its result counts as true: make it a plain function"
        )
        self.tool = tool


class CostUnknown(SetupError):
    """A cost limit could never be reached, as the model's price is unknown. Fields: `model`, its name."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"the cost limit needs the price of model {model!r}, which is unknown: pass `rates` to the model, or "
            "install the price lists if they have it (pip install 'lanebus[cost]')"
        )
        self.model = model


class ModelNotFound(SetupError):
    """`load_model` found no model at `api/name`.

    Fields: `target`, the text; `known`, the API names.
    """

    def __init__(self, target: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no model at {target!r}: write api/name, where api is one of {', '.join(known)}")
        self.target, self.known = target, known


class DuplicateAgent(SetupError):
    """Two agents of one tree have the same name, so a child session would be ambiguous. Fields: `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two agents are called {name!r}: rename one")
        self.name = name


class TryAgain(BusError):
    """Raised by an agent to have its worker run the session again after a delay. The worker runs others meanwhile.

    The log holds everything that the next run needs. Fields: `delay`, seconds; `reason`, recorded with the retry.
    """

    def __init__(self, delay: float, reason: str) -> None:
        super().__init__(f"try again in {delay:.1f} s: {reason}")
        self.delay, self.reason = delay, reason


class NoProgress(BusError):
    """A step of a loop did not change the log, so the loop would repeat it forever.

    Fields: `session`; `step`, the decision's name.
    """

    def __init__(self, session: str, step: str) -> None:
        super().__init__(
            f"session {session!r}: step {step} did not change the log: check the agent's compaction, guards and tools"
        )
        self.session, self.step = session, step


class LoopHalted(BusError):
    """A turn was to begin in a session that is paused, or handed to a person.

    Fields: `session`; `halted`, "paused" or "handoff".
    """

    def __init__(self, session: str, halted: str) -> None:
        super().__init__(
            f"session {session!r} is halted ({halted}): wait for work, which begins again once it is resumed"
        )
        self.session, self.halted = session, halted


class RecorderMisused(BusError):
    """A recorder was told what cannot be true, such as a tool call that the answer does not have. Nothing was recorded.

    Fields: `reason`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestUnknown(MessageError):
    """The request of a turn cannot be rebuilt from the log.

    Fields: `session`, `turn_id`; `reason`, what is missing.
    """

    def __init__(self, session: str, turn_id: TurnId, reason: str) -> None:
        super().__init__(f"session {session!r}: the request of turn {turn_id} cannot be rebuilt: {reason}")
        self.session, self.turn_id, self.reason = session, turn_id, reason
