"""Make compaction blocks of single loops, with the `two-lane-agent` system's method and texts. Pure: publishes
nothing.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError, MessageError, require_instance
from lanebus.bus.messages import (
    AssistantMessage,
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
    parse_json,
    read_message,
)
from lanebus.handlers.context.cutting import truncated
from lanebus.handlers.context.json_fields import first_fault
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
