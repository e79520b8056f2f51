"""Errors of an agent's set-up, errors that an agent raises to its worker, and errors of `ask`."""

from difflib import get_close_matches
from typing import Literal, NamedTuple

from lanebus.bus.errors import BusError, MessageError, SetupError, StreamError
from lanebus.bus.messages import StopReason, ToolWaiting, TurnId


class CallDecided(StreamError):
    """Another command has approved or denied the tool call first. The new command was not published.

    Fields: `session`; `tool_call_id`; `decision`, "approve" or "deny"; `by`, the sender of the first command, or None;
    `position`, that of the first command.
    """

    def __init__(
        self, session: str, tool_call_id: str, decision: Literal["approve", "deny"], by: str | None, position: int
    ) -> None:
        done = {"approve": "approved", "deny": "denied"}[decision]
        super().__init__(
            f"session {session!r}: the call {tool_call_id!r} was already {done}{f' by {by}' if by else ''}, "
            f"at position {position}",
            "look at the session again: the first decision counts",
        )
        self.session, self.tool_call_id, self.decision, self.by = session, tool_call_id, decision, by
        self.position = position


class AgentNotFound(SetupError):
    """`load_agent` found no agent at `module:attribute`.

    Fields: `target`, the text; `reason`, what is missing.
    """

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(
            f"no agent at {target!r}: {reason}", "write module:attribute or path/to/file.py:attribute of an agent"
        )
        self.target, self.reason = target, reason


class ToolRefused(SetupError):
    """An object in the `tools` of an agent is not a tool, most often a function without `@tool`.

    Fields: `tool`, the name of the function, class or type; `reason`, what to change.
    """

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool!r} in `tools` is not a tool: it {reason}")
        self.tool, self.reason = tool, reason


class ModelRefused(SetupError):
    """The object passed as an agent's model is not a model: it lacks a name or provider, or its `stream` is not an
    async generator.

    Fields: `model`, the name of its class; `reason`, what to change.
    """

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"the model {model!r} {reason}")
        self.model, self.reason = model, reason


class DuplicateTool(SetupError):
    """Two tools of one agent have the same name, so a call would be ambiguous. Fields: `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two tools are called {name!r}", "rename one, for example with @tool(name=…)")
        self.name = name


class ParameterRefused(SetupError):
    """A tool's function has a parameter that a model cannot pass: `*args` or `**kwargs`.

    Fields: `tool`, the function's name; `parameter`, the parameter as it is written.
    """

    def __init__(self, tool: str, parameter: str) -> None:
        super().__init__(
            f"tool {tool!r} has the parameter {parameter}, but a model passes arguments by name",
            "name each parameter, and use functools.wraps in decorators",
        )
        self.tool, self.parameter = tool, parameter


class ApprovalRefused(SetupError):
    """A tool's `approval` is async, or takes a parameter that the tool does not have.

    Fields: `tool`, the tool's name; `reason`, what to change.
    """

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"the approval of tool {tool!r} {reason}")
        self.tool, self.reason = tool, reason


class OptionUnknown(SetupError):
    """A tool or model was made with an option that does not exist, most often a misspelt one.

    Fields: `tool`, the name of the tool or model; `option`, the name that was passed; `known`, the valid options, most
    similar first.
    """

    def __init__(self, tool: str, option: str, known: tuple[str, ...], *, of: str = "tool") -> None:
        near = get_close_matches(option, known)
        hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}"
        super().__init__(f"{of} {tool!r} has the unknown option {option!r}", hint)
        self.tool, self.option = tool, option
        self.known = (*near, *(each for each in known if each not in near))


class CostUnknown(SetupError):
    """A cost limit is set, but could never be reached because the model's price is unknown. Fields: `model`, its
    name."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"the cost limit needs the price of model {model!r}, which is unknown",
            "pass `rates` to the model, or install the price lists if they have it (pip install 'lanebus[cost]')",
        )
        self.model = model


class ModelNotFound(SetupError):
    """`load_model` found no model at `api/name`.

    Fields: `target`, the text; `known`, the API names.
    """

    def __init__(self, target: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no model at {target!r}", f"write api/name, where api is one of {', '.join(known)}")
        self.target, self.known = target, known


class MissingKey(SetupError):
    """The client of a model's provider found no key to log in with.

    Fields: `provider`, such as "openai"; `variable`, the environment variable that may hold the key.
    """

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(
            f"the client of {provider} found no key",
            f"set {variable} in the environment of the process, or pass `client=` with a client that has one",
        )
        self.provider, self.variable = provider, variable


class DuplicateAgent(SetupError):
    """Two agents, including sub-agents, have the same name, so a child session would be ambiguous. Fields: `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two agents are called {name!r}", "rename one")
        self.name = name


class TryAgain(BusError):
    """Raised by an agent to have its worker run the session again after a delay. The worker runs other sessions
    meanwhile.

    The log holds everything that the next run needs. Fields: `delay`, seconds; `reason`, recorded with the retry.
    """

    def __init__(self, delay: float, reason: str) -> None:
        super().__init__(f"try again in {delay:.1f} s: {reason}")
        self.delay, self.reason = delay, reason


class NoProgress(BusError):
    """A step of a loop did not change the log, so the loop would repeat the step forever.

    Fields: `session`; `step`, the decision's name.
    """

    def __init__(self, session: str, step: str) -> None:
        super().__init__(
            f"session {session!r}: step {step} did not change the log", "check the agent's compaction, guards and tools"
        )
        self.session, self.step = session, step


class LoopHalted(BusError):
    """A turn cannot begin, because the session is paused or handed to a person.

    Fields: `session`; `halted`, "paused" or "handoff".
    """

    def __init__(self, session: str, halted: str) -> None:
        super().__init__(
            f"session {session!r} is halted ({halted})", "wait for work, which begins again once it is resumed"
        )
        self.session, self.halted = session, halted


class RecorderMisused(BusError):
    """A recorder was called in a wrong order, or for a tool call that the answer does not have. Nothing was recorded.

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


class RequestDamaged(MessageError):
    """The recorded tools and options of a turn's request do not match their hash, so the request cannot be rebuilt.

    Another client wrote or changed the event `agent.request.defined`, or the bus's `redact` function changed it.

    Fields: `session`, `turn_id`; `hash`, the hash in the log.
    """

    def __init__(self, session: str, turn_id: TurnId, hash: str) -> None:
        super().__init__(
            f"session {session!r}: the tools and options of turn {turn_id} do not match their hash {hash[:64]!r}",
            "leave the events `agent.request.defined` as they are in `redact`, and keep other clients out of the log",
        )
        self.session, self.turn_id, self.hash = session, turn_id, hash


class ChildTaken(StreamError):
    """A sub-agent was not started, because the session with the child's id was begun by another client.

    Fields: `session`, the child's id.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} has entries of another client", "erase it, then call the sub-agent again"
        )
        self.session = session


class Delay(NamedTuple):
    """Why an answer has not come yet, as far as the server told."""

    cause: Literal["unserved", "running", "waiting", "unknown"]
    """"unserved": no live worker serves the session's agent. "running": a turn of the session runs. "waiting": a live
    worker serves the agent, and no turn runs. "unknown": the server did not answer"""
    text: str = ""
    """the cause in words; empty if it is unknown"""


UNKNOWN_DELAY = Delay("unknown")


class Unanswered(BusError):
    """`ask` returned no answer. The user message stays in the log. Each subclass stands for one reason.

    Fields: `session`; `position`, the position of the user message.
    """

    def __init__(self, session: str, position: int, text: str, remedy: str, *, what: str = "message") -> None:
        super().__init__(f"session {session!r}: the {what} at position {position} {text}", remedy)
        self.session, self.position = session, position


class LoopFailed(Unanswered):
    """The loop that had to answer failed, reached a limit, or was stopped by a guard.

    Fields: the fields of `Unanswered`; `stop_reason`, "error", "maxTurns" or "guardRail"; `reason`, the text in the
        log.
    """

    def __init__(self, session: str, position: int, stop_reason: StopReason, reason: str) -> None:
        super().__init__(session, position, f"got no answer: {reason}", "ask again under a new key once that is fixed")
        self.stop_reason, self.reason = stop_reason, reason


class LoopAborted(Unanswered):
    """The loop that had to answer was aborted by a command. Fields: the fields of `Unanswered`."""

    def __init__(self, session: str, position: int) -> None:
        super().__init__(session, position, "was aborted", "ask again under a new key if you still want an answer")


class PersonNeeded(Unanswered):
    """The answer waits for a person: a tool call has to be approved, or the session was paused or handed off.

    Fields: the fields of `Unanswered`; `waiting`, the events of the tool calls to approve or deny; empty if the session
    has to be resumed.
    """

    def __init__(self, session: str, position: int, waiting: tuple[ToolWaiting, ...]) -> None:
        names = ", ".join(f"{each.tool_name} ({each.tool_call_id})" for each in waiting)
        todo = f"approve or deny {names}" if waiting else "resume the session"
        super().__init__(session, position, "waits for a person", f"{todo}, then ask again with the same key")
        self.waiting = waiting


class AnswerTimeout(Unanswered):
    """The answer to a message or to a command did not come in time. The loop continues.

    Fields: the fields of `Unanswered`; `seconds`, the limit; `delay`, why there is no answer yet, as far as the server
        told.
    """

    def __init__(
        self,
        session: str,
        position: int,
        seconds: float,
        delay: Delay = UNKNOWN_DELAY,
        *,
        what: Literal["message", "command"] = "message",
    ) -> None:
        again = "ask again with the same key" if what == "message" else "wait for it again, as it stays in the log"
        remedies = {
            "unserved": f"start a worker for this agent, then {again}",
            "running": f"wait longer: {again}",
            "waiting": f"wait longer: {again}",
            "unknown": f"{again}, and check that a worker runs",
        }
        text = f"was not answered within {seconds:g} s{delay.text and f': {delay.text}'}"
        super().__init__(session, position, text, remedies[delay.cause], what=what)
        self.seconds, self.delay = seconds, delay
