"""Claude Code's session files: the lines of an answer become one message; usage counts once; the tree is kept."""

from pathlib import Path

import pytest

from lanebus.bus import messages as our
from lanebus.handlers.context import build_context
from lanebus.handlers.formats.importer import MissingParent
from lanebus.handlers.formats.transcript import TranscriptBounds
from lanebus.handlers.projections import USAGE, summary
from lanebus.projections import project
from lanebus.providers import to_anthropic
from tests.support.transcripts.claude_code import PARALLEL, TIME, USED, answer, call, line, result, text, user
from tests.support.transcripts.transcript_files import Object, imported

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def test_the_lines_of_an_answer_are_one_message_and_counted_once(tmp_path: Path) -> None:
    async with imported(tmp_path, *PARALLEL) as made:
        answers = [message for message in made.log if isinstance(message, our.AssistantMessage)]
        usage = (await project(made.session, USAGE)).state

    assert [[type(block) for block in each.content] for each in answers] == [
        [our.ThinkingBlock, our.ToolCallBlock, our.ToolCallBlock],
        [our.TextBlock],
    ]
    assert [each.response_id for each in answers] == ["msg_1", "msg_2"]
    assert [each.stop_reason for each in answers] == ["toolUse", "stop"]
    assert (answers[0].provider, answers[0].model) == ("anthropic", "claude-x")
    assert usage.total.calls == 2
    assert summary(usage.total.usage)["output"] == 180
    assert summary(usage.total.usage)["cache_read"] == 2000


@pytest.mark.parametrize("bounds", [TranscriptBounds(waiting_lines=0), TranscriptBounds(waiting_bytes=1)], ids=str)
async def test_an_answer_with_more_lines_in_between_than_are_held_comes_in_parts_counted_once(
    tmp_path: Path, bounds: TranscriptBounds
) -> None:
    async with imported(tmp_path, *PARALLEL, bounds=bounds) as made:
        answers = [message for message in made.log if isinstance(message, our.AssistantMessage)]
        usage = (await project(made.session, USAGE)).state

    assert len(answers) > 2, "the first was held no longer"
    said = [type(block) for each in answers for block in each.content]
    assert said == [our.ThinkingBlock, our.ToolCallBlock, our.ToolCallBlock, our.TextBlock]
    # What its first part took, which is as much as was known then; the others repeat it.
    assert summary(usage.total.usage)["output"] == 91


async def test_results_of_the_last_answer_are_no_branches_if_no_other_is_remembered(tmp_path: Path) -> None:
    again = (
        answer("b1", "a4", "msg_3", call("t3")),
        result("r3", "b1", "t3"),
        answer("b2", "r3", "msg_4", text("end")),
    )
    async with imported(tmp_path / "one", *PARALLEL, *again, bounds=TranscriptBounds(recent_answers=1)) as made:
        one = made.log
    async with imported(tmp_path / "all", *PARALLEL, *again) as made:
        assert one == made.log


async def test_the_results_of_parallel_calls_are_no_branches(tmp_path: Path) -> None:
    async with imported(tmp_path, *PARALLEL) as made:
        context = await build_context(made.session)
        request = to_anthropic(context)

    assert not any(isinstance(message, our.LeafMove) for message in made.log)
    results = [message for message in made.log if isinstance(message, our.ToolResultMessage)]
    assert [(each.tool_call_id, each.tool_name, each.text_content()) for each in results] == [
        ("t1", "Read", "result of t1"),
        ("t2", "Read", "result of t2"),
    ]
    assert (results[0].metadata or {})["toolUseResult"] == {"file": {"numLines": 3}}
    assert request.warnings == ()
    turns = request.body["messages"]
    assert isinstance(turns, list)
    assert [turn["role"] for turn in turns if isinstance(turn, dict)] == ["user", "assistant", "user", "assistant"]


async def test_what_follows_any_result_of_an_answer_follows_all_of_them(tmp_path: Path) -> None:
    last = answer("a4", "r1", "msg_2", text("done"))
    async with imported(tmp_path, *PARALLEL[:-1], last) as made:
        context = await build_context(made.session)
    assert not any(isinstance(message, our.LeafMove) for message in made.log)
    assert [message.text_content() for message in context.messages][-3:] == ["result of t1", "result of t2", "done"]


async def test_nothing_of_a_line_is_lost(tmp_path: Path) -> None:
    async with imported(tmp_path, *PARALLEL) as made:
        said = {
            message.id: message for message in made.log if isinstance(message, our.UserMessage | our.AssistantMessage)
        }
        kept = [message for message in made.log if isinstance(message, our.ExtensionMessage)]

    first = said["a1"].metadata or {}
    assert (first["cwd"], first["requestId"], first["isSidechain"]) == ("/w", "req_1", False)
    assert first["lines"] == [
        {"parentUuid": "a1", "uuid": "a2", "usage": {**USED, "output_tokens": 1}},
        {"parentUuid": "a2", "uuid": "a3"},
    ]
    assert [(message.kind, message.data) for message in kept] == [("import.progress", PARALLEL[3])]
    assert said["u1"].timestamp == 1770091506789


async def test_an_answer_whose_lines_stand_apart_is_still_counted_once(tmp_path: Path) -> None:
    apart = (
        user("u1", None, "go"),
        answer("a1", "u1", "msg_1", text("one")),
        answer("b1", None, "msg_2", text("of a sub-agent")),
        answer("a2", "a1", "msg_1", text("two")),
    )
    async with imported(tmp_path, *apart) as made:
        usage = (await project(made.session, USAGE)).state
        context = await build_context(made.session)

    assert summary(usage.total.usage)["output"] == 180
    assert [message.text_content() for message in context.messages] == ["go", "one", "two"]
    last = made.log[-1]
    assert isinstance(last, our.AssistantMessage)
    assert (last.metadata or {})["message"] == {"repeatedUsage": USED}


async def test_an_answer_written_down_twice_is_said_once(tmp_path: Path) -> None:
    async with imported(
        tmp_path,
        user("u1", None, "go"),
        answer("a1", "u1", "m", text("one"), call("t1")),
        answer("a2", "a1", "m", text("one"), call("t1")),
    ) as made:
        last = made.log[-1]
    assert isinstance(last, our.AssistantMessage)
    assert len(last.content) == 2


async def test_a_user_who_went_back_begins_a_branch(tmp_path: Path) -> None:
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        answer("a1", "u1", "m1", text("b")),
        user("u2", "a1", "c"),
        answer("a2", "u2", "m2", text("d")),
        user("u3", "a1", "instead"),
    ) as made:
        context = await build_context(made.session)
    assert [message.to for message in made.log if isinstance(message, our.LeafMove)] == [2]
    assert [message.text_content() for message in context.messages] == ["a", "b", "instead"]


def without_parents(count: int) -> list[Object]:
    """A conversation whose every fifth line names a parent that the file does not have."""
    lines: list[Object] = []
    for number in range(count):
        parent = None if number == 0 else f"gone{number}" if number % 5 == 0 else f"u{number - 1}"
        made = user(f"u{number}", parent, f"say {number}")
        lines.append(made if number % 2 == 0 else answer(f"u{number}", parent, f"m{number}", text(f"say {number}")))
    return lines


@pytest.mark.parametrize("waiting", [0, 2, 256])
async def test_a_line_whose_parent_is_missing_follows_the_previous_line_and_is_reported(
    tmp_path: Path, waiting: int
) -> None:
    bounds = TranscriptBounds(waiting_lines=waiting)
    async with imported(tmp_path, *without_parents(20), bounds=bounds) as made:
        context = await build_context(made.session)
    assert [message.text_content() for message in context.messages] == [f"say {number}" for number in range(20)]
    assert made.report.missing_parents == tuple(MissingParent(at + 1, f"gone{at}") for at in (5, 10, 15))
    assert made.report.bad == ()


async def test_a_line_before_its_parent_keeps_its_context(tmp_path: Path) -> None:
    lines = [
        user("u1", None, "one"),
        user("u3", "a2", "three"),  # the second line of the answer is its parent
        line("progress", "p1", "u3"),
        answer("a1", "u2", "m1", text("first")),
        answer("a2", "a1", "m1", text("second")),
        user("u2", "u1", "two"),
        user("u4", "p1", "four"),
    ]
    async with imported(tmp_path, *lines) as made:
        context = await build_context(made.session)
    assert [message.text_content() for message in context.messages] == ["one", "two", "firstsecond", "three", "four"]
    assert (made.report.missing_parents, made.report.bad) == ((), ())
    assert not [message for message in made.log if isinstance(message, our.LeafMove)]


async def test_a_line_far_before_its_parent_is_reported(tmp_path: Path) -> None:
    lines = [user("u1", None, "one"), user("u3", "u2", "three"), user("u2", "u1", "two")]
    async with imported(tmp_path, *lines, bounds=TranscriptBounds(waiting_lines=0)) as made:
        context = await build_context(made.session, leaf=2)
    assert [message.text_content() for message in context.messages] == ["one", "three"]
    assert made.report.missing_parents == (MissingParent(2, "u2"),)


async def test_what_follows_a_line_that_no_model_saw_keeps_its_context(tmp_path: Path) -> None:
    hidden = user("h1", "u1", "not shown", isVisibleInTranscriptOnly=True)
    async with imported(tmp_path, user("u1", None, "one"), hidden, user("u2", "h1", "two")) as made:
        context = await build_context(made.session)
    assert [message.text_content() for message in context.messages] == ["one", "two"]
    assert made.report.missing_parents == ()


async def test_a_side_chain_is_a_branch_of_its_own_and_its_calls_count(tmp_path: Path) -> None:
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        answer("a1", "u1", "m1", call("t1", "Task")),
        user("s1", None, "for the sub-agent", isSidechain=True),
        answer("s2", "s1", "m2", text("found")),
        result("r1", "a1", "t1"),
        answer("a2", "r1", "m3", text("b")),
    ) as made:
        context = await build_context(made.session)
        usage = (await project(made.session, USAGE)).state
    assert [message.text_content() for message in context.messages] == ["a", "", "result of t1", "b"]
    assert usage.total.calls == 3


async def test_a_compaction_keeps_its_summary_and_the_tree(tmp_path: Path) -> None:
    facts: Object = {"trigger": "auto", "preTokens": 999}
    boundary = line("system", "c1", None, subtype="compact_boundary", logicalParentUuid="a1", compactMetadata=facts)
    summarised = user("c2", "c1", "what happened", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        answer("a1", "u1", "m1", text("b")),
        boundary,
        summarised,
        user("u2", "c2", "go on"),
    ) as made:
        context = await build_context(made.session)
    (compaction,) = (message for message in made.log if isinstance(message, our.Compaction))
    assert (compaction.summary, compaction.tokens_before, compaction.first_kept) == ("what happened", 999, None)
    assert not any(isinstance(message, our.LeafMove) for message in made.log)
    assert [message.text_content().count("what happened") for message in context.messages] == [1, 0]


@pytest.mark.parametrize("has_boundary", [True, False])
async def test_a_compaction_that_names_no_line_before_it_follows_that_line(tmp_path: Path, has_boundary: bool) -> None:
    boundary = line("system", "c1", None, subtype="compact_boundary")
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        *([boundary] if has_boundary else []),
        user("c2", "c1" if has_boundary else None, "sum", isCompactSummary=True),
        user("u2", "c2", "b"),
    ) as made:
        context = await build_context(made.session)
    assert not any(isinstance(message, our.LeafMove) for message in made.log)
    assert len(context.messages) == 2


async def test_a_compaction_may_keep_the_last_messages(tmp_path: Path) -> None:
    facts: Object = {"preservedSegment": {"headUuid": "a1b", "anchorUuid": "c2", "tailUuid": "a1b"}}
    boundary = line("system", "c1", None, subtype="compact_boundary", logicalParentUuid="a1b", compactMetadata=facts)
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        answer("a1", "u1", "m1", text("b")),
        answer("a1b", "a1", "m1", text("c")),
        boundary,
        user("c2", "c1", "sum", isCompactSummary=True),
    ) as made:
        (compaction,) = (message for message in made.log if isinstance(message, our.Compaction))
    assert compaction.first_kept == 2


async def test_lines_that_no_model_saw_go_to_the_extension_lane(tmp_path: Path) -> None:
    others: tuple[Object, ...] = (
        {"type": "summary", "summary": "a title", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}, "isSnapshotUpdate": False},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "7b0e", "timestamp": TIME},
        line("system", "y1", None, subtype="informational", content="hello"),
        user("v1", None, "only shown", isVisibleInTranscriptOnly=True),
    )
    async with imported(tmp_path, *others) as made:
        assert all(isinstance(message, our.ExtensionMessage) for message in made.log)
        assert [message.data for message in made.log if isinstance(message, our.ExtensionMessage)] == [*others]
        context = await build_context(made.session)
    assert len(context.messages) == 0


async def test_an_error_of_the_api_is_a_failed_answer_of_no_model(tmp_path: Path) -> None:
    zero: Object = {"input_tokens": 0, "output_tokens": 0}
    error = answer("a1", "u1", "x", text("API Error: 529"), model="<synthetic>", usage=zero)
    async with imported(tmp_path, user("u1", None, "a"), {**error, "isApiErrorMessage": True}) as made:
        context = await build_context(made.session)
        last = made.log[-1]
    assert isinstance(last, our.AssistantMessage)
    assert (last.stop_reason, last.error_message, last.model, last.usage) == ("error", "API Error: 529", None, None)
    assert len(context.messages) == 1


async def test_blocks_of_a_user_and_of_a_result_are_ours(tmp_path: Path) -> None:
    image: Object = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    note: Object = {"type": "document", "title": "n", "source": {"type": "text", "data": "hi", "media_type": "x"}}
    odd: Object = {"type": "tool_reference", "tool_name": "x"}
    answered: Object = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [text("r"), image, odd],
        "is_error": True,
    }
    async with imported(
        tmp_path, answer("a1", None, "m", call("t1")), user("u1", "a1", [text("look"), image, note, answered])
    ) as made:
        _, result_of, said = made.log
    assert isinstance(result_of, our.ToolResultMessage)
    assert [type(block) for block in result_of.content] == [our.TextBlock, our.ImageBlock, our.UnknownBlock]
    assert (result_of.is_error, result_of.tool_name) == (True, "Read")
    assert isinstance(said, our.UserMessage)
    assert [type(block) for block in said.content] == [our.TextBlock, our.ImageBlock, our.DocumentBlock]


async def test_bad_lines_are_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        line("user", "u2", "u1", message={"role": "user", "content": 7}),
        line("user", "u3", "u1"),
        line("assistant", "a1", "u1", message={"id": "m", "content": 7}),
        line("assistant", "a2", "u1", message={"id": "n", "content": [{"no": "type"}], "usage": {}}),
        user("u4", "u1", [{"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}]),
        user("u5", "u1", "b", **{"timestamp": "yesterday"}),
        b"[",
        user("u6", "u1", "c"),
    ) as made:
        bad = made.report.bad
    assert [each.number for each in bad] == [2, 3, 4, 5, 6, 7, 8]
    assert [each.reason.split(":")[0] for each in bad[:5]] == [
        "message.content",
        "message",
        "message.content",
        "message.content.0",
        "message.content.0.media.url",
    ]
    assert [message.text_content() for message in made.log if isinstance(message, our.UserMessage)] == ["a", "c"]


async def test_a_damaged_line_of_an_answer_costs_only_itself_and_a_refused_answer_names_all_its_lines(
    tmp_path: Path,
) -> None:
    async with imported(
        tmp_path,
        user("u1", None, "a"),
        answer("a1", "u1", "m1", text("one")),
        line("assistant", "a2", "a1", message={"id": "m1", "content": 7}),
        answer("a3", "a2", "m1", text("two")),
        user("u2", "a3", "b"),
        answer("a4", "u2", "m2", text("three")),
        answer("a5", "a4", "m2", {"no": "type"}),
        user("u3", "u2", "c"),
    ) as made:
        context = await build_context(made.session)
    assert [each.number for each in made.report.bad] == [3, 6, 7]
    assert "line 6" in made.report.bad[2].reason
    assert [message.text_content() for message in context.messages] == ["a", "onetwo", "b", "c"]
    assert made.report.missing_parents == ()
