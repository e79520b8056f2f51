"""The JSON schemas of request bodies. `posted.py` decodes the bodies; a test sends what these schemas allow."""

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, cast

from pydantic import Field, JsonValue, WithJsonSchema
from typing_extensions import TypedDict

from lanebus.bus.messages.control import CONTROLS, Control
from lanebus.bus.wire.envelope import CURSOR
from lanebus.handlers.protocols.client_content import MIME_TYPE
from lanebus.handlers.ui.posted import KEY_LIMIT

__all__ = (
    "CommandBody",
    "ContentBody",
    "HandoverBody",
    "MessageBody",
    "Name",
    "PostedBlock",
    "ProtocolBody",
    "TextBody",
    "UploadBody",
)

_TEXT = r"\S"
_KEY = rf"^[ -~]{{1,{KEY_LIMIT}}}$"  # other printable characters are accepted too, but no pattern names them

_SHA256 = r"^[0-9a-f]{64}$"
_MediaType = Annotated[str, Field(pattern=f"^{MIME_TYPE}$")]
_FileName = Annotated[str, Field(min_length=1, max_length=255)]
_Cursor = Annotated[str, Field(pattern=rf"^(?:{CURSOR.pattern})$")]

Name = Annotated[str, Field(pattern=_KEY)]
"""a key or a name"""

ProtocolBody = Annotated[JsonValue, WithJsonSchema({"type": "object"})]
"""the body of another project's protocol, which has its own schema"""


class _AboutMessage(TypedDict):
    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    key: NotRequired[Name | None]
    followUp: NotRequired[bool | None]
    agent: NotRequired[Name | None]
    expected: NotRequired[_Cursor | None]


class TextBody(_AboutMessage):
    """A user's message of one text."""

    text: Annotated[str, Field(pattern=_TEXT)]


class UploadedMedia(TypedDict):
    """A complete upload of the sender to this session."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    kind: Literal["sha256"]
    sha256: Annotated[str, Field(pattern=_SHA256)]


class InlineMedia(TypedDict):
    """Small media in base64. The first bytes decide the type, if they show one."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    kind: Literal["data"]
    data: Annotated[str, Field(min_length=4, pattern=r"^[A-Za-z0-9+/]+={0,2}$")]
    mimeType: NotRequired[_MediaType | None]
    filename: NotRequired[_FileName | None]


class AddressedMedia(TypedDict):
    """Media at an address that `lanebus serve --allow-media-url` allows. The provider fetches it."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    kind: Literal["url"]
    url: str
    mimeType: NotRequired[_MediaType | None]
    filename: NotRequired[_FileName | None]


class PostedText(TypedDict):
    """A text of a user's message."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    type: Literal["text"]
    text: Annotated[str, Field(pattern=_TEXT)]


class PostedFile(TypedDict):
    """An image, a clip or a document of a user's message. Other than a document, the media must be of this type."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    type: Literal["image", "audio", "video", "document"]
    media: UploadedMedia | InlineMedia | AddressedMedia


PostedBlock = PostedText | PostedFile
"""a block of a user's message"""


class ContentBody(_AboutMessage):
    """A user's message of several blocks."""

    content: Annotated[list[PostedBlock], Field(min_length=1)]


MessageBody = TextBody | ContentBody
"""a user's message"""


class UploadBody(TypedDict):
    """The announcement of a file."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    sha256: Annotated[str, Field(pattern=_SHA256)]
    sizeBytes: Annotated[int, Field(ge=1)]
    mimeType: NotRequired[_MediaType | None]
    filename: NotRequired[_FileName | None]


class HandoverBody(TypedDict):
    """A handover of the session to an agent."""

    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic reads it from the class
    agent: Name
    reason: NotRequired[Name | None]
    key: NotRequired[Name | None]
    expected: NotRequired[_Cursor | None]


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
