"""The parameters of a tool's function: the schema that a model is shown, and a call's arguments read as their types."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.fields import FieldInfo

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.handlers.agent.errors import ParameterRefused
from lanebus.handlers.agent.tools.docstring import read_docstring

__all__ = ("Function", "Parameters")

Function = Callable[..., object]

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Parameters:
    """Read off a function once."""

    description: str
    """the function's docstring, without what it says of the parameters"""
    schema: dict[str, JsonValue]
    wants_context: bool
    """the first parameter is annotated with the class of contexts"""

    def __init__(self, function: Function, context: type[object]) -> None:
        """
        Args:
            context: a first parameter that is annotated with this class is no argument of the model's.

        Raises:
            NameError: an annotation names what does not exist.
            ParameterRefused: a parameter takes any number of arguments.
        """
        hints = get_type_hints(function, include_extras=True)
        parameters = dict(inspect.signature(function).parameters)
        self.description, described = read_docstring(inspect.getdoc(function) or "", parameters)
        first = next(iter(parameters), None)
        self.wants_context = first is not None and hints.get(first) is context
        self._context_name: str | None = None
        """of the first parameter, where the context is given by name"""
        if first is not None and self.wants_context:
            is_named = parameters.pop(first).kind is inspect.Parameter.KEYWORD_ONLY
            self._context_name = first if is_named else None
        for parameter in parameters.values():
            if parameter.kind in _ANY_NUMBER:
                raise ParameterRefused(str(getattr(function, "__name__", function)), str(parameter).partition(":")[0])
        self._positional = tuple(name for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY)
        # The fields have names of their own: a parameter called `copy` or `json` would hide a method of the model.
        self._names = {f"argument_{place}": name for place, name in enumerate(parameters)}
        fields = {field: (hints.get(name, JsonValue), _field(parameters[name])) for field, name in self._names.items()}
        model = create_model("Arguments", __base__=_Arguments, **fields)  # type: ignore[call-overload]  # its stub wants Any
        self._model = cast("type[_Arguments]", model)
        self.schema = _schema(self._model, described)

    def read(self, call: ToolCallBlock) -> dict[str, object] | str:
        """The arguments of a call by the names of their parameters, or in a text what is wrong with them."""
        if call.arguments_raw is not None:
            return f"not JSON: {call.arguments_raw[:200]}"
        try:
            values = self._model.model_validate({} if call.arguments is None else call.arguments)
        except ValidationError as error:
            return _faults(error)
        return {name: getattr(values, field) for field, name in self._names.items()}

    def bound(self, function: Function, context: object, arguments: Mapping[str, object]) -> Callable[[], object]:
        """The function with a context, if it wants one, and with all its arguments as `read` gave them."""
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
                value.pop("title", None)  # pydantic makes it from the name, which the model has already
                if name in described:
                    value.setdefault("description", described[name])
    return schema


def _faults(error: ValidationError) -> str:
    """Each fault with the name of its argument; without the values, which may be long."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in faults)
