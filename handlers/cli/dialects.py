"""Convert messages of one system to messages of another system, or to a provider's request. Pure."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.cli.terminal.values import BadInput, Values
from lanebus.handlers.codecs.codec import Codec
from lanebus.handlers.codecs.native import NATIVE
from lanebus.handlers.codecs.registry import CODECS
from lanebus.handlers.context.fold import Context, evolve
from lanebus.handlers.providers.common.errors import ContentRefused
from lanebus.handlers.providers.common.request import ProviderRequest
from lanebus.handlers.providers.registry import PROVIDERS
from lanebus.handlers.transcripts.format import Moved, Unplaced
from lanebus.handlers.transcripts.pi import PI
from lanebus.handlers.transcripts.pi.message import read_pi_message
from lanebus.handlers.transcripts.position_map import PositionMap

__all__ = ("SOURCES", "TARGETS", "authored", "codec_of", "context_of", "read_messages", "request_of")

SOURCES = (*CODECS, PI.name, NATIVE.name)
TARGETS = (*CODECS, NATIVE.name, *PROVIDERS)


def codec_of(name: str) -> Codec:
    """Return the codec of a format. Raises KeyError for `pi` and for the providers, which have no codec."""
    return NATIVE if name == NATIVE.name else CODECS[name]


def read_messages(source: str, values: Values) -> list[Publishable]:
    """Decode the messages, in order.

    Raises:
        BadInput: a message cannot be decoded. The error names its number and the path to the fault.
    """
    messages: list[Publishable] = []
    for number, value in values.values:
        try:
            messages += _read_pi(value) if source == PI.name else codec_of(source).read(value)
        except MessageError as error:
            raise BadInput(values.where(number), str(error)) from None
    return messages


def authored(messages: Sequence[Publishable], provider: str, model: str) -> list[Publishable]:
    """Return the messages, with `provider` and `model` as the author of each assistant message that names no author.

    A request contains signed thinking only if the message names the request's provider and model as its author.
    """
    return [
        message.model_copy(update={"provider": provider, "model": model})
        if isinstance(message, AssistantMessage) and message.provider is None and message.model is None
        else message
        for message in messages
    ]


def context_of(messages: Sequence[Publishable]) -> Context:
    """Return the context of a session that contains only these messages."""
    context = Context("converted")
    for position, message in enumerate(messages, 1):
        if message.lane is Lane.LLM:
            context = evolve(context, Envelope(context.session, position, Lane.LLM, message, 0.0, ""))
    return context


def request_of(
    messages: Sequence[Publishable], provider: str, *, model: str | None, max_tokens: int | None, lossy: bool
) -> ProviderRequest:
    """Return the request that shows the messages to a model. The request's warnings name everything that is left out.

    Args:
        provider: a name in `PROVIDERS`.
        model: the model's name; None takes the model that the messages name.
        max_tokens: maximum number of tokens of the answer; None is the provider's default.
        lossy: leave out content that the request cannot contain, such as extension messages.

    Raises:
        NoModel: `model` is None and the messages name no model.
        ContentRefused: the request cannot contain some of the content, and `lossy` is false.
    """
    context = context_of(messages)
    request = PROVIDERS[provider].to_request(context, model=model, max_tokens=max_tokens)
    others = [
        f"{index}: an extension message, which no model sees"
        for index, message in enumerate(messages)
        if message.lane is not Lane.LLM
    ]
    losses = (*others, *request.warnings)
    if losses and not lossy:
        raise ContentRefused(provider, losses)
    return ProviderRequest(request.body, losses, request.call_ids, request.tool_names)


def _read_pi(value: JsonValue) -> Sequence[Publishable]:
    """Decode a message of pi, or a line of a pi session file. References to other lines go into the metadata."""
    if isinstance(value, dict) and "type" not in value:
        return (read_pi_message(value, entry_id=None, written=None, rest={}),)
    match PI.read(value).message:
        case Unplaced() as unplaced:
            return (unplaced.place(None),)
        case Moved() as moved:
            return (moved.place(PositionMap()),)
        case message:
            return (message,)
