"""Tools: the protocol that the loop calls, and `tool`, which makes a tool of a Python function and its parameters."""

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypedDict, Unpack, cast, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo

from lanebus.bus.errors import InvalidArgument, require_choice, require_flag, require_seconds, require_text
from lanebus.bus.messages import ToolCallBlock, ToolResultMessage, TurnId
from lanebus.bus.text import describe_error
from lanebus.handlers.agent.errors import ApprovalRefused, OptionUnknown, ParameterRefused
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.tasks import SyncCalls
from lanebus.handlers.agent.tools.tool_call import failed, result_of
from lanebus.handlers.providers import ToolSpec

Function = Callable[..., object]

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Parameters:
    """The parameters of one function."""

    description: str
    """the function's docstring without its parameter section"""
    schema: dict[str, JsonValue]
    wants_context: bool
    """whether the first parameter is annotated with the context class"""

    def __init__(self, function: Function, context: type[object]) -> None:
        """
        Args:
            context: the context class. A first parameter with this annotation is not an argument of the model.

        Raises:
            InvalidArgument: the function has no signature, or a parameter has a type that JSON cannot hold.
            NameError: an annotation contains an unknown name.
            ParameterRefused: the function takes `*args` or `**kwargs`.
        """
        try:
            parameters = dict(inspect.signature(function).parameters)
        except ValueError:  # some functions that are written in C have no signature
            raise InvalidArgument("function", function, "wrap it in a function of your own, with annotations") from None
        hints = get_type_hints(function, include_extras=True)
        self.description, described = read_docstring(inspect.getdoc(function) or "", parameters)
        first = next(iter(parameters), None)
        self.wants_context = first is not None and hints.get(first) is context
        self._context_name: str | None = None
        """name of the first parameter, if it is keyword-only"""
        if first is not None and self.wants_context:
            is_named = parameters.pop(first).kind is inspect.Parameter.KEYWORD_ONLY
            self._context_name = first if is_named else None
        for parameter in parameters.values():
            if parameter.kind in _ANY_NUMBER:
                raise ParameterRefused(str(getattr(function, "__name__", function)), str(parameter).partition(":")[0])
        self._positional = tuple(name for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY)
        # Fields have generated names: a parameter called `copy` or `json` would hide a method of the pydantic model.
        self._names = {f"argument_{place}": name for place, name in enumerate(parameters)}
        fields = {field: (hints.get(name, JsonValue), _field(parameters[name])) for field, name in self._names.items()}
        try:
            model = create_model("Arguments", __base__=_Arguments, **fields)  # type: ignore[call-overload]  # its stub wants Any
            self._model = cast("type[_Arguments]", model)
            self.schema = _schema(self._model, described)
        except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
            advice = (
                "annotate its parameters with types that a model can pass as JSON, such as str, or a pydantic model"
            )
            raise InvalidArgument("function", function, advice) from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments that a model passes."""
        return tuple(self._names.values())

    def read(self, call: ToolCallBlock) -> dict[str, object] | str:
        """Return the arguments of a call by parameter name, or a text that says why they are invalid."""
        if call.arguments_raw is not None:
            return f"not JSON: {call.arguments_raw[:200]}"
        try:
            values = self._model.model_validate({} if call.arguments is None else call.arguments)
        except ValidationError as error:
            return _faults(error)
        return {name: getattr(values, field) for field, name in self._names.items()}

    def bound(self, function: Function, context: object, arguments: Mapping[str, object]) -> Callable[[], object]:
        """Return the function bound to its arguments from `read`, and to the context if the function takes one."""
        named = {name: value for name, value in arguments.items() if name not in self._positional}
        if self._context_name is not None:
            named[self._context_name] = context
        leading = (context,) if self.wants_context and self._context_name is None else ()
        return partial(function, *leading, *(arguments[name] for name in self._positional), **named)


def _field(parameter: inspect.Parameter) -> FieldInfo:
    default: object = ... if parameter.default is inspect.Parameter.empty else parameter.default
    return cast("FieldInfo", Field(default, alias=parameter.name))


def _schema(arguments: type[_Arguments], described: Mapping[str, str]) -> dict[str, JsonValue]:
    schema: dict[str, JsonValue] = arguments.model_json_schema(by_alias=True)
    del schema["title"]
    properties = schema.setdefault("properties", {})
    if isinstance(properties, dict):
        for name, value in properties.items():
            if isinstance(value, dict):
                value.pop("title", None)  # redundant: pydantic makes the title from the name
                if name in described:
                    value.setdefault("description", described[name])
    return schema


def _faults(error: ValidationError) -> str:
    """Return each error with the name of its argument. The values are left out, as they may be long."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in faults)


_HEADS = frozenset({"Args:", "Arguments:", "Parameters:"})
_ENTRY = re.compile(r"\*{0,2}(\w+)(?:\s*\(.*?\))?:(?:\s+(.*))?")


def read_docstring(text: str, parameters: Collection[str]) -> tuple[str, dict[str, str]]:
    """Split a docstring into the function's description and a description of each parameter.

    If a line of the parameter section cannot be parsed, return the whole text as the description.

    Args:
        text: the docstring, as `inspect.getdoc` returns it.
    """
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.rstrip() in _HEADS), None)
    if start is None:
        return text, {}
    end = next((at for at in range(start + 1, len(lines)) if lines[at][:1].strip()), len(lines))
    entries = _read_section(lines[start + 1 : end], parameters)
    if not entries:
        return text, {}
    before, after = "\n".join(lines[:start]).rstrip(), "\n".join(lines[end:]).rstrip()
    return "\n\n".join(part for part in (before, after) if part), entries


def _read_section(lines: Sequence[str], parameters: Collection[str]) -> dict[str, str]:
    """Return each parameter's description as one line; empty if a line belongs to no parameter."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    indent = next((_indent(line) for line in lines if line.strip()), 0)
    for line in lines:
        if not line.strip():
            continue
        if _indent(line) > indent and current is not None:
            current.append(line.strip())
            continue
        entry = _ENTRY.fullmatch(line.strip())
        if entry is None or _indent(line) != indent or entry[1] not in parameters:
            return {}
        current = found[entry[1]] = [entry[2]] if entry[2] else []
    return {name: " ".join(each) for name, each in found.items() if each}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# Tools: the protocol that the loop calls, and `tool`, which makes a tool of a Python function.


OnUnknown = Literal["tell", "ask"]
"""What to do with a call that was started and whose outcome is unknown. "tell": the model gets an error saying that the
outcome is unknown. "ask": a person decides whether the call runs again."""

TOOL_SECONDS = 600.0
"""default time-out of a call, in seconds"""

Approval = bool | Callable[..., bool]
"""Whether a person is asked before a call runs. A function decides for each call. It takes some of the tool's
parameters, by the same names, and gets the validated arguments."""

_CALLS = SyncCalls()
"""runs the sync tools that are called outside of a worker"""

_IS_ASYNC = "is async, so its result counts as true: make it a plain function"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _Progress(Protocol):
    async def __call__(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a tool call. It is passed to a function whose first parameter has this annotation."""

    session: str
    turn_id: TurnId
    call_id: str
    """the provider's id of the call; another turn may have a call with the same id"""
    progress: _Progress
    """`await progress(text)` shows a text to the user. Delivery is best effort, the text is not part of the result, and
    a call of `progress` after the tool call has ended does nothing. From a sync function:
    `anyio.from_thread.run(context.progress, "half")`"""
    place: int = 0
    """index of the call in its turn, from 0"""
    attempt: int = 1
    """number of times this call was started, from 1"""
    origin: TurnId | None = None
    """the turn in which the model made the call, if the call runs in a later turn; otherwise None"""
    run: Run | None = None
    """the run that calls the tool, for tools that are part of an agent"""

    @property
    def key(self) -> str:
        """Idempotency key of the call for external systems: unique to the call, and the same at each attempt."""
        return f"{self.origin or self.turn_id}.{self.place}"


class Tool(Protocol):
    """A tool that a model can call. The decorator `tool` turns a function into a tool."""

    if not TYPE_CHECKING:  # a type checker refuses to make an object of a protocol

        def __new__(cls, *_: object, **__: object) -> Self:
            if cls is Tool:
                raise InvalidArgument("Tool", Tool, "decorate a function with @tool to make a tool")
            return super().__new__(cls)

    @property
    def name(self) -> str:
        """The tool's name for the model."""
        ...

    @property
    def spec(self) -> ToolSpec:
        """Name, description and JSON schema for the model."""
        ...

    @property
    def idempotent(self) -> bool:
        """Whether a call may run again under the same `ToolContext.key`. If True, a call whose worker was lost is
        repeated."""
        ...

    @property
    def on_unknown(self) -> OnUnknown:
        """What to do with a call of unknown outcome if the tool is not idempotent."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take. None means no limit; the loop's time limit does not stop the call either."""
        ...

    @property
    def is_sequential(self) -> bool:
        """Whether each call runs alone: after the concurrent calls of its turn, in the order of the calls."""
        ...

    def approval(self, call: ToolCallBlock) -> bool:
        """Return whether a person is asked before the call runs."""
        ...

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Run the call and return its result. Failures are results too, with `is_error` set.

        The run may be cancelled at any await. A cancelled run has a short time to clean up; a result returned in this
        time is used.
        """
        ...


class _Options(TypedDict, total=False):
    """The arguments of `tool`, which documents them."""

    name: str | None
    description: str | None
    idempotent: bool
    on_unknown: OnUnknown
    approval: Approval
    timeout: float | None
    sequential: bool


class FunctionTool:
    """A tool that calls a Python function. The decorator `tool` makes it."""

    def __init__(self, function: Function, **options: Unpack[_Options]) -> None:
        """
        Args:
            function: the function.
            options: as for `tool`.

        Raises:
            NameError: an annotation contains an unknown name.
            InvalidArgument: `function` is not a function, or an option has a wrong type.
            OptionUnknown: an option is not one of `tool`.
            ParameterRefused: the function takes `*args` or `**kwargs`.
            ApprovalRefused: `approval` is an async function, or takes a parameter that the function does not have.
        """
        if not callable(function):
            raise InvalidArgument("function", function, "decorate a function, and pass options by name: @tool(name=…)")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgument("function", function, "return the result; this function yields")
        description = options.get("description")
        name = options.get("name") or str(getattr(function, "__name__", "tool"))
        for option in options:
            if option not in _Options.__annotations__:  # Python does not check `Unpack`
                raise OptionUnknown(name, option, tuple(_Options.__annotations__))
        _check_options(options)
        self._function = function
        self._parameters = Parameters(function, ToolContext)
        self.spec = ToolSpec(
            name,
            self._parameters.description if description is None else description,
            self._parameters.schema,
        )
        self.idempotent: bool = options.get("idempotent", False)
        self.on_unknown: OnUnknown = options.get("on_unknown", "tell")
        self.timeout: float | None = options.get("timeout", TOOL_SECONDS)
        self.is_sequential: bool = options.get("sequential", False)
        self._approval: Approval = options.get("approval", False)
        self._approved = () if isinstance(self._approval, bool) else self._read_approval(self._approval)
        """names of the arguments that the approval function takes"""

    @property
    def name(self) -> str:
        return self.spec.name

    def approval(self, call: ToolCallBlock) -> bool:
        """Return whether a person is asked; False for invalid arguments, for which the model gets an error.

        Raises:
            ApprovalRefused: the approval function returned a coroutine.
            Exception: any error of the approval function.
        """
        if self._approval is False:
            return False
        arguments = self._parameters.read(call)
        if isinstance(arguments, str):
            return False
        if self._approval is True:
            return True
        answer: object = self._approval(**{name: arguments[name] for name in self._approved})
        if inspect.isawaitable(answer):  # a plain function that wraps an async one
            if inspect.iscoroutine(answer):
                answer.close()
            raise ApprovalRefused(self.name, _IS_ASYNC)
        return bool(answer)

    def _read_approval(self, approval: Callable[..., bool]) -> tuple[str, ...]:
        """Return the names of the arguments that an approval function takes.

        Raises:
            ApprovalRefused: `approval` is async, or takes a parameter that the tool does not have.
        """
        if _is_async(approval):
            raise ApprovalRefused(self.name, _IS_ASYNC)
        try:
            parameters = inspect.signature(approval).parameters
        except ValueError:  # some functions that are written in C have no signature
            raise ApprovalRefused(self.name, "has unknown parameters: wrap it in a function of your own") from None
        names = self._parameters.names
        for parameter in parameters.values():
            # Reject unknown parameters with a default too: a misspelt name would never get its argument.
            if parameter.kind not in _NAMED or parameter.name not in names:
                known = ", ".join(names) or "none"
                reason = f"has the parameter {parameter.name!r}: it may take the tool's own, by name, which are {known}"
                raise ApprovalRefused(self.name, reason)
        return tuple(parameters)

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Run the call. A sync function runs in a thread; if the call is cancelled, this thread is abandoned."""
        arguments = self._parameters.read(call)
        if isinstance(arguments, str):
            return failed(call, f"Invalid arguments: {arguments}")
        function = self._parameters.bound(self._function, context, arguments)
        try:
            is_async = inspect.iscoroutinefunction(self._function)
            calls = _CALLS if context.run is None else context.run.sync_calls
            output = function() if is_async else await calls.run(context.session, self.name, function)
            if inspect.isawaitable(output):  # a sync function that wraps an async one also returns an awaitable
                output = await cast("Awaitable[object]", output)
            return result_of(call, output)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # any error becomes a result for the model
            return failed(call, describe_error(error))


def _check_options(options: _Options) -> None:
    """Raise InvalidArgument if an option of `tool` has a wrong type."""
    require_text("name", options.get("name"), is_optional=True, is_filled=True)
    require_text("description", options.get("description"), is_optional=True)
    require_flag("idempotent", options.get("idempotent", False))
    require_choice("on_unknown", options.get("on_unknown", "tell"), get_args(OnUnknown))
    approval = options.get("approval", False)
    if not (isinstance(approval, bool) or callable(approval)):
        raise InvalidArgument("approval", approval, "pass True, False or a function")
    require_seconds("timeout", options.get("timeout"), is_positive=True, is_optional=True)
    require_flag("sequential", options.get("sequential", False))


def _is_async(function: object) -> bool:
    """Whether `function` is an async function, or an object with an async `__call__`."""
    called = getattr(function, "__call__", None)  # noqa: B004  # to inspect it, not to test for it
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(**options: Unpack[_Options]) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None, /, **options: Unpack[_Options]
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Turn a sync or async function into a tool. Use it as a decorator, with or without arguments.

    A sync function runs in a thread. Each session has a share of 16 threads. If 16 of its calls were stopped and their
    threads still run, its next calls are refused; see `RunBounds`. Such threads do not keep the process from ending.

    The schema comes from the annotations and the description from the docstring. `Annotated[int, Field(...)]` describes
    and constrains a parameter; the docstring's `Args:` section describes it too. The function returns text, blocks, a
    `ToolReply`, or a value that pydantic can write as JSON. Text that UTF-8 cannot hold, such as a file name, is
    replaced by U+FFFD.

    If a command, a time limit or a crash stops a call that was started, the model reads that its outcome is unknown. A
    call that was not started is skipped.

    Args:
        function: the function.
        name: the tool's name for the model; by default the function's name.
        description: the description for the model; by default the docstring.
        idempotent: whether a call may run again if its worker was lost; False by default. Pass True if the
            function only reads, or uses `ToolContext.key` for its side effects.
        on_unknown: what to do with a call whose worker was lost, if the tool is not idempotent. "tell", the default:
            the model gets an error saying that the call's outcome is unknown. "ask": a person decides whether it runs
            again.
        approval: True asks a person before each call. A function decides for each call: it takes some of the tool's
            parameters, by name, and gets the validated arguments. The function must not be async. False by default.
        timeout: seconds that a call may take, 600 by default. None means no limit; the loop's time limit does not stop
            the call either. The thread of a sync function cannot be stopped and is abandoned. It can end early if the
            function calls `anyio.from_thread.check_cancelled`.
        sequential: whether each call runs alone, after the other calls of its turn. False by default.

    Raises:
        InvalidArgument: `function` is not a function, or another argument has a wrong type.
        ParameterRefused: the function takes `*args` or `**kwargs`, which a model cannot pass.
        ApprovalRefused: `approval` is an async function, or takes a parameter that the tool does not have.
        OptionUnknown: an argument has a name that is not listed above.
    """
    if function is not None:
        return FunctionTool(function, **options)
    return partial(FunctionTool, **options)
