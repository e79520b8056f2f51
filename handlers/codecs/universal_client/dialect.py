"""Convert between the `universal-client` system's messages and lanebus messages, field by field."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.errors import InvalidArgument, UnknownRole, require_text
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.codecs.codec import Codec
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.codecs.round_trip import Dialect, round_trip_codec
from lanebus.handlers.codecs.universal_client.answers import finish_of, usage_of, written_finish, written_usage
from lanebus.handlers.codecs.universal_client.media import Files, inlined
from lanebus.handlers.codecs.universal_client.parts import can_say, kind_of, read_part, read_parts, written_parts
from lanebus.handlers.json_fields import Object

__all__ = ("UNIVERSAL_CLIENT", "universal_client_codec")

_ABOUT = "a client for all providers: content parts with a field kind"

_SPOKEN: dict[str, type[SystemMessage | DeveloperMessage | UserMessage]] = {
    "system": SystemMessage,
    "developer": DeveloperMessage,
    "user": UserMessage,
}


def universal_client_codec(
    *, provider: str | None = None, model: str | None = None, files: Files | None = None
) -> Codec:
    """Return the codec of the `universal-client` system's messages.

    A history of the `universal-client` system does not name the provider and model that wrote an answer. Signed
    thinking may be sent only to the model that wrote it, so pass `provider` and `model` if you know them.

    The client's responses, unlike its histories, have the fields `provider`, `model`, `usage` and `finish_reason`. They
    are read if an answer has them, and written back.

    Args:
        provider, model: provider and model to record in answers that do not name them. If the history has signed
            thinking, the provider is Anthropic.
        files: reads the local files that messages name; see `Files`. None opens no file and refuses such messages.
    """
    require_text("provider", provider, is_optional=True)
    require_text("model", model, is_optional=True)
    if files is not None and not callable(files):
        raise InvalidArgument("files", files, "pass a function that returns a MediaRef, or None")

    def prepare(value: JsonValue) -> JsonValue:
        return inlined(value, files)

    def read(value: JsonValue) -> tuple[Publishable, ...]:
        return _read(JsonObject.of(value), provider, model)

    def write(group: Sequence[Publishable]) -> JsonValue | None:
        return _written(group, provider, model)

    return round_trip_codec(Dialect(name="004", about=_ABOUT, read=read, write=write, can_say=can_say, prepare=prepare))


UNIVERSAL_CLIENT = universal_client_codec()


def _read(source: JsonObject, provider: str | None, model: str | None) -> tuple[Publishable, ...]:
    role = source.required_text("role")
    role = role.lower() if role.isupper() else role
    if role in {"tool", "toolResult"}:
        return _results(source)
    if role not in {*_SPOKEN, "assistant"}:
        raise UnknownRole(role)
    content, name = _content(source), source.text("name")
    if role in _SPOKEN:
        return (_SPOKEN[role](content=content, name=name),)
    calls = any(isinstance(block, ToolCallBlock) for block in content)
    author = source.text("provider") or provider
    stop_reason, raw = finish_of(source, has_calls=calls)
    answer = AssistantMessage(
        content=content,
        name=name,
        stop_reason=stop_reason,
        raw_stop_reason=raw,
        usage=usage_of(source, author),
        provider=author,
        model=source.text("model") or model,
    )
    return (answer,)


def _results(source: JsonObject) -> tuple[Publishable, ...]:
    """Return the results of a tool message.

    A tool message without result parts is one result. Its parts answer the call that `tool_call_id` names.
    """
    envelope, name = source.text("tool_call_id"), source.text("name")
    parts = [JsonObject.of(part, path) for part, path in source.items("content")] if _is_list(source) else []
    blocks = [read_part(part, call_id=envelope) for part in parts]
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    if not results:
        content = _content(source)
        call_id = source.required_text("tool_call_id")
        return (ToolResultMessage(tool_call_id=call_id, tool_name=name, content=content),)
    for part, block in zip(parts, blocks, strict=True):
        if not isinstance(block, ToolResultBlock):
            raise part.fault("kind", f"{kind_of(part)} stands beside a result")
    messages = ToolResultMessage.from_results(results, batch_id=source.digest())
    return tuple(message.model_copy(update={"tool_name": name, "timestamp": None}) for message in messages)


def _content(source: JsonObject) -> tuple[Block, ...]:
    """Return the blocks of a message. A null `content` has no blocks; a missing `content` is an error."""
    if source.fields.get("content", "") is None:
        return ()
    return read_parts(source.value("content"), source.at("content"))


def _is_list(source: JsonObject) -> bool:
    return isinstance(source.fields.get("content"), list)


def _written(group: Sequence[Publishable], provider: str | None, model: str | None) -> JsonValue | None:
    match group[0]:
        case ToolResultMessage():
            return _written_results([message for message in group if isinstance(message, ToolResultMessage)])
        case AssistantMessage() as answer:
            return {**_message(answer, "assistant"), **_answer_fields(answer, provider, model)}
        case SystemMessage() | DeveloperMessage() | UserMessage() as message:
            return _message(message, message.role)
        case _:
            return None


def _message(message: LlmMessage, role: str) -> Object:
    name: Object = {} if message.name is None else {"name": message.name}
    return {"role": role, "content": written_parts(message.content), **name}


def _answer_fields(answer: AssistantMessage, provider: str | None, model: str | None) -> Object:
    calls = any(isinstance(block, ToolCallBlock) for block in answer.content)
    fields: Object = {
        "finish_reason": written_finish(answer, has_calls=calls),
        "usage": None if answer.usage is None else written_usage(answer.usage, answer.provider),
        "provider": None if answer.provider == provider else answer.provider,
        "model": None if answer.model == model else answer.model,
    }
    return {name: item for name, item in fields.items() if item is not None}


def _written_results(results: Sequence[ToolResultMessage]) -> Object:
    value: Object = {"role": "tool", "content": written_parts(tuple(result.as_block() for result in results))}
    if len(results) == 1:
        value["tool_call_id"] = results[0].tool_call_id
    if results[0].tool_name is not None:
        value["name"] = results[0].tool_name
    return value
