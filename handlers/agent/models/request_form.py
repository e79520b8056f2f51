"""How a model's requests are formed from what it was made with; and the same options as the log tells them. Pure."""

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
"""options that are JSON as they are"""


class ModelOptions(FormOptions, total=False):
    """What every adapter takes by keyword, beside how its requests are formed."""

    options: Mapping[str, JsonValue]
    """more of the request's body, such as `temperature` or `thinking`; objects in it are joined with ours. The log
    tells them, so no secret may stand there"""
    rates: Rates | None
    """what a million tokens cost you; else the price lists tell, where they are installed and know the model"""
    context_window: int | None
    """tokens; else the price lists tell"""
    max_output: int | None
    """most tokens that the model can answer with: no request asks for more"""


def form_request(api: Provider, model: str, request: ModelRequest, options: ModelOptions) -> ProviderRequest:
    """The request as the model's adapter sends it.

    Raises:
        MessageError: it cannot carry something, and the options want it strict.
        ToolNotOffered: the options name a tool that it must call, and the request offers others.
    """
    most = options.get("max_output")
    asked: FormOptions = {name: options[name] for name in _FORM if name in options}  # type: ignore[assignment,literal-required]  # the same keys
    form = api.to_request(
        request.context,
        **asked,
        model=model,
        max_tokens=request.max_tokens if most is None else min(request.max_tokens, most),
        tools=request.tools,
        media=request.media,
        stream=True,
    )
    _join(form.body, options.get("options", {}))
    return form


def written_options(options: ModelOptions) -> Json:
    """The options that show in a request, as JSON."""
    values = cast("Mapping[str, JsonValue]", options)
    written: Json = {name: values[name] for name in sorted(_PLAIN & values.keys()) if values[name] is not None}
    choice = options.get("tool_choice")
    if choice is not None:
        written["tool_choice"] = {"mode": choice.mode, "name": choice.name}
    if more := options.get("options"):
        written["options"] = copied({**more})
    return written


def read_options(written: Mapping[str, JsonValue]) -> ModelOptions:
    """The options that were written so. What a newer version has written beside is left out."""
    options: dict[str, object] = {name: written[name] for name in _PLAIN & written.keys()}
    match written.get("tool_choice"):
        case {"mode": "auto" | "required" | "none" | "named" as mode, "name": str() | None as name}:
            options["tool_choice"] = ToolChoice(mode, name)
        case _:
            pass
    if isinstance(more := written.get("options"), dict):
        options["options"] = more
    return cast("ModelOptions", options)


def _join(body: Json, more: Mapping[str, JsonValue]) -> None:
    for name, value in more.items():
        known = body.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _join(known, value)
        else:
            body[name] = copied(value)
