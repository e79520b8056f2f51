"""Messages of the extension lane, which are for UIs and handlers and never for a model."""

from typing import ClassVar, Literal, Self

from pydantic import JsonValue, SerializerFunctionWrapHandler, ValidationError, model_serializer

from lanebus.bus.errors import DecodeError, require_text
from lanebus.bus.messages.base import Wire, json_reason
from lanebus.bus.messages.lanes import Lane

EXTENSION_ADVICE = "pass an ExtensionMessage; read with lanes={Lane.EXTENSION} to get no others"

CONTROL = "control."
"""the prefix of the kinds of all commands to an agent"""

STORE = "store."
"""the prefix of the kinds of what a framework stores in a session, which may hold content of the LLM lane"""


class ExtensionMessage(Wire):
    """A notification, a progress report, an agent event or a command: `{"role":"extension","kind":…,"data":…}`.

    A model never sees an extension message: no constructor or codec converts it to a message of the LLM lane.
    """

    lane: ClassVar[Lane] = Lane.EXTENSION

    role: Literal["extension"] = "extension"
    kind: str
    data: JsonValue

    @property
    def is_control(self) -> bool:
        """Whether the message is a command to a running loop, of a kind `control.…`. A full session still accepts
        commands."""
        return self.kind.startswith(CONTROL)

    @property
    def is_stored_state(self) -> bool:
        """Whether the message is what a framework stores in the session, of a kind `store.…`. Views for people leave it
        out."""
        return self.kind.startswith(STORE)

    @classmethod
    def of(cls, kind: str, data: JsonValue = None) -> Self:
        """Return a message of any kind.

        lanebus gives a meaning to kinds with these prefixes:

        - `agent.…`: an agent event. Use its class instead, as in `Progress(…).as_extension()`. Readers skip an
          unreadable event.
        - `control.…`: a command to the session's worker. Use its class instead, as in `Abort().as_extension()`.
        - `store.…`: what a framework stores in the session. It may hold content of the LLM lane, so it is read only
          with both lanes.
        - `session.…`: a note of the bus, such as `session.closed`. Publishing this note does not close the session.

        Args:
            kind: the kind, such as "progress"; not empty.
            data: any JSON.

        Raises:
            InvalidArgument: `kind` is no text or empty.
            InvalidContent: a part of `data` is not JSON; the error names it.
        """
        require_text("kind", kind, is_filled=True)
        return cls(kind=kind, data=data)

    def as_llm(self) -> None:
        """Return None, because the message is not for a model."""
        return

    @property
    def turn_id(self) -> None:
        """Always None, because an agent event names its turn in `data`."""
        return

    @property
    def timestamp(self) -> None:
        """Always None, because the envelope has the time."""
        return

    def with_turn_id(self, turn_id: object) -> Self:
        """Return this message unchanged."""
        del turn_id
        return self

    @model_serializer(mode="wrap")
    def _keep_null_data(self, default: SerializerFunctionWrapHandler) -> JsonValue:
        # `data` is required in the JSON, but `exclude_none` would leave out a null.
        plain: JsonValue = default(self)
        if self.data is None and isinstance(plain, dict):
            plain["data"] = None
        return plain


class ExtensionData(Wire):
    """The typed data of an extension message: the base class of commands and agent events."""

    KIND: ClassVar[str]
    """the kind of the extension message that `as_extension` returns"""

    def as_extension(self) -> ExtensionMessage:
        """Return the extension message to publish."""
        return ExtensionMessage(kind=self.KIND, data=self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @classmethod
    def read(cls, data: JsonValue) -> Self:
        """Return an object of this class, made from the `data` of an extension message.

        Raises:
            DecodeError: the data does not fit this class. The error names the path of the fault.
        """
        try:
            return cls.model_validate(data, strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise DecodeError(".".join(("data", *map(str, first["loc"]))), json_reason(first)) from None
