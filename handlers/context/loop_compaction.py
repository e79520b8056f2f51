"""Make compaction blocks of single loops, with the `two-lane-agent` system's method and texts. Pure: publishes
nothing.
"""

import json
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from lanebus.bus.errors import DecodeError, MessageError, require_instance
from lanebus.bus.messages import (
    AssistantMessage,
    Block,
    CompactedSection,
    CompactionBlock,
    DeveloperMessage,
    ExtensionMessage,
    LlmMessage,
    Publishable,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    TurnRange,
    UserMessage,
    json_reason,
    parse_json,
    read_message,
)
from lanebus.handlers.context.tokens import BY_BYTES, TokenEstimator

# Group messages by turns and loops. Pure.

_MESSAGES = "pass a list of messages, such as `context.messages`"


class MessageTurn(NamedTuple):
    """The messages of one turn."""

    number: int
    """Index of the turn in its loop, or the index of this item in the list if the message has no turn id."""
    messages: tuple[LlmMessage, ...]


def turns_of(messages: Iterable[LlmMessage]) -> tuple[MessageTurn, ...]:
    """Return the turns of one loop's messages, in order. Each message without a turn id is a turn of its own."""
    turns: list[MessageTurn] = []
    is_stamped = False
    for message in messages:
        stamp = message.turn_id
        if stamp and is_stamped and turns[-1].number == stamp.turn_index:
            turns[-1] = MessageTurn(turns[-1].number, (*turns[-1].messages, message))
        else:
            turns.append(MessageTurn(stamp.turn_index if stamp else len(turns), (message,)))
        is_stamped = stamp is not None
    return tuple(turns)


def loops_of(messages: Iterable[LlmMessage]) -> dict[str, tuple[LlmMessage, ...]]:
    """Return the messages of each loop, by loop id and in the order of the loops. Messages without a loop are left
    out."""
    require_instance("messages", messages, Iterable, _MESSAGES)
    loops: dict[str, list[LlmMessage]] = {}
    for message in messages:
        if message.turn_id is not None:
            loops.setdefault(message.turn_id.loop_id, []).append(message)
    return {loop: tuple(grouped) for loop, grouped in loops.items()}


_SHORT_BYTES = 200
"""Maximum number of bytes of a text that is used as its own summary."""

Spoken = UserMessage | AssistantMessage | ToolResultMessage
Summarize = Callable[[Sequence[LlmMessage], int, TokenEstimator], Sequence[LlmMessage]]
"""Called with (messages, tokens, estimator). Returns messages of about `tokens` tokens that replace `messages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSettings:
    """Settings that say how much of a loop to keep. The defaults come from the `two-lane-agent` system."""

    keep_first: int = 2
    """Number of turns at the start of the latest loop that stay unchanged."""
    keep_recent: int = 10
    """How many last turns of the latest loop to keep. Their long tool outputs are cut."""
    summary_tokens: int = 2_000
    """Maximum number of tokens of a loop's summary. The summary replaces all turns of the loop that do not stay."""
    tool_lines: int = 50
    """Maximum number of lines of a tool's output in the turns that stay because of `keep_recent`."""
    scope: int | Literal["tokens"] = 3
    """Number of earlier loops to compact in addition to the latest loop, newest first. "tokens" compacts as many of
    them as fit into `window_tokens` together."""
    window_tokens: int = 100_000
    """Maximum number of tokens of the loops in scope together, if `scope` is "tokens"."""


def one_line_each(messages: Sequence[LlmMessage], tokens: int, estimator: TokenEstimator) -> Sequence[LlmMessage]:
    """Return a message of one line for each answer, for as many answers as fit into `tokens`.

    If some answers do not fit, or there is no answer, a last message counts the messages that are not covered.
    """
    lines: list[LlmMessage] = []
    covered = 0
    for number, message in enumerate(messages, 1):
        if isinstance(message, AssistantMessage):
            line = f"[Summary] {_line(message)}"
            tokens -= estimator.text(line)
            if tokens < 0:
                break
            lines.append(_user(line))
            covered = number
    if any(isinstance(message, AssistantMessage) for message in messages[covered:]) or not lines:
        lines.append(_user(f"[Context compacted: {len(messages) - covered} messages removed to fit context window]"))
    return lines


def block_of(
    messages: Iterable[LlmMessage],
    settings: BlockSettings,
    *,
    is_latest: bool,
    created_at: str | None = None,
    summarize: Summarize = one_line_each,
    estimator: TokenEstimator = BY_BYTES,
) -> CompactionBlock:
    """Return the compaction block of one loop.

    The latest loop keeps its first and its recent turns. An earlier loop keeps only a summary.

    Args:
        messages: all messages of the loop.
        settings: settings that say how much to keep.
        is_latest: whether this is the session's latest loop.
        created_at: creation time of the block as RFC 3339 text; None means now.
        summarize: writes the summary.
        estimator: measures the summary.
    """
    turns = turns_of(message for message in messages if not isinstance(message, SystemMessage | DeveloperMessage))
    first = min(settings.keep_first, len(turns)) if is_latest else 0
    # A turn that stays unchanged is not repeated among the recent turns.
    recent = max(first, len(turns) - settings.keep_recent) if is_latest else len(turns)
    between = _section(turns[first:recent], lambda part: summarize(part, settings.summary_tokens, estimator))
    return CompactionBlock(
        keep_first=_range(turns[:first]),
        keep_compacted=between,
        keep_recent=_section(
            turns[recent:], lambda part: [truncated(message, settings.tool_lines) for message in part]
        ),
        created_at=created_at or datetime.now(UTC).isoformat(),
    )


def blocks_of(
    loops: Mapping[str, Sequence[LlmMessage]],
    settings: BlockSettings,
    *,
    known: Collection[str] = (),
    created_at: str | None = None,
    summarize: Summarize = one_line_each,
    estimator: TokenEstimator = BY_BYTES,
) -> dict[str, CompactionBlock]:
    """Return the compaction blocks, by loop id, of the latest loop and of the earlier loops that are in scope.

    Args:
        loops: loop id → messages of the loop, in the order of the loops, as `loops_of` returns them.
        settings: settings that say how much to keep.
        known: ids of earlier loops that already have a block. They get no new block.
        created_at: creation time of the blocks as RFC 3339 text; None means now.
        summarize: writes the summaries.
        estimator: measures the summaries.
    """
    names = list(loops)
    scope = settings.scope
    if scope == "tokens":
        scope = _loops_within(settings.window_tokens, [loops[name] for name in names[:-1]], estimator)
    chosen = names[max(0, len(names) - 1 - scope) :]
    return {
        name: block_of(
            loops[name],
            settings,
            is_latest=name == names[-1],
            created_at=created_at,
            summarize=summarize,
            estimator=estimator,
        )
        for name in chosen
        if name == names[-1] or name not in known
    }


def _loops_within(tokens: int, loops: Sequence[Sequence[LlmMessage]], estimator: TokenEstimator) -> int:
    """Return how many of the last loops together fit into `tokens` tokens."""
    count = 0
    for messages in reversed(loops):
        tokens -= sum(map(estimator.message, messages))
        if tokens < 0:
            break
        count += 1
    return count


def _range(turns: Sequence[MessageTurn]) -> TurnRange | None:
    indexes = [turn.number for turn in turns]
    return TurnRange(start_turn=min(indexes), end_turn=max(indexes)) if indexes else None


def _section(
    turns: Sequence[MessageTurn], shorten: Callable[[Sequence[LlmMessage]], Sequence[LlmMessage]]
) -> CompactedSection | None:
    of = _range(turns)
    if of is None:
        return None
    messages = shorten([message for turn in turns for message in turn.messages])
    # Instructions belong to no loop, so this filter loses no instruction.
    return CompactedSection(range=of, messages=tuple(message for message in messages if isinstance(message, Spoken)))


def _line(answer: AssistantMessage) -> str:
    texts = [block.text for block in answer.content if isinstance(block, TextBlock)]
    short = [text for text in texts if len(text.encode()) <= _SHORT_BYTES]
    if short:
        return " ".join(short)
    count = len(tuple(answer.tool_calls()))
    return f"[Assistant used {count} tool(s)]" if count else "[Assistant response]"


def _user(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text=text),))


# Read and write a compaction block as JSON in the `two-lane-agent` format. In the log, it has no extension
# messages.

_SECTIONS = ("keep_recent", "keep_compacted")


class ReadBlock(NamedTuple):
    """A compaction block, and the parts of its JSON that were left out."""

    block: CompactionBlock
    left_out: tuple[str, ...]
    """Paths of the extension messages in the JSON. They are left out because no model may read them."""


def read_block(value: JsonValue) -> ReadBlock:
    """Read a compaction block from JSON in the `two-lane-agent` format. The messages in the block may have any spelling
    that the bus reads.

    Raises:
        DecodeError: `value` is not a compaction block. The error names the path to the fault.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a compaction block is a JSON object")
    left_out: list[str] = []
    fields: dict[str, JsonValue] = {key: item for key, item in value.items() if item is not None}
    for name in _SECTIONS:
        if name in fields:
            fields[name] = _read_section(fields[name], name, left_out)
    try:
        return ReadBlock(CompactionBlock.model_validate_json(json.dumps(fields)), tuple(left_out))
    except ValidationError as error:
        names, reason = first_fault(error)
        raise DecodeError(".".join(names), reason) from None


def write_block(block: CompactionBlock) -> JsonValue:
    """Return the block as JSON in the `two-lane-agent` format."""
    return parse_json(block.to_json())


def _read_section(section: JsonValue, path: str, left_out: list[str]) -> JsonValue:
    if not isinstance(section, dict) or not isinstance(messages := section.get("messages"), list):
        raise DecodeError(path, "wants an object with a range and a list of messages")
    read: list[JsonValue] = []
    for index, value in enumerate(messages):
        place = f"{path}.messages.{index}"
        message = _message(value, place)
        if isinstance(message, ExtensionMessage):
            left_out.append(place)
        else:
            read.append(parse_json(message.to_json()))
    return {**section, "messages": read}


def _message(value: JsonValue, path: str) -> Publishable:
    try:
        return read_message(json.dumps(value))
    except DecodeError as error:
        raise DecodeError(f"{path}.{error.path}" if error.path else path, error.reason) from None
    except MessageError as error:
        raise DecodeError(path, str(error)) from None


# Cut long texts: at a length without cutting a character that people see, or in the middle. Pure.


_JOINER = "\u200d"
"""joins the characters on both sides, such as those of a family emoji"""


def cut_text(text: str, length: int) -> str:
    """Return the longest start of at most `length` code points that does not end within a character.

    Marks, joined consonants and emoji, skin tones and flags stay whole. A character longer than `length` is left out.
    """
    if len(text) <= length:
        return text
    while length > 0 and _is_within(text, length):
        length -= 1
    return text[:length]


def _is_within(text: str, place: int) -> bool:
    """Return whether a place between two code points is within one character."""
    before, after = text[place - 1], text[place]
    joins = before == _JOINER or unicodedata.combining(before) == 9  # class 9 joins two consonants, as in Devanagari
    if joins or _extends(after):
        return True
    if not (_is_regional(before) and _is_regional(after)):
        return False
    return len([*takewhile(_is_regional, reversed(text[:place]))]) % 2 == 1  # two of them are a flag


def _extends(character: str) -> bool:
    if "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7fb" or character in "\u0e33\u0eb3":
        return True  # vowels and finals of Hangul, and the Thai and Lao vowel AM: letters that continue a character
    is_skin_or_tag = "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f"
    return character == _JOINER or is_skin_or_tag or unicodedata.category(character) in {"Mn", "Me", "Mc"}


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


# Cut long tool outputs in the middle. Pure; the text is from the `two-lane-agent` system.


def head_and_tail(text: str, most_lines: int) -> str:
    """Return the text. If it has more than `most_lines` lines, replace the lines in the middle by a note."""
    lines = text.splitlines()
    if len(lines) <= most_lines:
        return text
    head, tail = lines[: most_lines // 2], lines[len(lines) - (most_lines - most_lines // 2) :]
    cut = len(lines) - most_lines
    return "\n".join(head) + f"\n\n[... {cut} lines truncated ...]\n\n" + "\n".join(tail)


def truncated(message: LlmMessage, most_lines: int) -> LlmMessage:
    """Return a tool result with its long texts cut by `head_and_tail`, and any other message unchanged.

    If a text is cut, `structured` is None in the result.
    """
    if not isinstance(message, ToolResultMessage):
        return message
    content = tuple(_cut_block(block, most_lines) for block in message.content)
    if content == message.content:
        return message
    # The structured result is dropped, because it would still hold the whole output.
    return message.model_copy(update={"content": content, "structured": None})


def _cut_block(block: Block, most_lines: int) -> Block:
    if not isinstance(block, TextBlock):
        return block
    text = head_and_tail(block.text, most_lines)
    return block if text == block.text else block.model_copy(update={"text": text})


# Checked access to the fields of JSON from other programs. Every error names the path of the field.


Object = dict[str, JsonValue]

M = TypeVar("M", bound=BaseModel)


def below(path: str, name: str | int) -> str:
    """Return the path of a field of the value at `path`."""
    return f"{path}.{name}" if path else str(name)


def as_object(value: JsonValue, path: str) -> Object:
    """Return the value. Raise DecodeError if it is not an object."""
    if not isinstance(value, dict):
        raise DecodeError(path, "wants an object")
    return value


def as_list(value: JsonValue, path: str) -> list[JsonValue]:
    """Return the value. Raise DecodeError if it is not a list."""
    if not isinstance(value, list):
        raise DecodeError(path, "wants a list")
    return value


def as_text(value: JsonValue, path: str) -> str:
    """Return the value. Raise DecodeError if it is not a string."""
    if not isinstance(value, str):
        raise DecodeError(path, "wants text")
    return value


def as_flag(value: JsonValue, path: str) -> bool:
    """Return the value. Raise DecodeError if it is neither true nor false."""
    if not isinstance(value, bool):
        raise DecodeError(path, "wants true or false")
    return value


def as_whole(value: JsonValue, path: str, *, limit: int | None = None, wants: str = "a whole number from 0") -> int:
    """Return the value, an integer from 0.

    Args:
        value: the value.
        path: path of the value, for the error.
        limit: the value must be less than `limit`. None means unlimited.
        wants: description of the expected value, for the error.

    Raises:
        DecodeError: the value is not an integer from 0, or is not less than `limit`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (limit is not None and value >= limit):
        raise DecodeError(path, f"wants {wants}")
    return value


def made(kind: type[M], fields: Mapping[str, object], path: str = "") -> M:
    """Return an object of the pydantic model `kind`. The model may be stricter than the program that wrote the fields.

    Raises:
        DecodeError: a field is not valid; its path is below `path`.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        names, reason = first_fault(error)
        raise DecodeError(".".join(filter(None, (path, *names))), reason) from None


def first_fault(error: ValidationError) -> tuple[list[str], str]:
    """Return where the first fault is, as a list of field names from the outside in, and the reason of the fault.

    The reason does not contain the value.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return [*map(str, first["loc"])], json_reason(first)
