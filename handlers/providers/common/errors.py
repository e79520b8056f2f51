"""What can be wrong with a request or with a provider's answer."""

from lanebus.bus.errors import MessageError, SetupError

__all__ = ("ContentRefused", "NoModel", "ToolNotOffered")


class ToolNotOffered(SetupError):
    """A request wants the model to call a tool that it does not offer.

    Fields: `name`, the tool's; `offered`, the names of those that the request offers.
    """

    def __init__(self, name: str, offered: tuple[str, ...]) -> None:
        known = ", ".join(map(repr, offered))
        super().__init__(f"the tool choice names {name!r}, which is not offered: choose one of {known}, or offer it")
        self.name, self.offered = name, offered


class NoModel(MessageError):
    """A request needs a model, none was given and the session never named one."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} names no model yet: give one as `model`")
        self.session = session


class ContentRefused(MessageError):
    """Strict mode: a provider's wire cannot carry something that stands in the context.

    Fields: `provider`; `losses`, one text for each thing that would have been left out or changed, with its place.
    """

    def __init__(self, provider: str, losses: tuple[str, ...]) -> None:
        super().__init__(f"{provider} cannot carry: {'; '.join(losses)}: change it, or turn strict mode off")
        self.provider, self.losses = provider, losses
