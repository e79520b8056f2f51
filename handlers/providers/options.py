"""The options of a request and the tools that it offers. All providers use the same option names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal, NamedTuple, Self, TypedDict, cast, get_args

from pydantic import JsonValue

from lanebus.bus.errors import (
    DecodeError,
    InvalidArgument,
    MessageError,
    SetupError,
    require_choice,
    require_count,
    require_flag,
    require_instance,
    require_text,
)
from lanebus.bus.messages import AssistantMessage, MediaRef
from lanebus.handlers.context import Context

# The tools that a request offers, independent of the provider.


class _Spec(NamedTuple):
    name: str
    description: str
    schema: dict[str, JsonValue]
    """JSON schema of the tool's arguments. The arguments are a JSON object."""


class ToolSpec(_Spec):
    """A tool as a model sees it.

    Raises:
        InvalidArgument: `name` is no text or empty, `description` is no text, or `schema` is no dict.
    """

    __slots__ = ()

    def __new__(cls, name: str, description: str, schema: dict[str, JsonValue]) -> Self:
        require_text("name", name, is_filled=True)
        require_text("description", description)
        require_instance("schema", schema, dict, 'pass a JSON schema, such as {"type": "object"}')
        return super().__new__(cls, name, description, schema)

    @classmethod
    def read(cls, value: JsonValue, path: str = "") -> Self:
        """Read a tool from its JSON, in the form of any provider.

        The schema's key is `schema`, `input_schema`, `inputSchema` or `parameters`. The whole tool may be nested in
        `function`.

        Args:
            value: the tool's JSON.
            path: path of `value`, for errors.

        Raises:
            DecodeError: the tool has no name, or its schema is not an object.
        """
        if isinstance(value, dict) and isinstance(function := value.get("function"), dict):
            value = function
        if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
            raise DecodeError(path, "a tool is a JSON object with a name")
        keys = [key for key in ("schema", "input_schema", "inputSchema", "parameters") if key in value]
        schema: JsonValue = value[keys[0]] if keys else {"type": "object"}
        if not isinstance(schema, dict):
            raise DecodeError(f"{path}.{keys[0]}" if path else keys[0], "a schema is a JSON object")
        description = value.get("description")
        return cls(name, description if isinstance(description, str) else "", schema)


class _Choice(NamedTuple):
    mode: Literal["auto", "required", "none", "named"]
    name: str | None = None
    """Name of the tool that the model must call, if `mode` is "named"; otherwise None."""


class ToolChoice(_Choice):
    """Whether the model may, must or must not call a tool.

    Raises:
        InvalidArgument: there is no such `mode`, or the mode "named" has no `name`.
    """

    __slots__ = ()

    def __new__(cls, mode: Literal["auto", "required", "none", "named"], name: str | None = None) -> Self:
        require_choice("mode", mode, ("auto", "required", "none", "named"))
        require_text("name", name, is_optional=mode != "named", is_filled=mode == "named")
        return super().__new__(cls, mode, name)


# The options of a request. All providers use the same option names.

ForeignThinking = Literal["drop", "text"]

ERROR_PREFIX = "[TOOL ERROR] "
"""Default prefix of a failed tool's result, for APIs that have no field for failures."""


class FormOptions(TypedDict, total=False):
    """Options for all requests to a model. All options are optional."""

    tool_choice: ToolChoice | None
    """Whether the model may, must or must not call a tool. Default: the model chooses."""
    strict: bool
    """Refuse content that the API cannot represent, instead of leaving it out with a warning. Default: False."""
    foreign_thinking: ForeignThinking
    """How to treat thinking that another model wrote, or that has no signature: leave it out ("drop") or send it as
    text ("text"). Default: "drop".
    """
    error_prefix: str
    """Prefix of a failed tool's result, for APIs that have no field for failures. Default: `ERROR_PREFIX`."""
    cache: bool
    """Mark the parts of the request that the provider should cache, for APIs that need such marks. Default: False."""
    merge_developer: bool
    """Send developer instructions with the role "system", even if the API has a role for them. Default: False."""
    store: bool | None
    """Whether OpenAI may store the exchange. Default: not specified."""


class RequestOptions(FormOptions, total=False):
    """Options of a single request, in addition to the options of `FormOptions`."""

    model: str | None
    """The model to call. Default: the context's model."""
    max_tokens: int | None
    """Maximum number of tokens of the answer. Default: the API's own limit, or 4096 if the API requires one."""
    tools: Sequence[ToolSpec]
    """The tools that the model may call. Default: none."""
    media: Mapping[str, MediaRef]
    """Address of stored media → the same media inline or at a URL, as `resolve_media` returns. Default: empty."""
    stream: bool
    """Ask for server-sent events. Default: False."""


def _require_options(options: RequestOptions) -> None:
    """Raise InvalidArgument unless each option exists and has a valid value."""
    given = cast("Mapping[str, object]", options)
    known = {**FormOptions.__annotations__, **RequestOptions.__annotations__}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            advice = f"did you mean `{near[0]}`?" if near else f"the options are {', '.join(sorted(known))}"
            raise InvalidArgument(name, given[name], f"no such option: {advice}")
    require_text("model", given.get("model"), is_optional=True)
    require_count("max_tokens", given.get("max_tokens"), least=1, is_optional=True)
    names = [tool.name for tool in options.get("tools", ())]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise InvalidArgument("tools", twice, "give each tool a name of its own")
    require_instance(
        "tool_choice", given.get("tool_choice"), ToolChoice, 'pass ToolChoice("required")', is_optional=True
    )
    require_choice("foreign_thinking", given.get("foreign_thinking", "drop"), get_args(ForeignThinking))
    require_text("error_prefix", given.get("error_prefix", ""))
    for name in ("strict", "cache", "merge_developer", "stream"):
        require_flag(name, given.get(name, False))
    require_flag("store", given.get("store"), is_optional=True)
    require_instance("media", given.get("media", {}), Mapping, "pass what `resolve_media` returns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The options of one request, with defaults filled in."""

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
        """Return the options with defaults filled in. The default model is the context's model.

        A tool choice is ignored if no tools are offered.

        Raises:
            InvalidArgument: an option does not exist or has a wrong type.
            NoModel: no model is passed, and the session names no model.
            ToolNotOffered: the tool choice names a tool that is not offered.
        """
        _require_options(options)
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
        """Return whether this target's model and provider wrote the message.

        Return False if the message does not name a model and a provider.
        """
        return message.provider == self.provider and message.model == self.model

    def resolved(self, media: MediaRef) -> MediaRef:
        """Replace a reference to stored media by the media in the option `media`. If the option does not have the
        reference's address, return the reference unchanged.

        The result keeps the reference's own file name and media type, because several references may share one content.
        """
        found = self.media.get(media.address or "")
        if found is None:
            return media
        return media.model_copy(
            update={
                "kind": found.kind,
                "data": found.data,
                "url": found.url,
                "file_id": found.file_id,
                "mime_type": media.mime_type or found.mime_type,
            }
        )


# Errors in building a request.


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
