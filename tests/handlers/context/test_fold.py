"""The fold: entries of the LLM lane become the context that a model sees."""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus import (
    AssistantMessage,
    DecodeFailure,
    Delta,
    Envelope,
    ExtensionMessage,
    Lane,
    LlmMessage,
    Session,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)
from lanebus.bus.messages import LeafMove, LoopCompaction, ModelChange, Prune, Publishable, ThinkingLevelChange, TurnId
from lanebus.context import Context, Fault, Misplaced, UnknownTarget, WarmContext, build_context, evolve
from lanebus.errors import ForgedEntry
from lanebus.handlers.context import Object, branch_message, prune_message
from lanebus.handlers.context.fold import compaction_message
from lanebus.handlers.providers import PROVIDERS
from lanebus.messages import (
    BranchSummary,
    CompactedSection,
    Compaction,
    CompactionBlock,
    DeveloperMessage,
    Label,
    ToolResultBlock,
    TurnRange,
)
from lanebus.providers import to_anthropic
from tests.support.log.entries import ListedSession, asks, calls, context_of, entry, results, says, texts
from tests.support.messages.lane_logs import CANARY, lane_logs
from tests.support.providers.anthropic_rules import require_legal
from tests.support.suite.scale import examples
from tests.support.transcripts.real_session import real_log

__all__ = ()

NONE = "t:No result provided"


def _compacted(summary: str) -> str:
    return (
        "u:The conversation history before this point was compacted into the following summary:\n\n"
        f"<summary>\n{summary}\n</summary>"
    )


def _positions(context: Context) -> list[int]:
    return [envelope.position for envelope in context.path]


def _faults(context: Context) -> list[tuple[int, int]]:
    return [(fault.position, fault.error.target) for fault in context.faults if isinstance(fault.error, UnknownTarget)]


# --- what stands --------------------------------------------------------------------------------------------------


def test_an_empty_session_has_an_empty_context() -> None:
    context = context_of()
    assert (context.position, context.model, context.provider, context.thinking_level) == (0, None, None, None)
    assert not context.messages
    assert not context.path


NESTED = UserMessage(
    content=(
        TextBlock(text="and now?"),
        ToolResultBlock(tool_call_id="x", content=(TextBlock(text="1"),)),
        ToolResultBlock(tool_call_id="gone", content=(TextBlock(text="2"),)),
    )
)
BRANCH = "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nB</summary>"
COMPACTED_TWICE: list[Publishable] = [
    *(asks("a"), asks("b"), Compaction(summary="S1", first_kept=2)),
    *(asks("c"), Compaction(summary="S2", first_kept=1), asks("d")),
]
CASES: dict[str, tuple[list[Publishable], list[str]]] = {
    "messages stand in the order of the log": ([asks("a"), says("b"), asks("c")], ["u:a", "a:b", "u:c"]),
    "only the last compaction is shown": (COMPACTED_TWICE, [_compacted("S2"), "u:a", "u:b", "u:c", "u:d"]),
    "a result is left out whose call was compacted": (
        [calls("x"), results("x", "r"), Compaction(summary="S", first_kept=2), asks("b")],
        [_compacted("S"), "u:b"],
    ),
    "a blank summary still covers entries": (
        [asks("a"), asks("b"), Compaction(summary=" \n", first_kept=2), BranchSummary(summary="")],
        ["u:b"],
    ),
    "a blank memo still covers entries": ([asks("a"), asks("b"), Prune(pruned=(1,), memo=" \n")], ["u:b"]),
    # --- branches
    "a leaf can move back to the branch it left": (
        [asks("a"), asks("b"), LeafMove(to=1), asks("c"), LeafMove(to=2), asks("d")],
        ["u:a", "u:b", "u:d"],
    ),
    "a move to a move leads where that one led": (
        [asks("a"), asks("b"), LeafMove(to=1), asks("c"), LeafMove(to=3), asks("d")],
        ["u:a", "u:d"],
    ),
    "a move before a compaction undoes it": (
        [asks("a"), asks("b"), Compaction(summary="S"), asks("c"), LeafMove(to=2), asks("d")],
        ["u:a", "u:b", "u:d"],
    ),
    "a branch's summary stands in its place": (
        [asks("a"), BranchSummary(summary="B"), BranchSummary(summary=""), asks("b")],
        ["u:a", f"u:{BRANCH}", "u:b"],
    ),
    # --- calls and results
    "results follow their calls in order": (
        [calls("x", "y"), asks("wait"), results("y", "2"), says("hm"), results("x", "1")],
        ["a:<x><y>", "t:1", "t:2", "u:wait", "a:hm"],
    ),
    "the first of two results counts": ([calls("x"), results("x", "1"), results("x", "2")], ["a:<x>", "t:1"]),
    "a result without a call is left out": ([asks("a"), results("x", "1"), says("b")], ["u:a", "a:b"]),
    "a result before its call is left out": ([results("x", "1"), calls("x")], ["a:<x>", NONE]),
    "results of a failed answer are left out": (
        [asks("a"), calls("x", stop_reason="aborted"), results("x", "1")],
        ["u:a"],
    ),
    "an id used again belongs to the newest call": (
        [calls("x"), calls("x"), results("x", "2"), results("x", "again")],
        ["a:<x>", NONE, "a:<x>", "t:2"],
    ),
    "an id that a failed answer used again answers no older call": (
        [calls("x"), calls("x", stop_reason="error"), results("x", "of the failed one")],
        ["a:<x>", NONE],
    ),
    "two calls of one id get their results in turn": (
        [calls("x", "x"), results("x", "1"), results("x", "2")],
        ["a:<x><x>", "t:1", "t:2"],
    ),
    "results inside a user's message stand like others": ([calls("x"), NESTED], ["a:<x>", "t:1", "u:and now?"]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_messages_of_a_log(case: str) -> None:
    entries, shown = CASES[case]
    assert texts(context_of(*entries)) == shown


def test_failed_and_aborted_answers_stay_in_the_path_and_out_of_the_messages() -> None:
    context = context_of(asks("a"), says("half", stop_reason="aborted"), says("", stop_reason="error"), says("b"))
    assert texts(context) == ["u:a", "a:b"]
    assert _positions(context) == [1, 2, 3, 4]


def test_instructions_are_kept_in_order_and_survive_a_compaction() -> None:
    context = context_of(
        SystemMessage(content=(TextBlock(text="1"),)),
        asks("a"),
        DeveloperMessage(content=(TextBlock(text="2"),)),
        Compaction(summary="S", first_kept=None),
        SystemMessage(content=(TextBlock(text="3"),)),
    )
    assert [message.text_content() for message in context.system] == ["1", "2", "3"]
    assert texts(context) == [_compacted("S")]


def test_a_label_changes_nothing() -> None:
    context = context_of(asks("a"), Label(target=1, label="start"))
    assert texts(context) == ["u:a"]
    assert context.position == 2


# --- model and thinking level -------------------------------------------------------------------------------------


def test_the_last_of_model_changes_and_answers_names_the_model() -> None:
    changed = ModelChange(provider="openai", model="gpt")
    assert context_of(says("a"), changed).model == "gpt"
    assert context_of(changed, says("a")).model == "claude-sonnet-5-5"
    assert context_of(changed, AssistantMessage()).model == "gpt"


def test_the_last_thinking_level_survives_a_compaction() -> None:
    context = context_of(
        ThinkingLevelChange(level="low"), ThinkingLevelChange(level="high"), asks("a"), Compaction(summary="S")
    )
    assert context.thinking_level == "high"


# --- compaction ---------------------------------------------------------------------------------------------------


def test_a_summary_comes_first_then_what_was_kept_then_the_rest() -> None:
    context = context_of(asks("a"), asks("b"), asks("c"), Compaction(summary="S", first_kept=3), asks("d"))
    assert texts(context) == [_compacted("S"), "u:c", "u:d"]
    assert _positions(context) == [4, 3, 5]


@pytest.mark.parametrize("first_kept", [None, 7, 99])
def test_a_compaction_that_names_no_entry_of_its_path_keeps_nothing(first_kept: int | None) -> None:
    context = context_of(asks("a"), Compaction(summary="S", first_kept=first_kept), asks("b"))
    assert texts(context) == [_compacted("S"), "u:b"]
    assert _faults(context) == ([(2, first_kept)] if first_kept else [])


# --- branches -----------------------------------------------------------------------------------------------------


def test_a_leaf_move_leaves_the_entries_after_its_target_out() -> None:
    context = context_of(asks("a"), says("b"), asks("c"), LeafMove(to=2), asks("d"))
    assert texts(context) == ["u:a", "a:b", "u:d"]
    assert _positions(context) == [1, 2, 5]


def test_a_move_before_the_first_entry_starts_anew() -> None:
    context = context_of(asks("a"), ModelChange(provider="p", model="m"), LeafMove(), asks("b"))
    assert texts(context) == ["u:b"]
    assert context.model is None


@pytest.mark.parametrize("target", [2, 3, 4, 99])
def test_a_move_to_an_unknown_or_later_entry_is_recorded_and_moves_nothing(target: int) -> None:
    # position 2 is of the extension lane, 3 is the move itself
    entries = [entry(1, asks("a")), entry(3, LeafMove(to=target)), entry(4, asks("b"))]
    context = Context("s")
    for envelope in entries:
        context = evolve(context, envelope)
    assert texts(context) == ["u:a", "u:b"]
    assert _faults(context) == [(3, target)]


# --- calls and results --------------------------------------------------------------------------------------------


def test_an_unanswered_call_has_a_placeholder_until_its_result_arrives() -> None:
    before = context_of(asks("a"), calls("x"))
    assert texts(before) == ["u:a", "a:<x>", NONE]
    assert before.messages[2].model_dump()["is_error"] is True
    after = evolve(before, entry(3, results("x", "1")))
    assert texts(after) == ["u:a", "a:<x>", "t:1"]
    assert texts(before) == ["u:a", "a:<x>", NONE]


# --- what is refused ----------------------------------------------------------------------------------------------


def test_an_unreadable_entry_is_recorded_as_a_fault_and_skipped() -> None:
    forged = ForgedEntry("s:llm", "2-0", "not written by the bus")
    unreadable = entry(2, asks("x"))._replace(message=DecodeFailure(forged, b"{}"))
    context = Context("s")
    for envelope in (entry(1, asks("a")), unreadable, entry(3, LeafMove(to=2)), entry(4, says("b"))):
        context = evolve(context, envelope)
    assert texts(context) == ["u:a", "a:b"]
    assert context.faults == (Fault(2, forged),)
    assert to_anthropic(context).warnings == (f"entry 2: {forged}",)


def test_an_entry_forged_below_a_position_is_recorded_once_and_ends_no_reader() -> None:
    forged = entry(1, asks("x"))._replace(message=DecodeFailure(ForgedEntry("s:llm", "1-1", "forged"), b""), delta=1)
    context = evolve(evolve(context_of(asks("a")), forged), forged)
    assert [fault.position for fault in context.faults] == [1]
    assert texts(evolve(context, entry(2, says("b")))) == ["u:a", "a:b"]


NOTE = ExtensionMessage.of("progress", {"percent": 4})


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (entry(3, NOTE), ForgedEntry),
        (entry(3, NOTE)._replace(lane=Lane.LLM), ForgedEntry),
        (entry(3, asks("a"))._replace(lane=Lane.EXTENSION), ForgedEntry),
        (entry(3, asks("a"))._replace(message=Delta(kind="text", message_id="m", delta="a"), delta=1), Misplaced),
        (entry(1, asks("c")), Misplaced),
        (entry(2, asks("c")), Misplaced),
        (entry(3, asks("a"), session="other"), Misplaced),
    ],
    ids=["extension", "in the wrong lane", "also", "live delta", "folded before", "again", "of another session"],
)
def test_an_entry_that_belongs_elsewhere_is_refused(wrong: Envelope, error: type[Exception]) -> None:
    with pytest.raises(error):
        evolve(context_of(asks("a"), asks("b")), wrong)


# --- from a session -----------------------------------------------------------------------------------------------


async def test_a_context_is_built_as_of_any_position() -> None:
    said: list[Publishable] = [asks("a"), ExtensionMessage.of("progress"), says("b"), LeafMove(to=1), asks("c")]
    session = ListedSession(*said)
    assert texts(await build_context(session, at=3)) == ["u:a", "a:b"]
    now = await build_context(session)
    assert texts(now) == ["u:a", "u:c"]
    assert now.position == 5


async def test_a_warm_context_reads_only_what_is_new() -> None:
    session = ListedSession(*(asks(str(number)) for number in range(20)))
    warm = WarmContext(session)
    first = await warm.refresh()
    session.entries.append(entry(21, says("b")))
    second = await warm.refresh()
    assert session.given == 21
    assert len(first.messages) == 20
    assert second == await build_context(session)


async def test_a_context_comes_out_of_a_real_log_as_it_went_in(session: Session) -> None:
    progress = ExtensionMessage.of("progress")
    said: list[Publishable] = [ModelChange(provider="anthropic", model="m"), asks("a"), progress, calls("x")]
    later: list[Publishable] = [results("x", "1"), progress, Compaction(summary="S", first_kept=2), says("b")]
    warm = WarmContext(session)
    await session.publish(*said)
    before = await warm.refresh()
    await session.publish(*later)
    assert texts(before) == ["u:a", "a:<x>", NONE]
    assert await warm.refresh() == await build_context(session)
    assert texts(warm.context) == [_compacted("S"), "u:a", "a:<x>", "t:1", "a:b"]
    assert warm.context.position == 8
    assert await build_context(session, at=4) == before


# --- summaries reach every provider; entries that only steer the context reach none --------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_summary_is_in_every_provider_s_request(provider: str) -> None:
    compaction, summary = Compaction(summary="the past", tokens_before=77777), BranchSummary(summary="elsewhere")
    told = (compaction_message(compaction), branch_message(summary))
    turns = TurnRange(start_turn=0, end_turn=0)
    block = CompactionBlock(
        keep_compacted=CompactedSection(range=turns, messages=(asks("in short"),)), created_at="2026-03-01T10:00:00Z"
    )
    context = context_of(
        compaction,  # 1
        summary,  # 2
        asks("long").with_turn_id(TurnId(loop_id="s.main.1", turn_index=0)),  # 3
        asks("pruned"),  # 4
        LoopCompaction(loop_id="s.main.1", block=block),
        Prune(pruned=(4,), memo="was pruned"),
        Label(target=3, label="a name"),
        asks("next"),
    )
    body = json.dumps(PROVIDERS[provider].to_request(context, model="m").body)
    texts = (
        *(message.text_content() for message in told if message is not None),
        *("in short", "[Pruned context summary: was pruned]", "next"),
    )
    places = [body.find(json.dumps(text)[1:-1]) for text in texts]
    assert len(texts) == 5
    assert -1 not in places
    assert places == sorted(places)
    assert not any(text in body for text in ("long", "77777", "a name"))


# --- a real coding-agent session, 1,002 entries long ---------------------------------------------------------------


def _at_end(seed_data: Path) -> Context:
    context = Context("s")
    for envelope in real_log(seed_data):
        context = evolve(context, envelope)
    return context


def test_the_context_at_the_end_is_the_last_summary_and_445_messages(seed_data: Path) -> None:
    context = _at_end(seed_data)
    summary, *messages = context.path
    assert (summary.position, messages[0].position, len(messages)) == (628, 551, 445)
    assert isinstance(summary.message, Compaction)
    assert context.messages[0].text_content().endswith(f"<summary>\n{summary.message.summary}\n</summary>")
    first_turn = cast("list[dict[str, list[Object]]]", to_anthropic(context).body["messages"])[0]
    assert first_turn["content"][0]["text"] == context.messages[0].text_content()
    assert not context.faults


def test_no_failed_answer_is_in_the_messages_and_every_good_one_is(seed_data: Path) -> None:
    context = _at_end(seed_data)
    said = [stands.message for stands in context.path if isinstance(stands.message, AssistantMessage)]
    good = [message for message in said if not message.is_failed]
    assert len(said) - len(good) == 7
    assert [message for message in context.messages if isinstance(message, AssistantMessage)] == good


# --- whatever stands in the LLM lane, its context is right and its request legal, at every position ----------------

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
    prunes = [(each.position, each.message.pruned) for each in path if isinstance(each.message, Prune)]
    undone = {at for position, pruned in prunes for at in pruned if at < position}
    compactions = [
        index for index, each in enumerate(path) if isinstance(each.message, Compaction) and each.position not in undone
    ]
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
