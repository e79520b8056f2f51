"""A tool: a typed Python function that a model may call."""

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast, get_type_hints, overload

from anyio.to_thread import run_sync
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic_core import to_jsonable_python

from bus.messages.base import Frozen
from bus.messages.content import Block, TextBlock, ToolCallBlock
from bus.messages.message import ToolResultMessage, now_ms
from bus.messages.turn import TurnId
from handlers.providers.tools import ToolSpec

__all__ = ("Tool", "ToolContext", "ToolReply", "failed", "tool")

Function = Callable[..., object]


class _Progress(Protocol):
    async def __call__(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Which call this is. A tool whose first parameter is annotated with this class is handed it."""

    session: str
    turn_id: TurnId
    call_id: str
    """stays the same if the call is run again after a crash"""
    progress: _Progress
    """tells the user how far it is; best effort, and no part of the result. From a sync function:
    `anyio.from_thread.run(context.progress, "half")`"""


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A result that says more than its content."""

    content: str | Sequence[Block | str] = ""
    structured: JsonValue = None
    """the result as JSON, for programs"""
    is_error: bool = False
    terminate: bool = False
    """no model call has to follow, if all results of the batch say so"""
    terminate_message: str | None = None
    """what is said in the model's place then"""


class Tool:
    """A function with the schema of its arguments. Made by `tool`."""

    def __init__(self, function: Function, *, name: str | None = None, description: str | None = None) -> None:
        """
        Args:
            name: what the model calls it; the function's name if None.
            description: what the model is told of it; the docstring if None.

        Raises:
            NameError: an annotation names what does not exist.
        """
        self._function = function
        self._wants_context, self._names, self._arguments = _read_parameters(function)
        self.spec = ToolSpec(
            name or str(getattr(function, "__name__", "tool")),
            (inspect.getdoc(function) or "") if description is None else description,
            _schema(self._arguments),
        )

    @property
    def name(self) -> str:
        return self.spec.name

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """The call's result. Wrong arguments and the function's exceptions are results too, marked as errors.

        A sync function runs in a thread; when this is cancelled the thread is left to itself.
        """
        if call.arguments_raw is not None:
            return failed(call, f"Invalid arguments: not JSON: {call.arguments_raw[:200]}")
        try:
            values = self._arguments.model_validate({} if call.arguments is None else call.arguments)
        except ValidationError as error:
            return failed(call, f"Invalid arguments: {_faults(error)}")
        arguments: dict[str, object] = {name: getattr(values, field) for field, name in self._names.items()}
        bound = (
            partial(self._function, context, **arguments)
            if self._wants_context
            else partial(self._function, **arguments)
        )
        try:
            if inspect.iscoroutinefunction(self._function):
                output = await cast("Awaitable[object]", bound())
            else:
                output = await run_sync(bound, abandon_on_cancel=True)
            return _result(call, output)
        except Exception as error:  # noqa: BLE001  # whatever a tool raises, the model is told and the loop goes on
            return failed(call, f"{type(error).__name__}: {error}")


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None, /, *, name: str | None = None, description: str | None = None
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function, sync or async: the schema from its annotations, the description from its docstring.

    It gives text, blocks, a `ToolReply`, or anything that pydantic can write as JSON. `Annotated[int, Field(...)]`
    describes and bounds a parameter.
    """
    if function is not None:
        return Tool(function)
    return partial(Tool, name=name, description=description)


def failed(call: ToolCallBlock, text: str) -> ToolResultMessage:
    """A result that tells the model what went wrong."""
    return ToolResultMessage.of(call, text, is_error=True)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def _read_parameters(function: Function) -> tuple[bool, dict[str, str], type[_Arguments]]:
    """Whether it takes the context first; the parameter's name for each field; the model of the arguments."""
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())
    wants_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    fields: dict[str, tuple[object, object]] = {}
    names: dict[str, str] = {}
    for index, parameter in enumerate(parameters[1:] if wants_context else parameters):
        # The fields have names of their own: a parameter called `copy` or `json` would hide a method of the model.
        field = f"argument_{index}"
        names[field] = parameter.name
        default: object = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[field] = (hints.get(parameter.name, JsonValue), Field(default, alias=parameter.name))
    model = create_model("Arguments", __base__=_Arguments, **fields)  # type: ignore[call-overload]  # its stub wants Any
    return wants_context, names, cast("type[_Arguments]", model)


def _schema(arguments: type[_Arguments]) -> dict[str, JsonValue]:
    schema: dict[str, JsonValue] = arguments.model_json_schema(by_alias=True)
    del schema["title"]
    properties = schema.setdefault("properties", {})
    if isinstance(properties, dict):
        for value in properties.values():
            if isinstance(value, dict):
                value.pop("title", None)  # pydantic makes it from the name, which the model has already
    return schema


def _faults(error: ValidationError) -> str:
    """Each fault with the name of its argument; without the values, which may be long."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in faults)


def _result(call: ToolCallBlock, output: object) -> ToolResultMessage:
    """What a function gave, as a message.

    Raises:
        PydanticSerializationError: it cannot be written as JSON.
    """
    reply = output if isinstance(output, ToolReply) else _reply(output)
    parts = (reply.content,) if isinstance(reply.content, str) else reply.content
    content = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in parts if part != "")
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=content,
        structured=reply.structured,
        is_error=reply.is_error,
        terminate=reply.terminate or None,
        terminate_message=reply.terminate_message,
        timestamp=now_ms(),
    )


def _reply(output: object) -> ToolReply:
    if output is None:
        return ToolReply()
    if isinstance(output, str):
        return ToolReply(output)
    if _is_block(output):
        return ToolReply((cast("Block", output),))
    if isinstance(output, list | tuple) and output:
        items = cast("Sequence[object]", output)
        if any(_is_block(item) for item in items) and all(_is_block(item) or isinstance(item, str) for item in items):
            return ToolReply(cast("Sequence[Block | str]", items))
    structured = cast("JsonValue", to_jsonable_python(output))
    return ToolReply(json.dumps(structured, ensure_ascii=False), structured=structured)


def _is_block(value: object) -> bool:
    return isinstance(value, Frozen) and hasattr(value, "type")
