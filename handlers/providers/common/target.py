"""The options of a request: the same names for all providers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, TypedDict

from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import AssistantMessage
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.common.errors import NoModel, ToolNotOffered
from lanebus.handlers.providers.common.tools import ToolChoice, ToolSpec

__all__ = ("ERROR_PREFIX", "ForeignThinking", "FormOptions", "RequestOptions", "Target")

ForeignThinking = Literal["drop", "text"]

ERROR_PREFIX = "[TOOL ERROR] "
"""Precedes a failed tool's result in APIs that have no field for failures."""


class FormOptions(TypedDict, total=False):
    """Options for all requests to a model. Each has the default named here."""

    tool_choice: ToolChoice | None
    """Whether the model must call a tool. Default: the model chooses."""
    strict: bool
    """Refuse content that the API cannot represent, instead of leaving it out with a warning. Default: False."""
    foreign_thinking: ForeignThinking
    """What to do with thinking that another model wrote, or that has no signature. Default: "drop"."""
    error_prefix: str
    """Precedes a failed tool's result. Default: `ERROR_PREFIX`."""
    cache: bool
    """Mark what the provider should cache, for APIs that need such marks. Default: False."""
    merge_developer: bool
    """Send developer instructions with the role "system", even if the API has a role for them. Default: False."""
    store: bool | None
    """Whether OpenAI may store the exchange. Default: not specified."""


class RequestOptions(FormOptions, total=False):
    """Options of a single request, in addition to those of `FormOptions`."""

    model: str | None
    """The model to call. Default: the context's model."""
    max_tokens: int | None
    """Most tokens of the answer. Default: the API's own limit, or 4096 if the API requires one."""
    tools: Sequence[ToolSpec]
    """The tools that the model may call. Default: none."""
    media: Mapping[str, MediaRef]
    """Stored media resolved by `resolve_media`: address → the same media inline or at a URL. Default: none."""
    stream: bool
    """Ask for server-sent events. Default: False."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The options of one request, complete."""

    provider: str
    model: str
    max_tokens: int | None = None
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice | None = None
    strict: bool = False
    foreign_thinking: ForeignThinking = "drop"
    error_prefix: str = ERROR_PREFIX
    media: Mapping[str, MediaRef] = field(default_factory=dict[str, MediaRef])
    stream: bool = False
    cache: bool = False
    merge_developer: bool = False
    store: bool | None = None

    @classmethod
    def of(cls, provider: str, context: Context, options: RequestOptions) -> Self:
        """Complete the options; the model defaults to the context's.

        A tool choice is ignored if no tools are offered.

        Raises:
            NoModel: no model is passed and the session never named one.
            ToolNotOffered: the tool choice names a tool that is not offered.
        """
        model = options.get("model") or context.model
        if model is None:
            raise NoModel(context.session)
        rest = {name: value for name, value in options.items() if name != "model"}
        target = replace(cls(provider=provider, model=model), **rest)  # type: ignore[arg-type]  # as their names say
        offered, choice = tuple(tool.name for tool in target.tools), target.tool_choice
        if choice is not None and choice.mode == "named" and offered and choice.name not in offered:
            raise ToolNotOffered(choice.name or "", offered)
        return target

    def wrote(self, message: AssistantMessage) -> bool:
        """Return whether the same model of the same provider wrote the message. Unknown if the message names neither:
        False.
        """
        return message.provider == self.provider and message.model == self.model

    def resolved(self, media: MediaRef) -> MediaRef:
        """Return the reference, or what it was resolved to if its content is in the media store.

        The result keeps the reference's own filename and type, as the same content may be stored under several.
        """
        found = self.media.get(media.address or "")
        if found is None:
            return media
        place = {"kind": found.kind, "data": found.data, "url": found.url, "file_id": found.file_id}
        return media.model_copy(update={**place, "mime_type": media.mime_type or found.mime_type})
