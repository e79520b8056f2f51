"""Summarize an entry in one line for people; `--json` prints the complete entry. Pure."""

import json

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, ErrorBlock, TextBlock, ThinkingBlock, ToolCallBlock
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
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.cli.terminal.text import plain

__all__ = ("summarize",)

_HINT = 24
_REPEATED = frozenset({"loopId", "messageId", "toolCallId"})


def summarize(envelope: Envelope) -> tuple[str, str]:
    """Return the role or kind of an entry, and its content as one line."""
    match envelope.message:
        case ToolResultMessage() as message:
            name = message.tool_name or message.tool_call_id
            return "tool", f"{name}{' (error)' if message.is_error else ''}: {_content(message)}"
        case AssistantMessage() as message:
            end = f" [{message.stop_reason}: {message.error_message or ''}]" if message.is_failed else ""
            return "assistant", _content(message) + end
        case LlmMessage() as message:
            return str(getattr(message, "role", "")), _content(message)
        case ExtensionMessage(kind=kind, data=dict(data)) if kind.startswith("agent."):
            return kind, _event(data)
        case ExtensionMessage(kind=kind, data=data):
            return kind, _json(data)
        case ContextEntry() as entry:
            return _context_entry(entry)
        case Delta(kind=kind, delta=delta):
            return f"…{kind}", delta
        case DecodeFailure(error=error):
            return "unreadable", str(error)


def _content(message: LlmMessage) -> str:
    parts = [(block, _block(block)) for block in message.content]
    # Thinking is shortened if the message has other content.
    is_hint = any(text and not isinstance(block, ThinkingBlock) for block, text in parts)
    return " ".join(
        _hint(text) if is_hint and isinstance(block, ThinkingBlock) else text for block, text in parts if text
    )


def _hint(text: str) -> str:
    return text if len(text) <= _HINT else f"{text[: _HINT - 2]}…)"


def _block(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return plain(text)
        case ThinkingBlock(text=text):
            return f"({plain(text)})" if text else ""
        case ToolCallBlock(name=name, arguments=arguments):
            return f"→ {name} {_json(arguments)}"
        case ErrorBlock(message=text):
            return f"[error: {text}]"
        case _:
            return f"[{block.type}]"


def _context_entry(entry: ContextEntry) -> tuple[str, str]:
    match entry:
        case Compaction(first_kept=kept, summary=summary):
            return "compaction", f"{f'keeps from {kept}' if kept else 'keeps nothing'}: {plain(summary)}"
        case LoopCompaction(loop_id=loop, block=block):
            return "compaction", f"replaces loop {loop} by {len(block.messages)} messages"
        case Prune(pruned=pruned, memo=memo):
            note = f": {plain(memo)}" if memo is not None else ""
            return "prune", f"leaves out {', '.join(map(str, pruned)) or 'nothing'}{note}"
        case BranchSummary(summary=summary):
            return "branch", plain(summary)
        case LeafMove(to=to):
            return "leaf", f"continues after {to}" if to else "continues from the beginning"
        case ModelChange(provider=provider, model=model):
            return "model", f"{provider}/{model}"
        case ThinkingLevelChange(level=level):
            return "thinking", level
        case Label(target=target, label=label):
            return "label", f"{target} is labelled {label!r}" if label else f"{target} has no label"
        case _:
            return "context", ""


def _event(data: dict[str, JsonValue]) -> str:
    """Summarize an event of the agent, without the ids that most events repeat."""
    turn = data.get("turnId")
    number = [f"turn {turn.get('turnIndex')}"] if isinstance(turn, dict) else []
    plain_values = {
        name: value for name, value in data.items() if isinstance(value, str | int) and name not in _REPEATED
    }
    return ", ".join([*number, *(f"{name} {value}" for name, value in plain_values.items())])


def _json(value: JsonValue) -> str:
    # Cut large values before encoding them: only the beginning is shown.
    if isinstance(value, dict):
        value = {key: item[:400] if isinstance(item, str) else item for key, item in value.items()}
    return plain(json.dumps(value, ensure_ascii=False))
