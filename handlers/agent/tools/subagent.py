"""A tool that runs another agent in a session of its own, the child session.

The child's log begins with a link to the parent and the task. Any worker that knows the agent's name can run the child.
The result of the call is the child's last answer. Both logs contain the link, so each of the two sessions can be found
from the other.

The child's id is made from the parent's id and the call, and its first publish has an idempotency key. So a call that
is repeated after a crash waits for the same child, and no work is done twice. Stopping a worker does not stop a child.
Ending the parent's tool call does, see `cancel_children`.

Closing or erasing a parent does not affect its children. Children are ordinary sessions, which
`lanebus.handlers.projections.usage` finds.
"""

from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple, cast

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lanebus.bus import Session
from lanebus.bus.errors import (
    BusError,
    Conflict,
    Fenced,
    LogRolledBack,
    MessageError,
    SessionClosed,
    SessionErased,
    Unavailable,
    require_count,
    require_seconds,
    require_text,
)
from lanebus.bus.messages import (
    Abort,
    ExtensionMessage,
    SessionLinked,
    StopReason,
    ToolCallBlock,
    ToolEnded,
    ToolResultMessage,
    UserMessage,
    parse_event,
)
from lanebus.bus.text import describe_error
from lanebus.bus.wire import CLOSED, Cursor, ReservedKey, check_agent
from lanebus.handlers.agent.commands import ENDING_KINDS, LastAnswer, WorkEnd
from lanebus.handlers.agent.errors import ChildTaken, DuplicateAgent
from lanebus.handlers.agent.run import Agent, Run
from lanebus.handlers.agent.settings import check_runnable
from lanebus.handlers.agent.tools.tool import Tool, ToolContext
from lanebus.handlers.agent.tools.tool_call import failed, unknown
from lanebus.handlers.agent.turn.loop_state import CHILD_LOOP, OpenAnswer, SessionSnapshot
from lanebus.handlers.projections import Status
from lanebus.handlers.providers import ToolSpec

# The child session of a tool call: begin it, wait for its outcome, abort it.

_KEY = "session.linked"
_PARENT_CHARACTERS = 43
_DIGEST_BYTES = 10

_ANSWER_KINDS = ENDING_KINDS | {CLOSED}


class ChildOutcome(NamedTuple):
    """How a child session ended, and its last answer."""

    stop_reason: StopReason
    text: str
    """text of the child's last answer"""
    loop_id: str | None
    """id of the child's last loop; None if no loop began"""
    fault: str | None = None
    """why the child gave no answer; None if it gave one, or if no reason is recorded"""


def child_id(parent: str, key: str) -> str:
    """Return the id of a child session: the beginning of the parent's id, and a digest of `parent` and `key`.

    Args:
        key: identifies the tool call; unique in the parent.
    """
    digest = blake2b(f"{parent}\n{key}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{parent[:_PARENT_CHARACTERS]}-{digest}"


async def begin_child(child: Session, link: SessionLinked, task: str) -> None:
    """Publish a child's task and its link to the parent, once and in one step.

    The child's id can be predicted. So the link and the task must be its first entries: in a session that another
    client began, a foreign task would take the place of this one.

    Raises:
        ChildTaken: the session has entries that this call has not published. Nothing was published.
        SessionErased: the child was erased.
        BusError: as for `Session.publish`.
    """
    try:
        # The server finds a repeat by its key first, also in a child that has grown or was closed since.
        await child.publish(link.as_extension(), UserMessage.text(task), key=ReservedKey(_KEY), expected=0)
    except (Conflict, SessionClosed):
        raise ChildTaken(child.id) from None


async def wait_child(child: Session) -> ChildOutcome:
    """Wait for the outcome of a child session, and return it.

    A child that is paused or handed off is waited for, until it goes on or is aborted. The outcome of a child whose
    agent failed is an error.

    Raises:
        SessionClosed: the child was closed before its loop ended.
        SessionErased: the child was erased.
        LogRolledBack: the child's log has lost its newest entries. Call `wait_child` again.
        StreamError: as for `Session.follow`.
        Unavailable: as for `Session.follow`.
    """
    answer = LastAnswer()
    async with aclosing(child.follow(kinds=_ANSWER_KINDS)) as entries:
        async for envelope in entries:
            if (ended := answer.follow(envelope)) is not None:
                return _outcome(ended, answer)
            message = envelope.message
            if isinstance(message, ExtensionMessage) and message.kind == CLOSED and not envelope.is_imported:
                raise SessionClosed(child.id)
    raise AssertionError("follow ends only with an error")


async def abort_child(child: Session, link: SessionLinked, reason: str) -> None:
    """Publish an abort to a child, once. If the child has already ended, the abort is answered with the outcome "late".

    Raises:
        BusError: as for `Session.publish`, except for a closed session.
    """
    with suppress(SessionClosed):
        await child.publish(Abort(by=link.parent, reason=reason).as_extension(), key=ReservedKey(f"{_KEY}.abort"))


def _outcome(ended: WorkEnd, answer: LastAnswer) -> ChildOutcome:
    text = answer.message.text_content() if answer.message is not None else ""
    return ChildOutcome(ended.stop_reason, text, ended.loop_id, answer.fault(ended.stop_reason))


MAX_DEPTH = 3
MAX_CHILDREN = 8


class _Task(BaseModel):
    """The arguments of the tool."""

    model_config = ConfigDict(extra="forbid")

    task: Annotated[str, Field(min_length=1)]


class SubAgent:
    """A tool for `AgentLoop(model, tools)` that runs another agent."""

    idempotent = True
    on_unknown: Literal["tell"] = "tell"
    timeout: float | None = None
    """None: a time-out would end the call but not the child. Use the argument `seconds` to limit both"""
    is_sequential = False

    def __init__(
        self,
        name: str,
        agent: Agent | None,
        description: str,
        *,
        max_depth: int = MAX_DEPTH,
        max_children: int = MAX_CHILDREN,
        seconds: float | None = None,
    ) -> None:
        """
        Args:
            name: name of the tool and of the agent, `[A-Za-z0-9_.-]{1,64}`. The child sessions belong to this agent.
            agent: the agent; None if workers of another process run it.
            description: the tool's description for the model.
            max_depth: maximum number of ancestor sessions of a child; calls that would exceed this get an error.
            max_children: maximum number of calls of this tool in one turn; further calls get an error.
            seconds: longest time of a task; a child that takes longer is aborted. None means no limit.

        Raises:
            InvalidName: `name` does not match.
            InvalidArgument: another argument has a wrong type, or a number is too small.
        """
        if agent is not None:
            check_runnable("agent", agent)
        require_text("description", description)
        require_count("max_depth", max_depth)
        require_count("max_children", max_children, least=1)
        require_seconds("seconds", seconds, is_optional=True)
        self.name, self.agent = check_agent(name, "name"), agent
        self.max_depth, self.max_children, self.seconds = max_depth, max_children, seconds
        about = "All that the agent has to know: it sees nothing of this conversation."
        self.spec = ToolSpec(
            name,
            description,
            {
                "type": "object",
                "properties": {"task": {"type": "string", "description": about, "minLength": 1}},
                "required": ["task"],
                "additionalProperties": False,
            },
        )

    def approval(self, call: ToolCallBlock) -> bool:
        """Return False: starting a child needs no approval. The child's own tools may need approval."""
        del call
        return False

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Return an error result. `AgentLoop` calls `bound` first, and runs the tool that `bound` returns."""
        del context
        return failed(call, f"{self.name} only works in an agent's loop")

    def bound(self, run: Run, snapshot: SessionSnapshot, answer: OpenAnswer) -> Tool:
        """Return the tool with which the calls of one answer start child sessions."""
        return cast("Tool", _Bound(self, run, snapshot, answer))


def bound_tools(
    tools: Mapping[str, Tool], run: Run, snapshot: SessionSnapshot, answer: OpenAnswer
) -> Mapping[str, Tool]:
    """Return the tools for the calls of one answer, with sub-agents bound to that answer."""
    found: dict[str, Tool] = {}
    for name, tool in tools.items():
        each: object = tool
        found[name] = each.bound(run, snapshot, answer) if isinstance(each, SubAgent) else tool
    return found


def agents_of(tools: Iterable[object]) -> dict[str, Agent]:
    """Return the agents of sub-agent tools by name, including nested agents. A worker has to know all of these agents.

    Raises:
        DuplicateAgent: two agents have the same name.
    """
    found: dict[str, Agent] = {}
    for each in tools:
        if isinstance(each, SubAgent) and each.agent is not None:
            inner = cast("Mapping[str, Agent]", getattr(each.agent, "agents", {}))
            for name, agent in ((each.name, each.agent), *inner.items()):
                if found.setdefault(name, agent) is not agent:
                    raise DuplicateAgent(name)
    return found


class _Place(NamedTuple):
    """The index of a call."""

    in_answer: int
    of_same_tool: int


class _Bound:
    """A sub-agent's tool for the calls of one answer."""

    def __init__(self, tool: SubAgent, run: Run, snapshot: SessionSnapshot, answer: OpenAnswer) -> None:
        self._tool, self._run, self._answer = tool, run, answer
        self._begun = set[str]()
        """ids of the calls whose child session has the task, so that it may do its work"""
        above = snapshot.status.link
        self._depth = 1 if above is None else above.depth + 1
        self.name, self.spec = tool.name, tool.spec
        self.idempotent, self.on_unknown, self.timeout = tool.idempotent, tool.on_unknown, tool.timeout
        self.is_sequential, self.approval = tool.is_sequential, tool.approval

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Return the child's last answer."""
        try:
            task = _Task.model_validate({} if call.arguments is None else call.arguments).task
        except ValidationError:
            return failed(call, "Invalid arguments: task must be a non-empty text")
        place, tool = self._place(call), self._tool
        if self._depth > tool.max_depth:
            return failed(call, f"Agents are nested {tool.max_depth} deep already: do it without {call.name}.")
        if place.of_same_tool >= tool.max_children:
            return failed(call, f"{call.name} takes no more than {tool.max_children} tasks at once.")
        key = f"{context.turn_id}.{place.in_answer}"
        link = SessionLinked(
            parent=self._run.session.id,
            child=child_id(self._run.session.id, key),
            turn_id=context.turn_id,
            tool_call_id=call.id,
            agent=tool.name,
            depth=self._depth,
        )
        try:
            return await self._work(call, link, task, key)
        except Fenced:
            raise
        except BusError as error:
            if call.id not in self._begun:
                return failed(call, describe_error(error))
            return unknown(call, f"its session failed before a result came: {describe_error(error)}")

    async def _work(self, call: ToolCallBlock, link: SessionLinked, task: str, key: str) -> ToolResultMessage:
        child = self._run.session.sibling(link.child, agent=link.agent)
        with anyio.move_on_after(self._tool.seconds):
            return _result(call, await self._outcome(child, link, task, key))
        await abort_child(child, link, "it took too long")
        return unknown(call, f"it was stopped after {self._tool.seconds:g} s, before a result came")

    async def _outcome(self, child: Session, link: SessionLinked, task: str, key: str) -> ChildOutcome:
        while True:
            try:
                # Append the link to the parent's log before the child exists.
                await self._run.publish(link.as_extension(), key=ReservedKey(f"{key}.linked"))
                await begin_child(child, link, task)
                self._begun.add(link.tool_call_id)
                async with self._run.idle():
                    return await wait_child(child)
            except (Unavailable, LogRolledBack):
                await anyio.sleep(self._run.bounds.child_pause_seconds)

    def _place(self, call: ToolCallBlock) -> _Place:
        calls = self._answer.calls
        at = [each.id for each in calls].index(call.id)
        return _Place(at, sum(each.name == call.name for each in calls[:at]))


def _result(call: ToolCallBlock, outcome: ChildOutcome) -> ToolResultMessage:
    if outcome.stop_reason in {"stop", "length", "toolUse"}:
        result = ToolResultMessage.of(call, outcome.text)
    else:
        lines = [f"{call.name} ended without a result: {outcome.stop_reason}", outcome.fault, outcome.text]
        result = failed(call, "\n".join(line for line in lines if line))
    if outcome.loop_id is None:
        return result
    return result.model_copy(update={"metadata": {CHILD_LOOP: outcome.loop_id}})


_REASON = "the parent session no longer waits for it"

_LINK_KINDS = frozenset({SessionLinked.KIND, ToolEnded.KIND})


async def cancel_children(run: Run, status: Status) -> None:
    """Abort child sessions of the newest turn if their tool calls have ended without the child's result.

    An `Abort` or a `Steer` ends calls in this way. Call this function before the command is answered. If the worker
    then crashes, the next worker finds the command unanswered and calls the function again. A repeat adds nothing.

    Raises:
        Fenced: the lease was lost.
        BusError: a log cannot be read, or refuses an append.
    """
    loop = status.loop
    if loop is None or not loop.calls_started:
        return
    links: dict[str, SessionLinked] = {}
    orphans: list[SessionLinked] = []
    before = Cursor(min(loop.calls_started.values()) - 1)
    async with aclosing(run.session.read(kinds=_LINK_KINDS, after=before)) as entries:
        async for envelope in entries:
            match None if envelope.is_imported else _event(envelope.message):
                case SessionLinked(parent=run.session.id, turn_id=loop.turn) as link:
                    links[link.tool_call_id] = link
                case ToolEnded(turn_id=loop.turn, child_loop_id=None, tool_call_id=call) if call in links:
                    orphans.append(links[call])
                case _:
                    pass
    for link in orphans:
        try:
            await abort_child(run.session.sibling(link.child), link, _REASON)
        except SessionErased:
            continue


def _event(message: object) -> object:
    try:
        return parse_event(message) if isinstance(message, ExtensionMessage) else None
    except MessageError:
        return None
