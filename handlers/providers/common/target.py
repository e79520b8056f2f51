"""Whom a request is for, and what its author wants of it: the same words for all providers."""

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
"""before a failed tool's result, where the wire has no field that says so"""


class FormOptions(TypedDict, total=False):
    """What holds for all requests to a model, by keyword. What is not given has the default named here."""

    tool_choice: ToolChoice | None
    """not said: the model chooses"""
    strict: bool
    """refuse what the wire cannot carry, rather than leave it out with a warning; False"""
    foreign_thinking: ForeignThinking
    """what becomes of thinking that another model wrote, or that has no signature; "drop\""""
    error_prefix: str
    """`ERROR_PREFIX`"""
    cache: bool
    """mark what the provider is to keep for the next request, where its API wants to be told; False"""
    merge_developer: bool
    """tell a developer's instructions as the system's, also where the wire has a role for them; False"""
    store: bool | None
    """whether OpenAI may keep the exchange; not said"""


class RequestOptions(FormOptions, total=False):
    """What may be asked of a single request, too."""

    model: str | None
    """whom to ask; the context's own model"""
    max_tokens: int | None
    """most tokens of the answer; what the API takes by itself, and 4096 where it wants to be told"""
    tools: Sequence[ToolSpec]
    """none"""
    media: Mapping[str, MediaRef]
    """stored media that was looked up before, by `resolve_media`: address → the same inline or at a URL; none"""
    stream: bool
    """ask for server-sent events; False"""


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
        """The options, with the context's model where none is given.

        Raises:
            NoModel: the session never named one either.
            ToolNotOffered: the tool choice names none of the tools. Without any tools it is not said at all.
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
        """Whether the same model at the same provider wrote it; of one that names neither, nobody can say."""
        return message.provider == self.provider and message.model == self.model

    def resolved(self, media: MediaRef) -> MediaRef:
        """The reference itself, or what it was resolved to where its content is in the media store. It keeps its own
        name and type: the same content may be there under several."""
        found = self.media.get(media.address or "")
        if found is None:
            return media
        place = {"kind": found.kind, "data": found.data, "url": found.url, "file_id": found.file_id}
        return media.model_copy(update={**place, "mime_type": media.mime_type or found.mime_type})
