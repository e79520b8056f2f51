"""Errors in building a request."""

from lanebus.bus.errors import MessageError, SetupError

__all__ = ("ContentRefused", "NoModel", "ToolNotOffered")


class ToolNotOffered(SetupError):
    """The tool choice names a tool that the request does not offer.

    Fields: `name` of the tool; `offered`, the names of the offered tools.
    """

    def __init__(self, name: str, offered: tuple[str, ...]) -> None:
        known = ", ".join(map(repr, offered))
        super().__init__(f"the tool choice names {name!r}, which is not offered", f"choose one of {known}, or offer it")
        self.name, self.offered = name, offered


class NoModel(MessageError):
    """The request needs a model, but the caller passed none and the session names none.

    Fields: `session`, the session's id.
    """

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} names no model yet", "pass one as `model`")
        self.session = session


class ContentRefused(MessageError):
    """Strict mode: the provider's API cannot represent a part of the context.

    Fields: `provider`; `losses`, one text per part that would be left out or changed, with the part's place.
    """

    def __init__(self, provider: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{provider} cannot carry: {'; '.join(losses)}", "change it, or turn strict mode off")
        self.provider, self.losses = provider, losses
