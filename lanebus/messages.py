"""Everything a session can hold: messages, their blocks, context entries, agent events and commands."""

from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.compaction_block import CompactedSection, CompactionBlock, TurnRange
from lanebus.bus.messages.content import (
    AnnotationBlock,
    AnnotationRef,
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
    VideoBlock,
)
from lanebus.bus.messages.context_entry import (
    BranchSummary,
    Compaction,
    ContextEntry,
    Label,
    LeafMove,
    LoopCompaction,
    ModelChange,
    Prune,
    ThinkingLevelChange,
)
from lanebus.bus.messages.control import (
    Abort,
    Approve,
    Compact,
    Control,
    Deny,
    Handoff,
    Pause,
    Resume,
    Steer,
    parse_control,
)
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.events import parse_event
from lanebus.bus.messages.events.context import (
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    PruneApplied,
    RevertApplied,
)
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.events.loops import (
    AgentEnded,
    AgentStarted,
    InputRejected,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
)
from lanebus.bus.messages.events.sessions import ControlAnswered, SessionAssigned, SessionLinked
from lanebus.bus.messages.events.tools import (
    Progress,
    ToolEnded,
    ToolOutcome,
    ToolStarted,
    ToolUpdated,
    ToolWaiting,
)
from lanebus.bus.messages.events.turns import (
    MessageEnded,
    MessageStarted,
    RequestDefined,
    ToolDefinition,
    TurnEnded,
    TurnStarted,
    UsageSettled,
)
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import AgentMessage, LlmLaneMessage, Publishable, read_message
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import MediaKind, MediaRef
from lanebus.bus.messages.message import DeveloperMessage, SystemMessage, UserMessage
from lanebus.bus.messages.text import blocks_text, result_text, split_reasoning
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Cost, Rates, Usage
from lanebus.bus.redaction import Redact, Redactable
from lanebus.handlers.codecs.two_lane_agent.json_answer import extract_json

__all__ = (
    "Abort",
    "AgentEnded",
    "AgentEvent",
    "AgentMessage",
    "AgentStarted",
    "AnnotationBlock",
    "AnnotationRef",
    "Approve",
    "AssistantMessage",
    "AudioBlock",
    "Block",
    "BranchSummary",
    "Compact",
    "CompactedSection",
    "Compaction",
    "CompactionBlock",
    "CompactionEnded",
    "CompactionFailed",
    "CompactionStarted",
    "ContextEntry",
    "Control",
    "ControlAnswered",
    "Cost",
    "DataBlock",
    "Delta",
    "Deny",
    "DeveloperMessage",
    "DocumentBlock",
    "ErrorBlock",
    "ExtensionMessage",
    "Handoff",
    "ImageBlock",
    "InputRejected",
    "Label",
    "LeafMove",
    "LlmLaneMessage",
    "LlmMessage",
    "LoopCompaction",
    "MediaKind",
    "MediaRef",
    "MessageEnded",
    "MessageStarted",
    "ModelChange",
    "ParallelLoopsEnded",
    "ParallelLoopsStarted",
    "Pause",
    "Progress",
    "Prune",
    "PruneApplied",
    "Publishable",
    "Rates",
    "Redact",
    "Redactable",
    "RedactedThinkingBlock",
    "RequestDefined",
    "Resume",
    "RevertApplied",
    "SessionAssigned",
    "SessionLinked",
    "Steer",
    "StopReason",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ThinkingLevelChange",
    "ToolCallBlock",
    "ToolDefinition",
    "ToolEnded",
    "ToolOutcome",
    "ToolResultBlock",
    "ToolResultMessage",
    "ToolStarted",
    "ToolUpdated",
    "ToolWaiting",
    "TurnEnded",
    "TurnId",
    "TurnRange",
    "TurnStarted",
    "UnknownBlock",
    "Usage",
    "UsageSettled",
    "UserMessage",
    "VideoBlock",
    "blocks_text",
    "extract_json",
    "parse_control",
    "parse_event",
    "read_message",
    "result_text",
    "split_reasoning",
)
