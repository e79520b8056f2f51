"""Branches, labels and compactions are published only if they fit the log, and remove nothing from it."""

import pytest

from lanebus import Conflict, ExtensionMessage, Receipt, Session
from lanebus.bus.messages import RevertApplied, parse_event
from lanebus.context import (
    UnknownTarget,
    branch,
    branch_with_summary,
    compact,
    compact_loops,
    label,
    loops_of,
    prune,
    read_tree,
    revert,
)
from lanebus.errors import NoSuchPosition
from lanebus.handlers.context import UnknownLeaf, build_context
from lanebus.handlers.context.loop_compaction import BlockSettings, blocks_of
from lanebus.messages import BranchSummary, Compaction, CompactionEnded, LeafMove, PruneApplied, Publishable, TurnId
from tests.support.agent.logs import events, events_of
from tests.support.log.entries import asks, calls, results, says, texts

__all__ = ()


@pytest.fixture
async def session(session: Session) -> Session:
    """A log of q1 a1 note q2 a2, at 1 to 5."""
    await session.publish(asks("q1"), says("a1"), ExtensionMessage.of("note"), asks("q2"), says("a2"))
    return session


async def messages(session: Session) -> list[object]:
    return [envelope.message async for envelope in session.read()]


# --- branches -----------------------------------------------------------------------------------------------------


async def test_what_follows_a_branch_continues_the_entry_that_it_names(session: Session) -> None:
    await branch(session, 2)
    await session.publish(asks("other"))
    assert texts(await build_context(session)) == ["u:q1", "a:a1", "u:other"]
    await branch(session, None)
    assert texts(await build_context(session)) == []


@pytest.mark.parametrize("to", [0, -1, 3, 6, 99])
async def test_a_branch_from_an_unknown_entry_is_refused_and_nothing_is_published(session: Session, to: int) -> None:
    # 3 is of the extension lane, 6 comes after the last.
    for attempt in (branch(session, to), branch_with_summary(session, to, "s"), label(session, to, "x")):
        with pytest.raises(UnknownLeaf) as caught:
            await attempt
        assert caught.value.leaf == to
    assert (await session.head()).position == 5


async def test_the_new_branch_has_the_summary_of_the_one_that_was_left(session: Session) -> None:
    await branch_with_summary(session, 1, "S", metadata={"by": "me"})
    move, summary = (await messages(session))[-2:]
    assert isinstance(move, LeafMove)
    assert isinstance(summary, BranchSummary)
    assert (move.to, summary.branch, summary.metadata) == (1, 5, {"by": "me"})
    first, told = texts(await build_context(session))
    assert first == "u:q1"
    assert "<summary>\nS</summary>" in told


async def test_a_revert_publishes_its_category_and_not_its_summary_on_the_extension_lane(session: Session) -> None:
    await revert(session, 2, "a lesson", "failure", loop_id="s.main.1")
    move, summary, event = (await messages(session))[-3:]
    assert isinstance(move, LeafMove)
    assert isinstance(summary, BranchSummary)
    assert isinstance(event, ExtensionMessage)
    assert parse_event(event) == RevertApplied(
        loop_id="s.main.1", category="failure", target=2, summary=7, applied=True
    )
    assert (move.to, summary.summary) == (2, "a lesson")
    assert "lesson" not in event.to_json()


async def test_nothing_is_ever_removed_from_the_log(session: Session) -> None:
    before = await messages(session)
    await branch_with_summary(session, 1, "S")
    await compact(session, "S", None)
    await prune(session, [1, 2])
    await label(session, 1, "start")
    assert (await messages(session))[: len(before)] == before
    assert texts(await build_context(session, leaf=5)) == ["u:q1", "a:a1", "u:q2", "a:a2"]


async def test_an_append_in_between_is_a_conflict(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = session.publish

    async def after_another(*said: Publishable, expected: int | None = None, epoch: int | None = None) -> Receipt:
        await publish(asks("meanwhile"))
        return await publish(*said, expected=expected, epoch=epoch)

    monkeypatch.setattr(session, "publish", after_another)
    attempts = (
        branch(session, 2),
        branch_with_summary(session, 2, "S"),
        revert(session, 2, "S", "tangent", loop_id="s.main.1"),
        compact(session, "S", 4),
        compact_loops(session, blocks_of({"s.main.1": [asks("q")]}, BlockSettings())),
        prune(session, [1]),
        label(session, 1, "x"),
    )
    for attempt in attempts:
        with pytest.raises(Conflict):
            await attempt
    monkeypatch.undo()
    assert texts(await build_context(session))[4:] == ["u:meanwhile"] * len(attempts)


# --- shorter ------------------------------------------------------------------------------------------------------


async def test_a_compaction_keeps_entries_from_first_kept_on_and_records_the_tokens_before(session: Session) -> None:
    await compact(session, "S", 4)
    compaction = (await messages(session))[-1]
    assert isinstance(compaction, Compaction)
    # Four messages of one token and four for what goes around it.
    assert (compaction.first_kept, compaction.tokens_before) == (4, 4 * 5)
    assert texts(await build_context(session))[1:] == ["u:q2", "a:a2"]


async def test_a_compaction_with_a_loop_id_publishes_its_event(session: Session) -> None:
    await compact(session, "S", 4, loop_id="s.main.1")
    (ended,) = await events_of(session, CompactionEnded)
    assert (ended.messages_before, ended.messages_after, ended.position) == (4, 3, 6)
    assert ended.estimated_tokens_before == 20
    assert ended.estimated_tokens_after > 10


@pytest.mark.parametrize("first_kept", [3, 5, 9])
async def test_a_compaction_that_keeps_from_another_branch_is_refused(session: Session, first_kept: int) -> None:
    await branch(session, 2)
    with pytest.raises(UnknownTarget):
        await compact(session, "S", first_kept)
    assert (await session.head()).position == 6


async def test_a_kept_range_that_begins_with_a_result_is_repaired(session: Session) -> None:
    receipt = await session.publish(calls("x"), results("x", "r"), asks("q3"))
    await compact(session, "S", receipt.positions[1])
    assert texts(await build_context(session))[1:] == ["u:q3"]


async def test_loops_are_compacted_in_one_publish(session: Session) -> None:
    for loop in ("s.main.1", "s.main.2"):
        for turn in range(4):
            stamp = TurnId(loop_id=loop, turn_index=turn)
            await session.publish(
                asks(f"{loop[-1]}q{turn}").with_turn_id(stamp), says(f"{loop[-1]}a{turn}").with_turn_id(stamp)
            )
    context = await build_context(session)
    settings = BlockSettings(keep_first=1, keep_recent=1)
    await compact_loops(session, blocks_of(loops_of(context.messages), settings))
    assert texts(await build_context(session)) == [
        *("u:q1", "a:a1", "u:q2", "a:a2"),
        *(f"u:[Summary] 1a{turn}" for turn in range(4)),
        *("u:2q0", "a:2a0", "u:[Summary] 2a1", "u:[Summary] 2a2", "u:2q3", "a:2a3"),
    ]


async def test_a_prune_of_an_unknown_entry_is_refused(session: Session) -> None:
    with pytest.raises(UnknownTarget) as caught:
        await prune(session, [1, 3])
    assert caught.value.target == 3
    await prune(session, [2, 1, 2], "greeted", loop_id="s.main.1")
    assert (await events(session))[-1] == PruneApplied(
        loop_id="s.main.1", tokens_removed=10, messages_removed=2, pruned=(1, 2)
    )
    assert texts(await build_context(session)) == ["u:[Pruned context summary: greeted]", "u:q2", "a:a2"]


# --- the tree -----------------------------------------------------------------------------------------------------


async def test_a_tree_knows_its_branches_their_paths_and_labels(session: Session) -> None:
    await branch(session, 2)  # 6
    await session.publish(asks("other"))  # 7
    await label(session, 4, "second")  # 8, on the new branch
    await branch(session, None)  # 9
    await session.publish(asks("anew"))  # 10
    tree = await read_tree(session)
    assert [envelope.position for envelope in tree.path()] == [10]
    assert [envelope.position for envelope in tree.path(8)] == [1, 2, 7, 8]
    assert [envelope.position for envelope in tree.path(5)] == [1, 2, 4, 5]
    assert [envelope.position for envelope in tree.path(6)] == [1, 2]  # a move stands where it led
    assert tree.path(0) == ()
    assert (tree.children(2), tree.children(0), tree.children(5)) == ((4, 7), (1, 10), ())
    assert tree.branches() == (5, 8, 10)
    assert dict(tree.labels) == {4: "second"}
    assert tree.leaf == 10
    for position in (3, 11, -1):
        with pytest.raises(UnknownLeaf):
            tree.path(position)


async def test_a_removed_label_is_gone(session: Session) -> None:
    await label(session, 4, "second")
    await label(session, 4, None)
    assert dict((await read_tree(session)).labels) == {}


async def test_a_tree_as_of_an_earlier_position_is_unchanged(session: Session) -> None:
    await branch(session, 1)
    assert (await read_tree(session, at=4)).leaf == 4
    assert (await read_tree(session)).leaf == 1


# --- a context at a leaf ------------------------------------------------------------------------------------------


async def test_building_a_context_at_a_leaf_writes_nothing(session: Session) -> None:
    await branch(session, 1)
    await session.publish(asks("other"))
    assert texts(await build_context(session, leaf=5)) == ["u:q1", "a:a1", "u:q2", "a:a2"]
    assert texts(await build_context(session, leaf=6)) == ["u:q1"]
    assert texts(await build_context(session, leaf=7, at=7)) == ["u:q1", "u:other"]
    assert texts(await build_context(session, leaf=0)) == []
    assert (await session.head()).position == 7


@pytest.mark.parametrize(("leaf", "at"), [(3, None), (6, None), (-1, None), (5, 4)])
async def test_an_unknown_leaf_is_an_error(session: Session, leaf: int, at: int | None) -> None:
    with pytest.raises(UnknownLeaf) as caught:
        await build_context(session, leaf=leaf, at=at)
    assert (caught.value.session, caught.value.leaf) == ("s1", leaf)


async def test_a_context_after_the_end_of_the_log_is_refused(session: Session) -> None:
    await session.publish(ExtensionMessage.of("note"))
    assert texts(await build_context(session, at=6)) == texts(await build_context(session))
    assert len((await read_tree(session, at=6)).entries) == 4
    for read in (build_context(session, at=7), read_tree(session, at=7)):
        with pytest.raises(NoSuchPosition, match="has no position 7: name one from 1 to its last, 6"):
            await read


async def test_a_compaction_or_prune_of_no_entry_names_the_argument(session: Session) -> None:
    with pytest.raises(UnknownTarget, match="`first_kept` is 99, which is not on the path to the leaf of session"):
        await compact(session, "s", 99)
    with pytest.raises(UnknownTarget, match="`positions` has 99, which is not in the LLM lane of session"):
        await prune(session, [1, 99])
