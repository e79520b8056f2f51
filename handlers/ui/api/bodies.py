"""The JSON schemas of request bodies. `posted.py` decodes the bodies; a test sends what these schemas allow."""

from collections.abc import Mapping
from typing import Annotated, NotRequired, cast

from pydantic import Field, JsonValue, WithJsonSchema
from typing_extensions import TypedDict

from lanebus.bus.messages.control import CONTROLS, Control
from lanebus.handlers.ui.posted import KEY_LIMIT

__all__ = ("CommandBody", "HandoverBody", "MessageBody", "Name", "ProtocolBody")

_TEXT = r"\S"
_KEY = rf"^[ -~]{{1,{KEY_LIMIT}}}$"  # other printable characters are accepted too, but no pattern names them

Name = Annotated[str, Field(pattern=_KEY)]
"""a key or a name"""

ProtocolBody = Annotated[JsonValue, WithJsonSchema({"type": "object"})]
"""the body of another project's protocol, which has its own schema"""


class MessageBody(TypedDict):
    """A user's message."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    text: Annotated[str, Field(pattern=_TEXT)]
    key: NotRequired[Name | None]
    followUp: NotRequired[bool | None]
    agent: NotRequired[Name | None]


class HandoverBody(TypedDict):
    """A handover of the session to an agent."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    agent: Name
    reason: NotRequired[Name | None]


def _command(name: str, control: type[Control]) -> Mapping[str, JsonValue]:
    """Return the schema of one command: the fields of its class, as `read_command` takes them."""
    made = cast("dict[str, JsonValue]", control.model_json_schema(by_alias=True))
    fields = dict(cast("Mapping[str, JsonValue]", made.get("properties", {})))
    required = set(cast("list[str]", made.get("required", [])))
    fields.pop("by")
    if "turnId" in fields:
        fields["turnId"] = {"anyOf": [cast("dict[str, JsonValue]", made["$defs"])["TurnId"], {"type": "string"}]}
    if "callHash" in fields:
        fields["callHash"] = {"anyOf": [{"type": "string", "pattern": "^[0-9a-f]{64}$"}, {"type": "null"}]}
    if name == "steer":
        fields["text"] = {"type": "string", "pattern": _TEXT}
        fields.pop("position")
        required = (required - {"position"}) | {"text"}
    return {
        "type": "object",
        "title": control.__name__,
        "description": made.get("description", ""),
        "properties": {
            "command": {"const": name},
            "key": {"anyOf": [{"type": "string", "pattern": _KEY}, {"type": "null"}]},
            **fields,
        },
        "required": ["command", *sorted(required)],
        "additionalProperties": False,
    }


CommandBody = Annotated[
    JsonValue, WithJsonSchema({"oneOf": [dict(_command(name, each)) for name, each in CONTROLS.items()]})
]
