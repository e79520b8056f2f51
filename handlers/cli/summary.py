"""Entries, turns and the states of sessions in one line each, for people; `--json` prints all of an entry. Pure."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus import FailedWork
from lanebus.bus.errors import MessageError
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    Approve,
    AssistantMessage,
    Block,
    BranchSummary,
    Compaction,
    ContextEntry,
    Control,
    Delta,
    ErrorBlock,
    ExtensionMessage,
    Label,
    LeafMove,
    LlmMessage,
    LoopCompaction,
    MessageEnded,
    MessageStarted,
    ModelChange,
    Progress,
    Prune,
    RequestDefined,
    TextBlock,
    ThinkingBlock,
    ThinkingLevelChange,
    ToolCallBlock,
    ToolEnded,
    ToolResultMessage,
    ToolStarted,
    ToolUpdated,
    ToolWaiting,
    TurnEnded,
    TurnId,
    TurnStarted,
    UsageSettled,
    parse_event,
)
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.cli.output import about, count, duration, money, plain, shell_word
from lanebus.handlers.projections import CardState, Command, fault_of

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


# Fold the events of an agent for a terminal: one row says how a turn went. Pure.

_FOLDED = (
    AgentStarted,
    MessageEnded,
    MessageStarted,
    Progress,
    RequestDefined,
    ToolStarted,
    ToolUpdated,
    TurnStarted,
    UsageSettled,
)
"""events that say no more than the row of their turn, or than the entries of the LLM lane"""

_NORMAL = frozenset({"stop", "toolUse"})
"""reasons at which a turn or loop ends well; they are not repeated"""


class _OpenTurn(NamedTuple):
    started: float
    tools: Mapping[str, int]
    """tool call id → number of times the call was started"""


class TurnFold:
    """Turns the events of one session into rows, in order of position."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._open = dict[TurnId, _OpenTurn]()

    def rows(self, envelope: Envelope) -> list[tuple[str, str]] | None:
        """Return the rows of an event, each with a kind and a text. None if the entry is no event that is folded.

        What a framework stores has no row.
        """
        if isinstance(envelope.message, ExtensionMessage) and envelope.message.is_stored_state:
            return []
        event = event_of(envelope)
        match event:
            case None:
                return None
            case TurnStarted(turn_id=turn):
                self._open[turn] = _OpenTurn(envelope.time, {})
            case ToolStarted(turn_id=turn, tool_call_id=call, attempt=attempt) if turn in self._open:
                was = self._open[turn]
                attempts = attempt or was.tools.get(call, 0) + 1
                self._open[turn] = was._replace(tools={**was.tools, call: attempts})
            case TurnEnded():
                return [("turn", self._ended(event, envelope.time))]
            case ToolWaiting():
                return [("waits", self._waiting(event))]
            case ToolEnded(outcome=outcome, tool_name=name) if outcome not in {None, "completed", "failed"}:
                return [("tool", f"{name} {fault_of(outcome)}")]
            case AgentEnded(stop_reason=reason, rejection=rejection):
                self._open.clear()
                if reason in _NORMAL:
                    return []
                return [("loop", f"{self._short(event.loop_id)} {reason}{f': {rejection}' if rejection else ''}")]
            case _:
                pass
        return [] if isinstance(event, (*_FOLDED, ToolEnded)) else None

    def _ended(self, event: TurnEnded, time: float) -> str:
        opened = self._open.pop(event.turn_id, None)
        parts = [
            *([] if event.stop_reason in _NORMAL else [event.stop_reason]),
            *([_calls(opened.tools)] if opened and opened.tools else []),
            *([duration(time - opened.started)] if opened else []),
            f"{about(event.usage.estimated)}{count(event.usage.total_tokens)} tokens",
            *([money(event.usage.cost.total)] if event.usage.cost else []),
        ]
        return f"{short_id(event.turn_id, self._session)}: {', '.join(parts)}"

    def _waiting(self, event: ToolWaiting) -> str:
        why = "for a person" if event.why == "approval" else "for a person: it was started, and its outcome is unknown"
        return f"{event.tool_name} waits {why}: {answer_commands(event, self._session)[0]}"

    def _short(self, loop_id: str) -> str:
        return loop_id.removeprefix(f"{self._session}.")


def _calls(tools: Mapping[str, int]) -> str:
    """Return the number of tool calls, and the number of attempts if a call was started again."""
    calls, attempts = len(tools), sum(tools.values())
    text = f"{calls} tool{'' if calls == 1 else 's'}"
    return text if attempts == calls else f"{text} in {attempts} attempts"


def event_of(envelope: Envelope) -> AgentEvent | None:
    """Return the event of an agent that an entry contains; None for other entries and unreadable events."""
    message = envelope.message
    if not isinstance(message, ExtensionMessage):
        return None
    try:
        return parse_event(message)
    except MessageError:
        return None


def short_id(turn: TurnId, session: str) -> str:
    """Return a turn id as people type it after the name of its session, such as `main.3#0`."""
    return str(turn).removeprefix(f"{session}.")


def answer_commands(event: ToolWaiting, session: str) -> tuple[str, str]:
    """Return the commands that approve and deny a tool call that waits for a person."""
    words = short_id(event.turn_id, session), event.tool_call_id
    end = "-- " if any(word.startswith("-") for word in words) else ""
    call = end + " ".join(map(shell_word, words))
    return f"lanebus control {session} approve {call}", f"lanebus control {session} deny {call}"


# The words for what a session does, and why its work failed. Pure.

STATES: Mapping[CardState, str] = {
    "working": "works",
    "waiting": "waits for a person",
    "queued": "waits for a worker",
    "retrying": "is tried again",
    "failed": "failed",
    "dead": "dead",
    "idle": "idle",
    "paused": "paused",
    "handoff": "handed to a person",
    "closed": "closed",
}


def failure_text(work: FailedWork) -> str:
    """Return why a session is dead or tried again, on one line."""
    attempts = f"{count(work.attempts)} attempt{'' if work.attempts == 1 else 's'}"
    if work.is_dead:
        return f"workers gave up after {attempts}: {plain(work.reason)}"
    return f"{attempts} failed: {plain(work.reason)}" if work.attempts else f"to be continued: {plain(work.reason)}"


def decision_text(command: Command) -> str:
    """Return what a command decided about a call that no worker has applied yet: "was approved by ann, …"."""
    control = command.control
    by = control.by if isinstance(control, Control) else None
    done = "approved" if command.message.kind == Approve.KIND else "denied"
    return f"was {done}{f' by {plain(by)}' if by else ''}, and waits for a worker"
