"""What is said in the extension lane: for UIs and handlers, never for a model."""

from typing import ClassVar, Literal, Self

from pydantic import JsonValue, SerializerFunctionWrapHandler, model_serializer

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.lanes import Lane

__all__ = ("CONTROL", "ExtensionMessage")


CONTROL = "control."
"""how the kinds of messages begin that steer a running loop"""


class ExtensionMessage(Wire):
    """A notification, progress, an agent event, control: `{"role":"extension","kind":…,"data":…}`.

    Nothing turns it into a message for a model: no base class, constructor or codec leads there.
    """

    lane: ClassVar[Lane] = Lane.EXTENSION

    role: Literal["extension"] = "extension"
    kind: str
    data: JsonValue

    @property
    def is_control(self) -> bool:
        """It steers a running loop, as the kinds `control.…` do: it still goes in where a session is full."""
        return self.kind.startswith(CONTROL)

    @classmethod
    def of(cls, kind: str, data: JsonValue = None) -> Self:
        """A message of any kind. The kinds `agent.…` are the agent's events, see `events/`."""
        return cls(kind=kind, data=data)

    def as_llm(self) -> None:
        """None: it is not for a model."""
        return

    @property
    def turn_id(self) -> None:
        """None: an extension message carries no turn of its own; an agent event names its turn in `data`."""
        return

    @property
    def timestamp(self) -> None:
        """None: its envelope has the time."""
        return

    def with_turn_id(self, turn_id: object) -> Self:
        """This message, unchanged."""
        del turn_id
        return self

    @model_serializer(mode="wrap")
    def _keep_null_data(self, default: SerializerFunctionWrapHandler) -> JsonValue:
        # `data` is required in JSON, also where it is null, and would be left out with the absent fields.
        plain: JsonValue = default(self)
        if self.data is None and isinstance(plain, dict):
            plain["data"] = None
        return plain
