"""The messages of the LLM lane, their live deltas, and the entries that change the context but are not messages.

These entries refer to other entries by position, so a session's tree needs no other ids. Each entry of the LLM lane is
a child of the leaf. The leaf is the previous entry, unless a `LeafMove` selected another entry.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self, cast
from uuid import uuid4

from pydantic import AfterValidator, Field, JsonValue, model_validator

from lanebus.bus.errors import DecodeError, require_instance, require_text
from lanebus.bus.messages.base import Frozen, Lane, Usage, Wire
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    Blocks,
    ImageBlock,
    MediaRef,
    Metadata,
    Picture,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    blocks_text,
    has_null_arguments,
    result_text,
    with_null_arguments,
)
from lanebus.bus.text import number_in


class TurnId(Wire):
    """The id of a turn: one model call with its tools. In JSON: `{"loopId":"s1.main.1","turnIndex":0}`."""

    loop_id: str
    """`<session>.<config>.<N>`. N counts the loops of each session and config, from 1"""
    turn_index: Annotated[int, Field(ge=0)]
    """number of the turn in its loop, from 0"""

    @classmethod
    def from_text(cls, text: str, session: str | None = None) -> "TurnId":
        """Read an id as `str` writes it, such as `support-42.main.3#0`.

        Args:
            text: the id.
            session: id of the session that a short id such as `main.3#0` belongs to. `lanebus turns` prints short ids.
                None reads `text` as it is.

        Raises:
            DecodeError: the text is no turn id.
        """
        require_text("text", text)
        loop_id, _, digits = text.rpartition("#")
        index = number_in(digits)
        if not loop_id or index is None:
            raise DecodeError("", f"{text[:100]!r} is not a turn id: write one such as support-42.main.3#0")
        # A loop id has two dots. A loop id with fewer dots names no session, even if it begins with the session's name.
        is_short = session is not None and loop_id.count(".") < 2
        return cls(loop_id=f"{session}.{loop_id}" if is_short else loop_id, turn_index=index)

    @property
    def session(self) -> str:
        """The session id: the part of `loop_id` before the first dot, or all of `loop_id` if it has no dot."""
        return self.loop_id.partition(".")[0]

    @property
    def config_segment(self) -> str | None:
        """The configuration in `loop_id`: the text between the first and last dot. None if there are fewer than two."""
        parts = self.loop_id.split(".")
        return ".".join(parts[1:-1]) if len(parts) > 2 else None

    def __str__(self) -> str:
        return f"{self.loop_id}#{self.turn_index}"


# Nodes of a conversation tree, for agent systems that number and tag nodes themselves. Source: the `two-lane-agent`
# system.
#
# The bus itself needs no nodes: positions in the log define the tree.

LARGEST_NODE = 2**64 - 1

NodeId = Annotated[int, Field(ge=0, le=LARGEST_NODE)]
"""A node's number in the author's conversation tree. It is a number in JSON, and `n12` in text for a model."""

RevertCategory = Literal["failure", "tangent", "finding", "completion", "step-summary"]
"""The reason for leaving a branch."""

TagKind = Literal["lesson", "finding", "outcome", "checkpoint"]


class NodeTag(Frozen):
    """Something learned in an abandoned branch, stored at the node where the conversation continued."""

    kind: TagKind
    text: str
    created_at_turn: Annotated[int, Field(ge=0, le=2**32 - 1)]
    abandoned_node_ids: Annotated[tuple[NodeId, ...], Field(strict=False)]

    @property
    def is_decaying(self) -> bool:
        """Whether a prompt may drop the tag after some turns: true for lessons and findings."""
        return self.kind in {"lesson", "finding"}


# Base classes of the messages of the LLM lane.

# The order of the keys in the JSON is meant for people: role, content, result, time.
_KEYS = (
    *("role", "tool_call_id", "tool_name", "content", "structured", "is_error", "status"),
    *("stop_reason", "raw_stop_reason", "model", "provider", "usage", "timestamp", "error_message", "turn_id", "id"),
)


def now_ms() -> int:
    """Return the present time for a message's timestamp: milliseconds since 1970 UTC.

    Messages are ordered by position, not by timestamp.
    """
    return time.time_ns() // 1_000_000


class LlmMessage(Wire):
    """A message of the LLM lane. This is the base class; each role has a subclass.

    Source: the `two-lane-agent` system's `LlmMessage`, whose JSON is the plain message with an optional `turnId`.
    """

    lane: ClassVar[Lane] = Lane.LLM

    content: Blocks = ()
    timestamp: int | None = None
    """time of the message by the author's clock, in milliseconds since 1970 UTC"""
    turn_id: TurnId | None = None
    """the turn that the message belongs to. None for imported history, and until a loop processes the message"""
    id: str | None = None
    """the author's own id for the message. In the log, the position identifies the message"""
    name: str | None = None
    """the author's name, if the role is not enough"""
    metadata: Metadata | None = None
    """private data, never sent to a provider"""
    raw: JsonValue = None
    """the provider's own object for the message; None if it was not kept. It is never sent to a provider"""
    node_id: NodeId | None = None
    """the message's node in the author's conversation tree; None if the author's system has no tree"""
    parent_id: NodeId | None = None
    """the parent node of `node_id`"""
    tags: Annotated[tuple[NodeTag, ...] | None, Field(strict=False)] = None
    """lessons from branches that the author abandoned"""
    provenance_hint: JsonValue = None
    """the origin of the message, as the author's system recorded it"""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Order the fields so that the JSON begins with `role`. Pydantic would put this base class's fields first."""
        names = cls.__pydantic_fields__
        first = {name: names[name] for name in _KEYS if name in names}
        cls.__pydantic_fields__ = {**first, **names}
        cls.model_rebuild(force=True)

    def to_json_bytes(self) -> bytes:
        """Return the message's JSON as it is stored in the log. Null arguments of a tool call stay null."""
        data = self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)
        return with_null_arguments(data, self.content) if has_null_arguments(self.content) else data

    def text_content(self) -> str:
        """Return the text of all text blocks, joined without a separator; "" if there are no text blocks."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    def text_with_results(self) -> str:
        """Return the text of all text blocks and tool results, joined without a separator.

        If a tool result has JSON but no text, its JSON is part of the returned text.
        """
        return blocks_text(self.content)

    def as_llm(self) -> "LlmMessage":
        """Return this message. For a message that is not for a model, `ExtensionMessage.as_llm` returns None."""
        return self

    def is_context_overflow(self, *, window: int | None = None, exact_001: bool = False) -> bool:
        """Return False. Only an assistant message can report a context overflow."""
        del window, exact_001
        return False

    def with_turn_id(self, turn_id: TurnId | None) -> Self:
        """Return a copy with another turn id; None removes it."""
        return self.model_copy(update={"turn_id": turn_id})

    def with_node(self, node_id: NodeId | None, parent_id: NodeId | None) -> Self:
        """Return a copy with another node of the author's tree."""
        return self.model_copy(update={"node_id": node_id, "parent_id": parent_id})


class Spoken(LlmMessage):
    """Base class of the messages that need only content. It defines the constructors `of` and `text`."""

    @classmethod
    def of(cls, *content: Block | str) -> Self:
        """Return a message with the texts and blocks of `content`, stamped with the present time."""
        return cls(content=as_blocks(content), timestamp=now_ms())

    @classmethod
    def text(cls, text: str) -> Self:
        """Return a message with one text, stamped with the present time."""
        return cls.of(text)


def as_blocks(content: Iterable[Block | str]) -> tuple[Block, ...]:
    """Return the content as blocks. A text becomes a `TextBlock`; a block does not change."""
    blocks = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
    for block in blocks:
        require_instance("content", block, Wire, "pass texts and blocks, such as TextBlock(text=…)")
    return blocks


StopReason = Literal[
    "stop",
    "length",
    "toolUse",
    "error",
    "aborted",
    "maxTurns",
    "userStop",
    "handoff",
    "guardRail",
    "contextCompacted",
    "paused",
]
"""Why an answer, a turn or a loop ended."""


class AssistantMessage(Spoken):
    """A model's answer. Failed and aborted answers are included; `stop_reason` distinguishes them."""

    role: Literal["assistant"] = "assistant"
    stop_reason: StopReason = "stop"
    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    error_message: Annotated[
        str | None, Field(validation_alias="error_message", serialization_alias="error_message")
    ] = None
    response_id: str | None = None
    raw_stop_reason: str | None = None
    """the stop reason as the provider reported it, which may be more specific than `stop_reason`"""

    def tool_calls(self) -> Iterator[ToolCallBlock]:
        """Return the tool calls that the model requested, in order."""
        return (block for block in self.content if isinstance(block, ToolCallBlock))

    def thinking(self) -> Iterator[ThinkingBlock]:
        """Return the readable thinking blocks, in order."""
        return (block for block in self.content if isinstance(block, ThinkingBlock))

    def is_context_overflow(self, *, window: int | None = None, exact_001: bool = False) -> bool:
        """Return whether the call failed because the request exceeded the model's context window.

        Args:
            window: the context window in tokens. If given, also return True for an answer that stopped normally but
                whose input is larger than the window, because some providers truncate the request silently. None skips
                this check.
            exact_001: return the same result as the `two-lane-agent` system; see `says_overflow`.

        Source: the `two-lane-agent` system; the check for silent truncation is from pi.
        """
        if self.stop_reason == "error" and self.error_message is not None:
            return says_overflow(self.error_message, exact_001=exact_001)
        if window is None or exact_001 or self.stop_reason != "stop" or self.usage is None:
            return False
        return self.usage.input + self.usage.cache_read > window

    @property
    def is_failed(self) -> bool:
        """Whether the answer ended with an error or was aborted. A failed answer is in the log, not in the context."""
        return self.stop_reason in {"error", "aborted"}


class ToolResultMessage(LlmMessage):
    """The result of one tool call."""

    role: Literal["toolResult"] = "toolResult"
    tool_call_id: str
    tool_name: str | None = None
    is_error: bool = False
    structured: JsonValue = None
    """the result as JSON, if the tool returned JSON. `content` has the same result in the form for the model"""
    status: Literal["completed", "failed"] | None = None
    terminate: bool | None = None
    """whether the loop may end without another model call; None means no. The loop ends only if `terminate` is True in
    the results of all tool calls of the answer"""
    terminate_message: str | None = None
    """the text that replaces the model's answer if `terminate` ends the loop"""
    batch_id: str | None = None
    """id that results share if they come from one message. The `coding-agent` format has several results in a
    message"""

    def text_with_results(self) -> str:
        """Return the result's text. If the result has no text, return the result's JSON."""
        return result_text(self.content, self.structured)

    @classmethod
    def of(cls, call: ToolCallBlock | str, *content: Block | str, is_error: bool = False) -> Self:
        """Return the result of a call, stamped with the present time.

        Args:
            call: the tool call, or the id of the call. If it is an id, `tool_name` stays None.
            content: texts and blocks, in order.
            is_error: whether the tool failed.
        """
        require_instance("call", call, (ToolCallBlock, str), "pass a ToolCallBlock, or the id of a call")
        call_id, name = (call, None) if isinstance(call, str) else (call.id, call.name)
        return cls(
            tool_call_id=call_id, tool_name=name, content=as_blocks(content), is_error=is_error, timestamp=now_ms()
        )

    @classmethod
    def from_results(cls, results: Iterable[ToolResultBlock], *, batch_id: str | None = None) -> tuple[Self, ...]:
        """Return a message for each result block, stamped with the present time.

        Args:
            results: the result blocks of one message.
            batch_id: the id that several results share. None generates an id. A single result gets no id.
        """
        blocks = tuple(results)
        shared = uuid4().hex if batch_id is None else batch_id
        batch = shared if len(blocks) > 1 else None
        now = now_ms()
        return tuple(
            cls(
                tool_call_id=block.tool_call_id,
                content=block.content,
                structured=block.structured,
                is_error=block.is_error,
                status=block.status,
                metadata=block.metadata,
                terminate=block.terminate,
                terminate_message=block.terminate_message,
                batch_id=batch,
                timestamp=now,
            )
            for block in blocks
        )

    @classmethod
    def from_result(cls, result: ToolResultBlock) -> Self:
        """Return the message for one result block, stamped with the present time."""
        return cls.from_results((result,))[0]

    def as_block(self) -> ToolResultBlock:
        """Return the result as a block, for formats with tool results inside other messages."""
        return ToolResultBlock(
            tool_call_id=self.tool_call_id,
            content=self.content,
            structured=self.structured,
            is_error=self.is_error,
            status=self.status,
            metadata=self.metadata,
            terminate=self.terminate,
            terminate_message=self.terminate_message,
        )


class SystemMessage(Spoken):
    """Instructions for the model."""

    role: Literal["system"] = "system"


class DeveloperMessage(Spoken):
    """Instructions that some providers rank above the system message. For other providers, these instructions are
    merged with the system message."""

    role: Literal["developer"] = "developer"


class UserMessage(Spoken):
    """A message of the user."""

    role: Literal["user"] = "user"

    @classmethod
    def with_images(cls, text: str, images: Iterable[bytes | str | Picture]) -> Self:
        """Return a message of a text and images.

        Args:
            text: the text, which comes before the images.
            images: the images, each as bytes, URL, base64 or Pillow image; see `MediaRef.of`.

        Raises:
            DecodeError: an image has no bytes.
            InvalidContent: an image is a local path, or neither URL nor base64.
        """
        require_instance("images", images, Iterable, "pass a list, such as [data]")
        return cls.of(text, *(ImageBlock(media=MediaRef.of(image)) for image in images))

    @classmethod
    def with_audio(cls, text: str, clips: Iterable[bytes | str]) -> Self:
        """Return a message of a text and audio clips.

        Args:
            text: the text, which comes before the clips.
            clips: the audio clips, each as bytes, URL or base64; see `MediaRef.of`.

        Raises:
            DecodeError: a clip has no bytes.
            InvalidContent: a clip is a local path, or neither URL nor base64.
        """
        require_instance("clips", clips, Iterable, "pass a list, such as [data]")
        return cls.of(text, *(AudioBlock(media=MediaRef.of(clip)) for clip in clips))


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")
]


# Live deltas are pieces of a message that the model is still generating. They are in no lane.
#
# Deltas are LLM content: a client without access to the LLM lane may not read them.
#
# A preview always ends, and no delta follows its end. It ends with a message of the same id in the LLM lane: the
# complete message, or the text so far if the model was stopped or the worker was lost. If there is no text so far, the
# preview ends with a `cut` that gives the reason.
#
# To show a preview, append each delta to the text of its message and block. A snapshot replaces the text of its block.


class Delta(Wire):
    """One piece of a message. In JSON: `{"role":"delta","kind":"text","messageId":…,"delta":…}`."""

    role: Literal["delta"] = "delta"
    kind: Literal["text", "thinking", "toolCall", "cut"]
    message_id: str
    """the `id` of the complete message"""
    turn_id: TurnId | None = None
    delta: str = ""
    """the text to append: for kind "toolCall" a fragment of the JSON arguments, for kind "cut" the reason of the cut"""
    block: Annotated[int, Field(ge=0, lt=10_000)] = 0
    """index of the block in the message, from 0; less than 10,000"""
    tool_name: str | None = None
    """the tool's name, on the first delta of a tool call"""
    is_snapshot: bool | None = None
    """True if `delta` is the whole text of its block so far. The text then replaces the text that was shown. None
    means no. A follower that joins during a preview gets snapshots"""


# Classify the error answers of model providers: context overflow, rate limit, authentication or other.
#
# Source: error texts of the providers, as collected by pi and the `two-lane-agent` system.

HttpFault = Literal["contextOverflow", "rateLimited", "auth", "api"]
"""The fault that a provider's HTTP answer reports, with what to do about it.

- "contextOverflow": shorten the context
- "rateLimited": wait
- "auth": correct the API key
- "api": any other fault
"""

_PHRASES = (
    "prompt is too long",
    "input is too long",
    "exceeds the context window",
    "maximum prompt length",
    "reduce the length of the messages",
    "maximum context length",
    "exceeds the available context size",
    "greater than the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "context length exceeded",
    "context_length_exceeded",
    "too many tokens",
    "token limit exceeded",
)
# The `two-lane-agent` system accepts these phrases as well, but providers also use them for files, plans and rates.
_AMBIGUOUS = ("exceeds the maximum", "exceeds the limit of")

_PATTERNS = re.compile(
    r"exceeds the limit of \d"
    r"|too large for model with \d+ maximum context length"
    r"|model_context_window_exceeded"
    r"|context[_ ]length[_ ](exceeded|is \d)"
    r"|^\s*4(00|13)\s*(status code)?\s*\(no body\)",
    re.IGNORECASE,
)
# In a text, 429 is the HTTP status, unless " tokens" follows.
_RATE_LIMIT = re.compile(
    r"rate.?limit|too many requests|throttl|\b429\b(?! tokens)|tokens per (min|day)", re.IGNORECASE
)


def says_rate_limit(text: str) -> bool:
    """Return whether an error text reports a rate limit, so that waiting may help."""
    return bool(_RATE_LIMIT.search(text))


def says_overflow(text: str, *, exact_001: bool = False) -> bool:
    """Return whether an error text reports that the request was too long for the model.

    Args:
        text: the provider's error text.
        exact_001: return the same result as the `two-lane-agent` system: True for any of its sixteen phrases, even
            if the phrase is about a rate or a file.
    """
    lowered = text.lower()
    if exact_001:
        return any(phrase in lowered for phrase in (*_PHRASES, *_AMBIGUOUS))
    if says_rate_limit(text):
        return False
    return any(phrase in lowered for phrase in _PHRASES) or bool(_PATTERNS.search(text)) or _counts_input(lowered)


def _counts_input(lowered: str) -> bool:
    # Both phrases must be in one line, in this order. This is not a regular expression, because that took seconds on a
    # text that repeats the first phrase many times.
    for line in lowered.splitlines():
        _, found, rest = line.partition("input token count")
        if found and "exceeds the maximum" in rest:
            return True
    return False


def classify_http(status: int, body: str) -> HttpFault:
    """Classify a provider's failed HTTP answer.

    The status takes precedence over the body, because the text of a rate limit may mention tokens.

    Args:
        status: the HTTP status.
        body: the answer's body, or the error message in the body. With status 400 or 413, an empty body means a context
            overflow, because some gateways answer long requests in this way.
    """
    if status == 429:
        return "rateLimited"
    if status in {401, 403}:
        return "auth"
    if says_overflow(body) or (status in {400, 413} and not body.strip()):
        return "contextOverflow"
    return "api"


# Entries of the LLM lane that change the context but are not messages. Only the context builder reads them.


# Define how the context shows one loop: the turns that it keeps unchanged, and the messages that replace other turns.
#
# The log itself does not change. The JSON form is that of the `two-lane-agent` system.


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Turn = Annotated[int, Field(ge=0)]
# Times are kept as text, because the `two-lane-agent` system writes nanoseconds, which a datetime cannot represent.
Moment = Annotated[str, AfterValidator(_moment)]


class TurnRange(Wire):
    """A range of turn indexes of one loop. Both ends are included."""

    start_turn: Turn
    end_turn: Turn

    @model_validator(mode="after")
    def _runs_forward(self) -> Self:
        if self.end_turn < self.start_turn:
            raise ValueError("endTurn is before startTurn")
        return self

    def __contains__(self, turn: object) -> bool:
        return isinstance(turn, int) and self.start_turn <= turn <= self.end_turn


class CompactedSection(Frozen):
    """A range of turns, and the messages that replace it in the context."""

    range: TurnRange
    messages: Annotated[tuple[Message, ...], Field(strict=False)] = ()


class CompactionBlock(Frozen):
    """Defines how a loop appears in the context: `keep_first` unchanged, then `keep_compacted`, then `keep_recent`.

    Source: the `two-lane-agent` system's `CompactionBlock`.
    """

    keep_first: TurnRange | None = None
    """range of the first turns, which stay unchanged; None for earlier loops"""
    keep_recent: CompactedSection | None = None
    """the latest turns, with long tool outputs shortened; None for earlier loops"""
    keep_compacted: CompactedSection | None = None
    """summary of the turns between `keep_first` and `keep_recent`, or of a whole earlier loop"""
    created_at: Annotated[Moment, Field(validation_alias="createdAt", serialization_alias="createdAt")]
    """time of the compaction in the form of RFC 3339"""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that follow `keep_first` in the context, in order."""
        sections = (self.keep_compacted, self.keep_recent)
        return tuple(message for section in sections if section for message in section.messages)


Position = Annotated[int, Field(ge=1)]


class ContextEntry(Wire):
    """The base class of the context entries. In JSON: `{"role":"context","kind":…}` and the fields of the kind."""

    lane: ClassVar[Lane] = Lane.LLM

    role: Literal["context"] = "context"
    id: str | None = None
    """the entry's id in the system that it was imported from"""
    timestamp: int | None = None
    """time of the entry by the author's clock, in milliseconds since 1970 UTC"""
    metadata: Metadata | None = None


class Compaction(ContextEntry):
    """Replace earlier entries by a summary.

    The context then consists of `summary`, the earlier entries from `first_kept` on, and all later entries.
    """

    kind: Literal["compaction"] = "compaction"
    summary: str
    first_kept: Position | None = None
    """position of the first earlier entry that stays in the context; None keeps no earlier entry"""
    tokens_before: int | None = None
    provider: str | None = None
    model: str | None = None
    """the model that wrote the summary; None if no model did, or if it is unknown"""
    usage: Usage | None = None
    """usage of the call that wrote the summary. It is part of the session's usage, but of no turn's usage"""


class LoopCompaction(ContextEntry):
    """Replace one loop's earlier turns in the context, as `block` defines. Only the latest entry for a loop applies."""

    kind: Literal["loopCompaction"] = "loopCompaction"
    loop_id: str
    block: CompactionBlock

    def to_json_bytes(self) -> bytes:
        """Return the entry's JSON as it is stored in the log. Null arguments of a tool call stay null."""
        data = super().to_json_bytes()
        if not any(has_null_arguments(each.content) for each in self.block.messages):
            return data
        entry: dict[str, JsonValue] = json.loads(data)
        block = cast("dict[str, dict[str, JsonValue]]", entry["block"])
        for name, section in (("keep_compacted", self.block.keep_compacted), ("keep_recent", self.block.keep_recent)):
            if section is not None:
                block[name]["messages"] = [json.loads(each.to_json_bytes()) for each in section.messages]
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()


class Prune(ContextEntry):
    """Leave entries out of the context, with an optional memo in their place. The entries stay in the log.

    Pruning a compaction undoes the compaction: the context contains the original entries again.
    """

    kind: Literal["prune"] = "prune"
    pruned: Annotated[tuple[Position, ...], Field(strict=False)]
    memo: str | None = None
    """text that replaces the pruned entries in the context; None leaves them out without a text"""


class BranchSummary(ContextEntry):
    """A summary of a branch that the session left."""

    kind: Literal["branchSummary"] = "branchSummary"
    summary: str
    branch: Position | None = None
    """position of the last entry of the branch"""


class LeafMove(ContextEntry):
    """Continue after the entry `to`, as if later entries did not exist. The later entries stay in the log."""

    kind: Literal["leafMove"] = "leafMove"
    to: Position | None = None
    """position of the entry to continue after; None continues before the first entry"""


class ModelChange(ContextEntry):
    """The user selected another model."""

    kind: Literal["modelChange"] = "modelChange"
    provider: str
    model: str


class ThinkingLevelChange(ContextEntry):
    """The user selected another level of thinking."""

    kind: Literal["thinkingLevelChange"] = "thinkingLevelChange"
    level: str


class Label(ContextEntry):
    """Set the label that a user gave to the entry at `target`. A `label` of None removes the entry's label."""

    kind: Literal["label"] = "label"
    target: Position
    label: str | None = None


AnyContextEntry = Annotated[
    Compaction | LoopCompaction | Prune | BranchSummary | LeafMove | ModelChange | ThinkingLevelChange | Label,
    Field(discriminator="kind"),
]
