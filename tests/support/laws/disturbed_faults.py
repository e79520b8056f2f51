"""Find what must never be in a log, however its session was disturbed. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from lanebus import AssistantMessage, Envelope, ExtensionMessage, Lane, ToolResultMessage, Usage, UserMessage
from lanebus.bus.messages import (
    Abort,
    AgentEnded,
    AgentEvent,
    AgentStarted,
    ControlAnswered,
    Prune,
    TurnEnded,
    parse_event,
)
from lanebus.context import Context, evolve
from lanebus.handlers.providers import PROVIDERS
from tests.support.laws.disturbed import CANARY

__all__ = ("find_faults", "rules")


@cache
def rules() -> Mapping[str, Callable[[object], None]]:
    """Return the rules of each provider. They import the SDKs' types, which takes seconds."""
    from tests.support.providers import anthropic_rules, gemini_rules, openai_chat_rules, openai_responses_rules

    return {
        "anthropic": anthropic_rules.require_legal,
        "gemini": gemini_rules.require_legal,
        "openai-chat": openai_chat_rules.require_legal,
        "openai-responses": openai_responses_rules.require_legal,
    }


def find_faults(entries: Sequence[Envelope], shown: set[str]) -> list[str]:
    """Return the faults of a session that is at rest and not halted.

    Args:
        entries: the session's log.
        shown: the users' words that were part of a model's request.
    """
    events = [(entry.position, event) for entry in entries if (event := _event(entry)) is not None]
    return [
        *_of_commands(entries, events),
        *_of_loops(entries, events),
        *_of_words(entries, events, shown),
        *(_of_contexts(entries) if entries else ()),
    ]


_Events = Sequence[tuple[int, AgentEvent]]


def _event(entry: Envelope) -> AgentEvent | None:
    return parse_event(entry.message) if isinstance(entry.message, ExtensionMessage) else None


def _of_commands(entries: Sequence[Envelope], events: _Events) -> Iterator[str]:
    sent = [e.position for e in entries if isinstance(e.message, ExtensionMessage) and e.message.is_control]
    answered = [event.control for _, event in events if isinstance(event, ControlAnswered)]
    if sent != answered:
        yield f"commands {sent} are answered as {answered}"


def _of_loops(entries: Sequence[Envelope], events: _Events) -> Iterator[str]:
    is_open: str | None = None
    began = [event.loop_id for _, event in events if isinstance(event, AgentStarted)]
    for position, event in events:
        match event:
            case AgentStarted(loop_id=loop):
                if is_open is not None or began.count(loop) > 1:
                    yield f"{position}: {loop} begins, {is_open} is open"
                is_open = loop
            case AgentEnded(loop_id=loop, usage=usage):
                if is_open != loop:
                    yield f"{position}: {loop} ends, {is_open} is open"
                is_open = None
                spent = _spent(entries, loop, position)
                if (spent.input, spent.output) != (usage.input, usage.output):
                    yield f"{position}: {loop} took {spent}, and says {usage}"
            case _:
                pass
    if is_open is not None:
        yield f"{is_open} is left open"
    turns = Counter(str(event.turn_id) for _, event in events if isinstance(event, TurnEnded))
    messages = [entry.message for entry in entries]
    results = Counter((str(m.turn_id), m.tool_call_id) for m in messages if isinstance(m, ToolResultMessage))
    yield from (f"{turn} ended {times} times" for turn, times in turns.items() if times > 1)
    yield from (f"{call} has {times} results" for call, times in results.items() if times > 1)


def _spent(entries: Sequence[Envelope], loop: str, before: int) -> Usage:
    usage = Usage()
    for entry in entries:
        message = entry.message
        if isinstance(message, AssistantMessage) and message.turn_id is not None and entry.position < before:
            usage = usage.combine(message.usage or Usage()) if message.turn_id.loop_id == loop else usage
    return usage


def _of_words(entries: Sequence[Envelope], events: _Events, shown: set[str]) -> Iterator[str]:
    """Return the words without an outcome: each word is shown to a model, aborted, rejected or left by a limit."""
    aborts = {e.position for e in entries if _is_abort(e)}
    over = [event.control for _, event in events if isinstance(event, ControlAnswered) and event.outcome == "applied"]
    ends = [*(position for position in over if position in aborts)]
    ends += [at for at, event in events if isinstance(event, AgentEnded) and event.stop_reason in _LIMITS]
    rejected = {position for e in entries if isinstance(e.message, Prune) for position in e.message.pruned}
    for entry in entries:
        message = entry.message
        if not isinstance(message, UserMessage) or message.turn_id is not None or message.text_content() in shown:
            continue
        if entry.position not in rejected and not any(end > entry.position for end in ends):
            yield f"{entry.position}: {message.text_content()} was shown to nobody"


_LIMITS = frozenset({"guardRail", "maxTurns"})


def _is_abort(entry: Envelope) -> bool:
    return isinstance(entry.message, ExtensionMessage) and entry.message.kind == Abort.KIND


def _of_contexts(entries: Sequence[Envelope]) -> Iterator[str]:
    """Check that every provider accepts the context at every position, and that it contains no word of a command."""
    context = Context(entries[0].session)
    for entry in entries:
        if entry.lane is not Lane.LLM:
            continue
        if CANARY in repr(entry.message):
            yield f"{entry.position}: what a command says stands in the LLM lane"
        context = evolve(context, entry)
        if not context.messages:
            continue
        for name, provider in PROVIDERS.items():
            try:
                rules()[name](provider.to_request(context, model="m").body)
            except AssertionError as error:
                yield f"{entry.position}: {name} does not take the context: {error}"
