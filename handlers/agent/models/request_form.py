"""Form a model's requests from its options, and convert the options to and from the JSON in the log. Pure."""

from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from lanebus.bus.messages.usage import Rates
from lanebus.handlers.agent.models.model import ModelRequest
from lanebus.handlers.providers.common.blocks import copied
from lanebus.handlers.providers.common.request import Json, ProviderRequest
from lanebus.handlers.providers.common.target import FormOptions
from lanebus.handlers.providers.common.tools import ToolChoice
from lanebus.handlers.providers.registry import Provider

__all__ = ("ModelOptions", "form_request", "read_options", "written_options")

_FORM = tuple(FormOptions.__annotations__)
_PLAIN = frozenset(_FORM) - {"tool_choice"} | {"max_output"}
"""options whose values are JSON"""


class ModelOptions(FormOptions, total=False):
    """The keyword arguments of every adapter, in addition to those of `FormOptions`."""

    options: Mapping[str, JsonValue]
    """more fields of the request's body, such as `temperature` or `thinking`. An object is merged with the object that
    the adapter writes for the same field. The fields are recorded in the log, so they must not contain secrets"""
    rates: Rates | None
    """US dollars for a million tokens; by default from the price lists, if these are installed and contain the model"""
    context_window: int | None
    """maximum number of tokens of a request and its answer together; by default from the price lists"""
    max_output: int | None
    """maximum number of tokens of an answer that the model supports; a larger `max_tokens` is reduced to this number"""


def form_request(api: Provider, model: str, request: ModelRequest, options: ModelOptions) -> ProviderRequest:
    """Return the request as the model's adapter sends it.

    Raises:
        MessageError: the API cannot express a part of the context, and the options are strict.
        ToolNotOffered: the options require a tool that the request does not have.
    """
    most = options.get("max_output")
    form_options: FormOptions = {name: options[name] for name in _FORM if name in options}  # type: ignore[assignment,literal-required]  # same keys
    form = api.to_request(
        request.context,
        **form_options,
        model=model,
        max_tokens=request.max_tokens if most is None else min(request.max_tokens, most),
        tools=request.tools,
        media=request.media,
        stream=True,
    )
    _join(form.body, options.get("options", {}))
    return form


def written_options(options: ModelOptions) -> Json:
    """Return the options that are part of a request, as JSON."""
    values = cast("Mapping[str, JsonValue]", options)
    written: Json = {name: values[name] for name in sorted(_PLAIN & values.keys()) if values[name] is not None}
    choice = options.get("tool_choice")
    if choice is not None:
        written["tool_choice"] = {"mode": choice.mode, "name": choice.name}
    if more := options.get("options"):
        written["options"] = copied({**more})
    return written


def read_options(written: Mapping[str, JsonValue]) -> ModelOptions:
    """Return the options from the JSON of `written_options`. Unknown options, written by newer versions, are
    ignored."""
    options: dict[str, object] = {name: written[name] for name in _PLAIN & written.keys()}
    match written.get("tool_choice"):
        case {"mode": "auto" | "required" | "none" as mode}:
            options["tool_choice"] = ToolChoice(mode)
        case {"mode": "named", "name": str() as name} if name:
            options["tool_choice"] = ToolChoice("named", name)
        case _:
            pass
    if isinstance(more := written.get("options"), dict):
        options["options"] = more
    return cast("ModelOptions", options)


def _join(body: Json, more: Mapping[str, JsonValue]) -> None:
    for name, value in more.items():
        existing = body.get(name)
        if isinstance(existing, dict) and isinstance(value, dict):
            _join(existing, value)
        else:
            body[name] = copied(value)
