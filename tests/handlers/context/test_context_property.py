"""Whatever stands in the LLM lane, its context is right and its request legal, at every position.

The context is compared with a second fold that is slow and simple: it keeps each entry's parent, derives everything
anew from the root, and looks for each call's result in the whole path.
"""

import json
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import AssistantMessage, Envelope, LlmMessage, SystemMessage, TextBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages import ThinkingLevelChange, ToolResultBlock
from lanebus.handlers.context import Context, branch_message, evolve, prune_message
from lanebus.handlers.context.fold import compaction_message
from lanebus.messages import BranchSummary, Compaction, DeveloperMessage, LeafMove, LoopCompaction, ModelChange, Prune
from lanebus.providers import to_anthropic
from tests.support.messages.lane_logs import CANARY, lane_logs
from tests.support.providers.anthropic_rules import require_legal
from tests.support.suite.scale import examples

_Stands = tuple[int, bool, list[object]]


@dataclass
class _Expected:
    messages: list[LlmMessage]
    path: list[int]
    system: list[str]
    model: str | None
    thinking_level: str | None


def _expected(entries: list[Envelope]) -> _Expected:
    by_position = {envelope.position: envelope for envelope in entries}
    parents: dict[int, int | None] = {}
    leaf_after: dict[int, int | None] = {}
    leaf: int | None = None
    for envelope in entries:
        parents[envelope.position] = leaf
        match envelope.message:
            case LeafMove(to=None):
                leaf = None
            case LeafMove(to=int(to)):
                leaf = leaf_after.get(to, leaf)
            case _:
                leaf = envelope.position
        leaf_after[envelope.position] = leaf
    path: list[Envelope] = []
    while leaf is not None:
        path.insert(0, by_position[leaf])
        leaf = parents[leaf]
    said = [envelope.message for envelope in path]
    models = [
        message.model
        for message in said
        if isinstance(message, ModelChange) or (isinstance(message, AssistantMessage) and message.model)
    ]
    levels = [message.level for message in said if isinstance(message, ThinkingLevelChange)]
    standing = _overlaid(_standing(path))
    return _Expected(
        messages=_paired([message for _, _, messages in standing for message in messages]),
        path=[position for position, is_standing, _ in standing if is_standing],
        system=[message.text_content() for message in said if isinstance(message, SystemMessage | DeveloperMessage)],
        model=models[-1] if models else None,
        thinking_level=levels[-1] if levels else None,
    )


def _standing(path: list[Envelope]) -> list[Envelope]:
    compactions = [index for index, envelope in enumerate(path) if isinstance(envelope.message, Compaction)]
    if not compactions:
        return path
    last = compactions[-1]
    first_kept = getattr(path[last].message, "first_kept", None)
    starts = [index for index in range(last) if path[index].position == first_kept]
    kept = path[starts[0] : last] if starts else []
    return [path[last], *(e for e in kept if not isinstance(e.message, Compaction)), *path[last + 1 :]]


def _overlaid(standing: list[Envelope]) -> list[_Stands]:
    """Position, whether it is in the path, and what is said there; each overlay where the first is that it covers."""
    items: list[_Stands] = [
        (e.position, isinstance(e.message, LlmMessage | Compaction | BranchSummary), [e.message]) for e in standing
    ]
    by_position = {envelope.position: envelope.message for envelope in standing}
    for overlay in standing:
        match overlay.message:
            case Prune(pruned=pruned) as prune:
                covered = {position for position in pruned if position < overlay.position}
                memo = prune_message(prune)
                said: list[object] = [memo] if memo else []
            case LoopCompaction(loop_id=loop, block=block):
                if any(
                    isinstance(e.message, LoopCompaction)
                    and e.message.loop_id == loop
                    and e.position > overlay.position
                    for e in standing
                ):
                    continue
                covered = {
                    position
                    for position, message in by_position.items()
                    if position < overlay.position and isinstance(message, LlmMessage) and message.turn_id
                    if message.turn_id.loop_id == loop
                    if not (block.keep_first and message.turn_id.turn_index in block.keep_first)
                }
                said = [*block.messages]
            case _:
                continue
        covered -= {at for at, message in by_position.items() if isinstance(message, SystemMessage | DeveloperMessage)}
        places = [index for index, (position, _, _) in enumerate(items) if position in covered]
        if places:
            items[places[0]] = (overlay.position, True, said)
            items = [item for index, item in enumerate(items) if index not in places[1:]]
    return items


def _paired(said: list[object]) -> list[LlmMessage]:
    """For each result the last call before it that has its id; for each call the results found so, the first counts."""
    found: dict[tuple[int, str], list[ToolResultMessage]] = {}
    owner: dict[str, int] = {}
    for index, message in enumerate(said):
        if isinstance(message, AssistantMessage):
            owner |= {call.id: index for call in message.tool_calls()}
        for result in _results_in(message):
            if result.tool_call_id in owner:
                found.setdefault((owner[result.tool_call_id], result.tool_call_id), []).append(result)
    messages: list[LlmMessage] = []
    for index, message in enumerate(said):
        match message:
            case Compaction(summary=str(summary)) if summary.strip():
                messages.append(compaction_message(message) or UserMessage())
            case BranchSummary(summary=str(summary)) if summary.strip():
                messages.append(branch_message(message) or UserMessage())
            case AssistantMessage() if message.is_failed:
                pass
            case UserMessage() | AssistantMessage():
                rest = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
                if rest or not message.content:
                    messages.append(message.model_copy(update={"content": rest}))
            case _:
                pass
        if isinstance(message, AssistantMessage) and not message.is_failed:
            for call in message.tool_calls():
                results = found.get((index, call.id))
                messages.append(
                    results.pop(0)
                    if results
                    else ToolResultMessage(
                        tool_call_id=call.id,
                        tool_name=call.name,
                        content=(TextBlock(text="No result provided"),),
                        is_error=True,
                    )
                )
    return messages


def _results_in(message: object) -> list[ToolResultMessage]:
    if isinstance(message, ToolResultMessage):
        return [message]
    if not isinstance(message, UserMessage | AssistantMessage):
        return []
    if isinstance(message, AssistantMessage) and message.is_failed:
        return []
    return [
        ToolResultMessage(
            tool_call_id=block.tool_call_id,
            content=block.content,
            metadata=block.metadata,
            structured=block.structured,
            terminate=block.terminate,
            terminate_message=block.terminate_message,
        )
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


@pytest.mark.full
@examples(300)
@given(lane_logs())
def test_the_context_equals_that_of_a_simple_fold_at_every_position(entries: list[Envelope]) -> None:
    context = Context("s")
    for index, envelope in enumerate(entries):
        context = evolve(context, envelope)
        expected = _expected(entries[: index + 1])
        assert [*context.messages] == expected.messages
        assert [stands.position for stands in context.path] == expected.path
        assert [message.text_content() for message in context.system] == expected.system
        assert (context.model, context.thinking_level) == (expected.model, expected.thinking_level)


@pytest.mark.full
@examples(300)
@given(lane_logs(), st.sampled_from(["drop", "text"]))
def test_every_context_makes_a_legal_request_without_private_data(entries: list[Envelope], thinking: str) -> None:
    context = Context("s")
    for envelope in entries:
        context = evolve(context, envelope)
    request = to_anthropic(context, model="m", foreign_thinking="text" if thinking == "text" else "drop")
    require_legal(request.body)
    assert CANARY not in json.dumps([request.body, request.warnings])


@pytest.mark.full
@examples(100)
@given(lane_logs())
def test_a_context_is_not_changed_by_later_entries(entries: list[Envelope]) -> None:
    context = Context("s")
    snapshots = [(context, list(context.messages), list(context.path))]
    for envelope in entries:
        context = evolve(context, envelope)
        snapshots.append((context, list(context.messages), list(context.path)))
    for snapshot, messages, path in snapshots:
        assert list(snapshot.messages) == messages
        assert list(snapshot.path) == path
    for (before, _, _), (after, _, _) in pairwise(snapshots):
        assert after.position > before.position
