"""Hypothesis strategies for the entries of the LLM lane, including unusual and malformed ones."""

from typing import Literal

from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.bus.messages import (
    AssistantMessage,
    AudioBlock,
    Block,
    BranchSummary,
    CompactedSection,
    Compaction,
    CompactionBlock,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    Label,
    LeafMove,
    LlmLaneMessage,
    LlmMessage,
    LoopCompaction,
    MediaRef,
    Metadata,
    ModelChange,
    Prune,
    RedactedThinkingBlock,
    StopReason,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ThinkingLevelChange,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultMessage,
    TurnId,
    TurnRange,
    UnknownBlock,
    Usage,
    UserMessage,
    VideoBlock,
)
from lanebus.bus.wire import Envelope
from tests.support.log.entries import entry

__all__ = ("CANARY", "lane_logs")
CANARY = "canary-7f3a"
"""part of everything that no provider may receive"""

_PRIVATE: Metadata = {"secret": CANARY}
_SIGNATURE = "c2ln"
_REASONING = '{"id":"rs_1","encrypted_content":"x"}'
"""a signature like those of thinking in OpenAI's Responses"""

Status = Literal["completed", "failed"] | None
# Few ids, one of them frequent, so that ids repeat and results are late, duplicated or orphaned.
_ids = st.sampled_from([*"aaaaaaa", "a.b", "a_b", "a:b", "", "x" * 80])
_texts = st.sampled_from(["", " ", "yes", "no ", "\n", "[]"])
_media = st.sampled_from(
    [
        MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234"),
        MediaRef.from_bytes(b"%PDF-1.7 x"),
        MediaRef.from_bytes(b"plain", mime_type="text/plain"),
        MediaRef.from_bytes(b"?", mime_type="image/png"),
        MediaRef.from_bytes(b"ID3\x03"),
        MediaRef.from_url("https://example.com/a"),
        MediaRef.from_url("https://example.com/a.png"),
        MediaRef.from_url("s3://bucket/a"),
        MediaRef(kind="file_id", file_id="file_1"),
        MediaRef(kind="sha256", sha256="0" * 64),
    ]
)
_text_blocks = st.builds(TextBlock, text=_texts)
_plain_blocks: st.SearchStrategy[Block] = st.one_of(
    _text_blocks,
    _text_blocks,
    st.builds(ImageBlock, media=_media),
    st.builds(DocumentBlock, media=_media, text=st.none() | _texts),
    st.builds(AudioBlock, media=_media),
    st.builds(VideoBlock, media=_media),
    st.just(DataBlock(mime_type="x/y")),
    st.just(ErrorBlock(message="e")),
    st.just(UnknownBlock(raw={"type": "new"})),
)
_calls = st.builds(
    ToolCallBlock,
    id=_ids,
    name=st.sampled_from(["read", "fs.read", ""]),
    arguments=st.sampled_from([{}, {"path": "a"}, [1], "text", None]),
    signature=st.sampled_from([None, _SIGNATURE]),
    metadata=st.just(_PRIVATE),
)


# Hypothesis takes the alias of a required field as another argument, so a function builds classes with such a field.
def _result_block(call: str, content: tuple[Block, ...]) -> Block:
    return ToolResultBlock(
        tool_call_id=call, content=content, metadata=_PRIVATE, terminate=True, terminate_message=CANARY
    )


def _thinking_block(text: str, signature: str | None) -> Block:
    return ThinkingBlock(text=text, signature=signature)


def _result(
    call: str, content: tuple[Block, ...], structured: JsonValue, is_error: bool, status: Status
) -> LlmLaneMessage:
    return ToolResultMessage(
        tool_call_id=call,
        content=content,
        structured=structured,
        is_error=is_error,
        status=status,
        terminate=True,
        terminate_message=CANARY,
        metadata=_PRIVATE,
        raw=CANARY,
        name=CANARY,
    )


def _contents(blocks: st.SearchStrategy[Block], most: int) -> st.SearchStrategy[tuple[Block, ...]]:
    return st.lists(blocks, max_size=most).map(tuple)


_result_blocks = st.builds(_result_block, _ids, _contents(_plain_blocks, 2))
_thinking: st.SearchStrategy[Block] = st.one_of(
    st.builds(_thinking_block, _texts, st.sampled_from([None, "", _SIGNATURE, _REASONING])),
    st.builds(RedactedThinkingBlock, data=st.sampled_from(["xx", _REASONING])),
    st.builds(TextBlock, text=_texts, signature=st.just(_SIGNATURE)),
    st.just(UnknownBlock(raw={"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}})),
    st.just(UnknownBlock(raw={"executableCode": {"language": "PYTHON", "code": "1"}})),
)
_assistant_blocks = st.one_of(_plain_blocks, _text_blocks, _calls, _calls, _thinking, _thinking, _result_blocks)
_private = {"metadata": st.just(_PRIVATE), "raw": st.just(CANARY), "name": st.just(CANARY)}


def _answer(
    content: tuple[Block, ...], stop_reason: StopReason, author: tuple[str | None, str | None]
) -> LlmLaneMessage:
    provider, model = author
    return AssistantMessage(
        content=content,
        stop_reason=stop_reason,
        provider=provider,
        model=model,
        usage=Usage(raw=CANARY),
        response_id=CANARY,
        metadata=_PRIVATE,
        raw=CANARY,
        name=CANARY,
    )


_stop_reasons: list[StopReason] = ["stop", "toolUse", "toolUse", "toolUse", "length", "error", "aborted"]
_authors = [
    ("anthropic", "m"),
    ("anthropic", "m"),
    ("anthropic", "other"),
    ("openai", "m"),
    ("google", "m"),
    (None, None),
]


def _answers_of(blocks: st.SearchStrategy[Block]) -> st.SearchStrategy[LlmLaneMessage]:
    return st.builds(_answer, _contents(blocks, 4), st.sampled_from(_stop_reasons), st.sampled_from(_authors))


_answers = st.one_of(_answers_of(_assistant_blocks), _answers_of(_calls), _answers_of(_text_blocks | _thinking))
_results = st.builds(
    _result,
    _ids,
    _contents(st.one_of(_plain_blocks, _result_blocks), 2),
    st.sampled_from([None, {"a": 1}, [], "", 0]),
    st.booleans(),
    st.sampled_from([None, "completed", "failed"]),
)
_users = st.builds(
    UserMessage, content=_contents(st.one_of(_plain_blocks, _plain_blocks, _result_blocks, _calls), 3), **_private
)


def _stamp(loop: str, turn: int) -> TurnId:
    return TurnId(loop_id=loop, turn_index=turn)


def _range(first: int, last: int) -> TurnRange:
    return TurnRange(start_turn=first, end_turn=last)


def _section(of: TurnRange, messages: list[UserMessage | AssistantMessage | ToolResultMessage]) -> CompactedSection:
    return CompactedSection(range=of, messages=tuple(messages))


def _told_shorter(loop: str, block: CompactionBlock) -> LlmLaneMessage:
    return LoopCompaction(loop_id=loop, block=block, metadata=_PRIVATE)


def _block(
    first: TurnRange | None, between: CompactedSection | None, recent: CompactedSection | None
) -> CompactionBlock:
    return CompactionBlock(
        keep_first=first, keep_compacted=between, keep_recent=recent, created_at="2026-03-01T10:00:00Z"
    )


_instructions: st.SearchStrategy[LlmLaneMessage] = st.one_of(
    st.builds(SystemMessage, content=_contents(_plain_blocks, 2), **_private),
    st.builds(DeveloperMessage, content=_contents(_plain_blocks, 2), **_private),
)
_positions = st.sampled_from([None, None, 99, *range(1, 30)])
_loops = st.sampled_from(["s.main.1", "s.main.2"])
_stamps = st.none() | st.builds(_stamp, _loops, st.integers(0, 2))
_ranges = st.sampled_from([(0, 0), (0, 1), (1, 2), (2, 2)]).map(lambda ends: _range(*ends))
_told = st.sampled_from(
    [
        UserMessage(content=(TextBlock(text="told"),), metadata=_PRIVATE),
        AssistantMessage(content=(ToolCallBlock(id="a", name="read"),), stop_reason="toolUse", raw=CANARY),
        ToolResultMessage(tool_call_id="a", content=(TextBlock(text="told"),), metadata=_PRIVATE),
        AssistantMessage(content=(TextBlock(text="half"),), stop_reason="aborted"),
    ]
)
_sections = st.none() | st.builds(_section, _ranges, st.lists(_told, max_size=3))
_steering: st.SearchStrategy[LlmLaneMessage] = st.one_of(
    st.builds(Compaction, summary=_texts, first_kept=_positions, metadata=st.just(_PRIVATE)),
    st.builds(_told_shorter, _loops, st.builds(_block, st.none() | _ranges, _sections, _sections)),
    st.builds(
        Prune,
        pruned=st.lists(st.integers(1, 30), max_size=4).map(tuple),
        memo=st.none() | _texts,
        metadata=st.just(_PRIVATE),
    ),
    st.builds(LeafMove, to=_positions),
    st.builds(BranchSummary, summary=_texts, metadata=st.just(_PRIVATE)),
    st.just(ModelChange(provider="anthropic", model="m")),
    st.just(ThinkingLevelChange(level="high")),
    st.just(Label(target=1, label=CANARY)),
)


# `one_of` draws each kind equally often. With a leaf move or compaction at every third entry, few calls keep
# their result.
_kinds: list[st.SearchStrategy[LlmLaneMessage]] = [_answers] * 5 + [_results] * 5 + [_users] * 2
_kinds += [_instructions, _steering, _steering, _steering]


@st.composite
def lane_logs(draw: st.DrawFn) -> list[Envelope]:
    """Draw entries of the LLM lane, with gaps where the extension lane has entries."""
    # By default Hypothesis draws about five entries: too few for a late result or a move back to matter.
    least = draw(st.sampled_from([0, 5, 10, 20]))
    said = draw(st.lists(st.sampled_from(_kinds).flatmap(lambda kind: kind), min_size=least, max_size=25))
    position, entries = 0, list[Envelope]()
    for message in said:
        position += draw(st.integers(1, 2))
        stamped = message.with_turn_id(draw(_stamps)) if isinstance(message, LlmMessage) else message
        entries.append(entry(position, stamped))
    return entries
