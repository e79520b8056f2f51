"""A tool: what the loop asks of one, and the typed Python function that is one."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypedDict, Unpack, cast, overload

from anyio.to_thread import run_sync

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.message import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.agent.errors import ApprovalRefused
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tools.parameters import Function, Parameters
from lanebus.handlers.agent.tools.tool_reply import ToolReply, failed, result_of
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("TOOL_SECONDS", "FunctionTool", "OnUnknown", "Tool", "ToolContext", "ToolReply", "failed", "tool")

OnUnknown = Literal["tell", "ask"]
"""What is done with a call that was started and whose outcome nobody knows. tell: the model is told so. ask: a person
says whether it is run again."""

TOOL_SECONDS = 600.0
"""how long a call of a function may take, unless its tool says otherwise"""

Approval = bool | Callable[[Mapping[str, object]], bool]
"""Whether a person is asked before a call is run; a function is given the arguments, read as their types."""


class _Progress(Protocol):
    async def __call__(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Which call this is. A tool whose first parameter is annotated with this class is handed it."""

    session: str
    turn_id: TurnId
    call_id: str
    """the provider's; another turn may have one of the same name"""
    progress: _Progress
    """tells the user how far it is; best effort, and no part of the result. Once the call is over it does nothing.
    From a sync function: `anyio.from_thread.run(context.progress, "half")`"""
    place: int = 0
    """of the call among those of its turn, from 0"""
    attempt: int = 1
    """counts how often this call was started"""
    origin: TurnId | None = None
    """the turn in which the model made the call, if a later one goes on with it"""
    run: Run | None = None
    """the run that calls the tool, for one that is a part of the agent itself"""

    @property
    def key(self) -> str:
        """Names this call and no other one, the same at every attempt: for what it does outside, so that doing it again
        changes nothing."""
        return f"{self.origin or self.turn_id}.{self.place}"


class Tool(Protocol):
    """What a model may call. `tool` makes one of a function."""

    @property
    def name(self) -> str:
        """What the model calls it."""
        ...

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        ...

    @property
    def idempotent(self) -> bool:
        """To run a call again does no harm, under the same `ToolContext.key`. A call that was being run when its worker
        was lost is run again only then."""
        ...

    @property
    def on_unknown(self) -> OnUnknown:
        """What is done with such a call where the tool is not idempotent."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take. None is as long as it likes: the loop's time limit does not stop it either."""
        ...

    @property
    def is_sequential(self) -> bool:
        """Runs alone: after the calls that run side by side, in the order of the calls."""
        ...

    def approval(self, call: ToolCallBlock) -> bool:
        """Whether a person is asked before the call is run."""
        ...

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """The call's result. Whatever goes wrong is a result too, marked as an error.

        It may be cancelled at any await, and has a moment then to clean up; a result that it still gives counts.
        """
        ...


class _Options(TypedDict, total=False):
    """`tool` says what they mean."""

    name: str | None
    description: str | None
    idempotent: bool
    on_unknown: OnUnknown
    approval: Approval
    timeout: float | None
    sequential: bool


class FunctionTool:
    """A function, and the schema of its arguments. Made by `tool`."""

    def __init__(self, function: Function, **options: Unpack[_Options]) -> None:
        """
        Args:
            options: as for `tool`.

        Raises:
            NameError: an annotation names what does not exist.
            ParameterRefused: a parameter takes any number of arguments.
            ApprovalRefused: `approval` is an async function.
        """
        self._function = function
        self._parameters = Parameters(function, ToolContext)
        name, description = options.get("name"), options.get("description")
        self.spec = ToolSpec(
            name or str(getattr(function, "__name__", "tool")),
            self._parameters.description if description is None else description,
            self._parameters.schema,
        )
        self.idempotent: bool = options.get("idempotent", False)
        self.on_unknown: OnUnknown = options.get("on_unknown", "tell")
        self.timeout: float | None = options.get("timeout", TOOL_SECONDS)
        self.is_sequential: bool = options.get("sequential", False)
        self._approval: Approval = options.get("approval", False)
        if _is_async(self._approval):
            raise ApprovalRefused(self.name)

    @property
    def name(self) -> str:
        return self.spec.name

    def approval(self, call: ToolCallBlock) -> bool:
        """Nobody is asked about wrong arguments: the model is told of them.

        Raises:
            ApprovalRefused: the function that decides gave a coroutine.
            Exception: whatever that function raises.
        """
        if self._approval is False:
            return False
        arguments = self._parameters.read(call)
        if isinstance(arguments, str):
            return False
        if self._approval is True:
            return True
        answer: object = self._approval(arguments)
        if inspect.isawaitable(answer):  # of a plain function around an async one
            if inspect.iscoroutine(answer):
                answer.close()
            raise ApprovalRefused(self.name)
        return bool(answer)

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """The call's result. A sync function runs in a thread; when this is cancelled the thread is left to itself."""
        arguments = self._parameters.read(call)
        if isinstance(arguments, str):
            return failed(call, f"Invalid arguments: {arguments}")
        function = self._parameters.bound(self._function, context, arguments)
        try:
            is_async = inspect.iscoroutinefunction(self._function)
            output = function() if is_async else await run_sync(function, abandon_on_cancel=True)
            if inspect.isawaitable(output):  # of a sync function that wraps an async one, too
                output = await cast("Awaitable[object]", output)
            return result_of(call, output)
        except Exception as error:  # noqa: BLE001  # whatever a tool raises, the model is told and the loop goes on
            return failed(call, f"{type(error).__name__}: {error}")


def _is_async(function: object) -> bool:
    """Whether calling it gives a coroutine: an async function, or an object with an async `__call__`."""
    called = getattr(function, "__call__", None)  # noqa: B004  # its kind is asked, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(**options: Unpack[_Options]) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None, /, **options: Unpack[_Options]
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool of a function, sync or async: the schema from its annotations, the description from its docstring.

    It gives text, blocks, a `ToolReply`, or anything that pydantic can write as JSON. `Annotated[int, Field(...)]`
    describes and bounds a parameter; the docstring's `Args:` describe it too.

    Args:
        name: what the model calls it; else the function's name.
        description: what the model is told of it; else the docstring.
        idempotent: to run a call again does no harm, as it only reads, or what it does outside goes by
            `ToolContext.key`. Else a call that was being run when its worker was lost is not run again.
        on_unknown: what is done with that call then. "tell": the model is told that its outcome is unknown. "ask": a
            person says whether it is run again.
        approval: a person is asked before each call, or before those for which a function of the arguments says so;
            a plain function, not an async one.
        timeout: seconds a call may take, 600 by default. None is as long as it likes: the loop's time limit does not
            stop it either. A sync function is not waited for then, but nobody can stop its thread.
        sequential: each call runs alone, after the others of its turn.

    Raises:
        ParameterRefused: the function takes `*args` or `**kwargs`, which a model cannot give.
        ApprovalRefused: `approval` is an async function.
    """
    if function is not None:
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)
