"""The user's message of `ask`, `steer` and `follow_up`, which callers pass as a text or as a message."""

from lanebus.bus.errors import InvalidArgument
from lanebus.bus.messages.message import UserMessage

__all__ = ("as_user_message",)


def as_user_message(said: object) -> UserMessage:
    """Return `said` as a user message.

    Raises:
        InvalidArgument: `said` is neither a text nor a user message. A message of another type would wake no worker.
    """
    if isinstance(said, str):
        return UserMessage.text(said)
    if not isinstance(said, UserMessage):
        raise InvalidArgument("said", said, "pass a text, or a UserMessage")
    return said
