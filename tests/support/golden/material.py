"""A small made-up session with every kind of message, block, steering entry and event."""

from collections.abc import Sequence
from decimal import Decimal

from lanebus import (
    AssistantMessage,
    Delta,
    ExtensionMessage,
    ImageBlock,
    MediaRef,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from lanebus.bus.messages import AgentEnded, AgentEvent, AgentStarted, AnnotationBlock, AnnotationRef, Cost, NodeTag
from lanebus.messages import (
    AudioBlock,
    BranchSummary,
    CompactedSection,
    Compaction,
    CompactionBlock,
    CompactionEnded,
    CompactionStarted,
    DataBlock,
    DeveloperMessage,
    DocumentBlock,
    ErrorBlock,
    InputRejected,
    Label,
    LeafMove,
    LoopCompaction,
    MessageEnded,
    MessageStarted,
    ModelChange,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
    Progress,
    Prune,
    PruneApplied,
    Publishable,
    RedactedThinkingBlock,
    RevertApplied,
    ThinkingBlock,
    ThinkingLevelChange,
    ToolEnded,
    ToolResultBlock,
    ToolStarted,
    ToolUpdated,
    TurnEnded,
    TurnId,
    TurnRange,
    TurnStarted,
    UnknownBlock,
    UsageSettled,
    VideoBlock,
)

__all__ = ("DELTAS", "SAID", "STEERED")
_LOOP = "golden.main.1"
_TURN, _NEXT = TurnId(loop_id=_LOOP, turn_index=0), TurnId(loop_id=_LOOP, turn_index=1)
_CUT = TurnId(loop_id="golden.main.2", turn_index=0)
_DOT = MediaRef(
    kind="data",
    data="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    mime_type="image/png",
    width=1,
    height=1,
)
_COST = Cost(input=Decimal("0.0031"), output=Decimal("0.0042"), total=Decimal("0.0073"), source="golden")
_USAGE = Usage(input=310, output=42, reasoning=7, cache_read=100, cache_write=20, total_tokens=472, cost=_COST)
_SECOND = Usage(input=400, output=11, total_tokens=411)
_CALL = ToolCallBlock(id="call_1", name="weather", arguments={"city": "Zürich", "days": [1, 2.5, None, True]})
_OTHER = ToolCallBlock(id="call_2", name="clock")


def _link(path: str, mime_type: str) -> MediaRef:
    return MediaRef(kind="url", url=f"https://media.example/{path}", mime_type=mime_type)


def _told(*events: AgentEvent) -> list[Publishable]:
    return [event.as_extension() for event in events]


SAID: Sequence[Publishable] = (
    SystemMessage.text("You are a careful assistant.").model_copy(update={"timestamp": None}),
    DeveloperMessage(content=(TextBlock(text="Answer in one line."),)),
    ExtensionMessage.of("note", {"text": "any JSON: ü ✓ \u2028", "list": [1, 2.5, None, False], "deep": {"a": {}}}),
    UserMessage(
        content=(
            TextBlock(text="What is the weather, and what is in these?"),
            ImageBlock(media=_DOT, alt_text="a dot", detail="low"),
            AudioBlock(media=_link("a.wav", "audio/wav"), transcript="la la", sample_rate=16_000, channels=1),
            VideoBlock(media=_link("v.mp4", "video/mp4"), thumbnail=_DOT),
            DocumentBlock(media=_link("d.pdf", "application/pdf"), text="a paper", pages=(1, 3)),
            DataBlock(mime_type="text/csv", media=MediaRef(kind="data", data="YSxiCjEsMgo=", mime_type="text/csv")),
        ),
        timestamp=1_700_000_000_000,
        id="question",
        name="ada",
        metadata={"client": "golden"},
        node_id=1,
        tags=(NodeTag(kind="finding", text="it asks", created_at_turn=0, abandoned_node_ids=()),),
    ),
    *_told(
        AgentStarted(loop_id=_LOOP, agent="golden", config={"model": "m"}),
        InputRejected(loop_id=_LOOP, reason="too rude"),
        TurnStarted(turn_id=_TURN, prompts=(4,)),
        MessageStarted(turn_id=_TURN, message_id="answer"),
    ),
    AssistantMessage(
        content=(
            ThinkingBlock(text="Look it up.", signature="c2ln"),
            RedactedThinkingBlock(data="c2VjcmV0"),
            TextBlock(text="One moment.", annotations=(AnnotationRef(url="https://example.org", title="a source"),)),
            AnnotationBlock(refs=(AnnotationRef(url="https://example.org", index=0),), spans=((0, 3),)),
            ErrorBlock(message="half of it was lost", code="E1", data={"n": 1}),
            UnknownBlock(raw={"type": "hologram", "rays": 3}),
            _CALL,
            _OTHER,
        ),
        id="answer",
        turn_id=_TURN,
        stop_reason="toolUse",
        provider="anthropic",
        model="claude-golden",
        usage=_USAGE,
        response_id="r1",
        metadata={"seen": 8},
    ),
    *_told(
        MessageEnded(turn_id=_TURN, message_id="answer", position=9),
        ToolStarted(turn_id=_TURN, tool_call_id="call_1", tool_name="weather"),
        ToolUpdated(turn_id=_TURN, tool_call_id="call_1", tool_name="weather"),
        Progress(turn_id=_TURN, tool_call_id="call_1", tool_name="weather", text="half"),
    ),
    ToolResultMessage(
        tool_call_id="call_1",
        tool_name="weather",
        content=(TextBlock(text="rain"), ImageBlock(media=_DOT)),
        structured={"mm": 2.5},
        status="completed",
        turn_id=_TURN,
    ),
    ToolResultMessage(
        tool_call_id="call_2", tool_name="clock", content=(TextBlock(text="no clock"),), is_error=True, turn_id=_TURN
    ),
    *_told(
        ToolEnded(turn_id=_TURN, tool_call_id="call_1", tool_name="weather", is_error=False, position=14),
        ToolEnded(turn_id=_TURN, tool_call_id="call_2", tool_name="clock", is_error=True, position=15),
        TurnEnded(turn_id=_TURN, stop_reason="toolUse", usage=_USAGE, message=9, tool_results=(14, 15)),
        TurnStarted(turn_id=_NEXT, trigger="continuation", prompts=(14, 15)),
    ),
    AssistantMessage(
        content=(TextBlock(text="Rain, 2.5 mm."),), turn_id=_NEXT, provider="openai", model="golden-2", usage=_SECOND
    ),
    *_told(
        TurnEnded(turn_id=_NEXT, stop_reason="stop", usage=_SECOND, message=20),
        AgentEnded(loop_id=_LOOP, stop_reason="stop", turns=2, usage=_USAGE.combine(_SECOND)),
    ),
    AssistantMessage(stop_reason="error", error_message="overloaded", raw_stop_reason="529"),
)
"""a question with its answer; all of it is in the context"""

STEERED: Sequence[Publishable] = (
    ModelChange(provider="openai", model="golden-3"),
    ThinkingLevelChange(level="high"),
    Label(target=4, label="the question"),
    UserMessage(
        content=(
            TextBlock(text="And tomorrow?"),
            ToolResultBlock(tool_call_id="call_9", content=(TextBlock(text="nested"),), structured=[1]),
        )
    ),
    AssistantMessage(content=(TextBlock(text="Sun."),)),
    LeafMove(to=26),
    BranchSummary(summary="It said sun.", branch=28),
    UserMessage(content=(TextBlock(text="Are you sure?"),)),
    Prune(pruned=(2,), memo="was told to be short"),
    LoopCompaction(
        loop_id=_LOOP,
        block=CompactionBlock(
            keep_compacted=CompactedSection(
                range=TurnRange(start_turn=0, end_turn=1),
                messages=(UserMessage(content=(TextBlock(text="It rained, said the tool."),)),),
            ),
            created_at="2026-01-02T03:04:05Z",
        ),
    ),
    *_told(
        ParallelLoopsStarted(loop_ids=("golden.a.1", "golden.b.1")),
        ParallelLoopsEnded(selected_loop_id="golden.a.1", selected_config_index=0, evaluation_usage=_SECOND),
        CompactionStarted(loop_id=_LOOP, estimated_tokens=900, message_count=9),
        CompactionEnded(
            loop_id=_LOOP,
            messages_before=9,
            messages_after=3,
            estimated_tokens_before=900,
            estimated_tokens_after=90,
            position=41,
        ),
        PruneApplied(loop_id=_LOOP, tokens_removed=5, pruned=(2,), memo="was told to be short"),
        RevertApplied(loop_id=_LOOP, category="tangent", target=26, applied=True, summary=30),
    ),
    UserMessage(content=(TextBlock(text="Last question."),)),
    Compaction(summary="The weather was looked up.", first_kept=40, tokens_before=900),
    AssistantMessage(content=(TextBlock(text="Last answer."),), provider="google", model="golden-4"),
    AssistantMessage(
        content=(TextBlock(text="Cut sh"),),
        turn_id=_CUT,
        stop_reason="aborted",
        provider="openai",
        model="golden-2",
        usage=_SECOND.model_copy(update={"output": 1, "estimated": True}),
    ),
    *_told(UsageSettled(turn_id=_CUT, message=43, usage=_SECOND)),
    ExtensionMessage.of("session.closed", {"reason": "done"}),
)
"""entries that change the context: branches, summaries, prunes"""

DELTAS: Sequence[Delta] = (
    Delta(kind="thinking", message_id="answer", turn_id=_TURN, delta="Look "),
    Delta(kind="text", message_id="answer", turn_id=_TURN, delta="One ", block=2),
    Delta(kind="toolCall", message_id="answer", turn_id=_TURN, delta='{"city"', block=6, tool_name="weather"),
    Delta(kind="cut", message_id="answer", turn_id=_TURN, delta="the worker was stopped"),
)
