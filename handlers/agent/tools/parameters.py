"""The parameters of a tool's function: their JSON schema for the model, and the validation of a call's arguments."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages import ToolCallBlock
from lanebus.handlers.agent.errors import ParameterRefused

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
