"""A transcript is imported once, complete and in order, even if imports are interrupted and repeated."""

import asyncio
import base64
import io
import json
import sys
from collections.abc import Iterable
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue

from lanebus.bus import Bus, Session
from lanebus.bus import messages as our
from lanebus.bus.errors import Unavailable
from lanebus.bus.wire import Cursor, Receipt
from lanebus.handlers.formats import ImportProgress, UnknownFormat, import_transcript, read_lines
from lanebus.handlers.formats.importer import FORMATS, MissingParent, OtherEntries
from lanebus.handlers.formats.transcript import TranscriptBounds
from lanebus.handlers.projections import USAGE, summary
from lanebus.projections import project
from tests.support.log.groups import works
from tests.support.paths import ROOT
from tests.support.transcripts.transcript_files import file_of, messages_of
from tests.support.transcripts.transcript_files import imported as imported_file

TIME = "2025-12-09T00:53:29.825Z"
HEADER: dict[str, JsonValue] = {"type": "session", "id": "x", "timestamp": TIME}
BAD = b'{"type": "message", "messa'


def user(text: str, **entry: JsonValue) -> dict[str, JsonValue]:
    return {"type": "message", "timestamp": TIME, "message": {"role": "user", "content": text}, **entry}


def compaction(**entry: JsonValue) -> dict[str, JsonValue]:
    return {"type": "compaction", "timestamp": TIME, "summary": "s", **entry}


def node(value: dict[str, JsonValue], entry_id: str, parent: str | None) -> dict[str, JsonValue]:
    return {**value, "id": entry_id, "parentId": parent}


def texts(messages: Iterable[our.Publishable]) -> list[str]:
    """What is said, in order: texts of users, else the kind of an entry."""
    return [
        message.text_content() if isinstance(message, our.UserMessage) else str(getattr(message, "kind", "?"))
        for message in messages
    ]


async def imported(tmp_path: Path, *lines: JsonValue | bytes) -> list[our.Publishable]:
    async with imported_file(tmp_path / "bus", *lines) as made:
        return made.log


async def test_every_line_goes_in_once_and_in_order(tmp_path: Path) -> None:
    lines = [HEADER, *(user(f"message {number}") for number in range(300))]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")

        first = await import_transcript(session, file_of(*lines))
        again = await import_transcript(session, file_of(*lines))

        assert (first.added, first.already_there, first.bad, first.first, first.last) == (301, 0, (), 1, 301)
        assert (again.added, again.already_there, again.bad, again.first, again.last) == (0, 301, (), 1, 301)
        log = await messages_of(session)
        assert texts(log) == ["import.header", *(f"message {number}" for number in range(300))]


async def test_a_file_that_chose_its_session_adds_nothing_beside_other_entries(tmp_path: Path) -> None:
    lines = [HEADER, *(user(f"message {number}") for number in range(5))]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        live, other, own = bus.session("live"), bus.session("other"), bus.session("own")
        await live.publish(our.UserMessage.text("live"))
        with pytest.raises(OtherEntries, match="--session live"):
            await import_transcript(live, file_of(*lines), beside_others=False)
        assert (await live.head()).position == 1
        await import_transcript(live, file_of(*lines))  # named on purpose: the end is of the file, the start is not
        with pytest.raises(OtherEntries):
            await import_transcript(live, file_of(*lines, user("more")), beside_others=False)

        await import_transcript(own, file_of(*lines[:3]), beside_others=False)
        rest = await import_transcript(own, file_of(*lines), beside_others=False)
        assert (rest.added, rest.already_there) == (3, 3)
        await own.publish(our.UserMessage.text("live"))
        again = await import_transcript(own, file_of(*lines), beside_others=False)
        assert (again.added, again.already_there) == (0, 6)
        with pytest.raises(OtherEntries):
            await import_transcript(own, file_of(*lines, user("more")), beside_others=False)
        assert (await own.head()).position == 7

        await import_transcript(other, file_of(*lines[:2]))
        with pytest.raises(OtherEntries):  # of another file
            await import_transcript(other, file_of({**HEADER, "id": "other"}, *lines[1:]), beside_others=False)


@pytest.mark.parametrize(
    "bounds",
    [
        TranscriptBounds(batch_bytes=1),
        TranscriptBounds(batch_lines=1),
        TranscriptBounds(publishes_in_flight=1),
        TranscriptBounds(bytes_in_flight=0),
        TranscriptBounds(lines_to_detect=1),
    ],
    ids=str,
)
async def test_an_import_with_a_tiny_bound_gives_the_same_log(tmp_path: Path, bounds: TranscriptBounds) -> None:
    lines: list[dict[str, JsonValue] | bytes] = [HEADER, *(user(f"message {number}") for number in range(10))]
    lines += [BAD, user("last")]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        report = await import_transcript(bus.session("s1"), file_of(*lines), bounds=bounds)
        log = await messages_of(bus.session("s1"))
    assert (report.added, len(report.bad)) == (12, 1)
    assert texts(log) == ["import.header", *(f"message {number}" for number in range(10)), "last"]


async def test_a_format_is_looked_for_in_so_many_lines_only(tmp_path: Path) -> None:
    lines: list[dict[str, JsonValue] | bytes] = [b'{"a": 1}', b"", b'{"a": 2}', HEADER, user("a")]
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        with pytest.raises(UnknownFormat) as caught:
            await import_transcript(bus.session("s1"), file_of(*lines), bounds=TranscriptBounds(lines_to_detect=2))
        assert caught.value.lines == 3
        report = await import_transcript(bus.session("s1"), file_of(*lines), bounds=TranscriptBounds(lines_to_detect=3))
        assert report.format == "pi"


async def test_lines_with_the_same_bytes_are_as_many_entries(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        for added in (4, 0):
            report = await import_transcript(session, file_of(HEADER, user("again"), user("again"), user("again")))
            assert report.added == added


async def test_a_transcript_that_grew_adds_only_what_is_new(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await import_transcript(session, file_of(HEADER, user("a")))
        report = await import_transcript(session, file_of(HEADER, b"", user("a"), BAD, user("b")))

        assert (report.added, report.already_there) == (1, 2)
        assert texts(await messages_of(session)) == ["import.header", "a", "b"]


async def test_two_transcripts_with_equal_lines_both_go_in(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await import_transcript(session, file_of(HEADER, user("a")))
        report = await import_transcript(session, file_of({**HEADER, "id": "y"}, user("a")))
        assert report.added == 2


async def test_bad_lines_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        report = await import_transcript(
            session,
            file_of(
                BAD,
                HEADER,
                b"\xff\xfe",
                user("a"),
                b'{"type":"message","timestamp":0,"message":{"role":"narrator"}}',
                b"",
                user("b" * 1_100_000),
                b'{"type":"x","n":NaN}',
                b'{"type":"x","type":"y"}',
                b"1" * 5000,
                user("c"),
            ),
        )

        assert texts(await messages_of(session)) == ["import.header", "a", "c"]
        assert [bad.number for bad in report.bad] == [1, 3, 5, 7, 8, 9, 10]
        reasons = {bad.number: bad.reason for bad in report.bad}
        assert reasons[3] == "not UTF-8 at byte 0"
        assert reasons[5] == "unknown role 'narrator'"
        assert "over the limit of" in reasons[7]
        assert reasons[8] == "n: NaN is not JSON"
        assert (report.lines, report.added) == (11, 3)


async def test_a_line_of_too_many_values_is_named_and_the_others_are_imported(tmp_path: Path) -> None:
    bounds = TranscriptBounds(json=our.JsonBounds(parsed_bytes=10_000))
    dense = b'{"type":"x","v":[' + b"[]," * 5_000 + b"[]]}"
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        for lines in ((HEADER, user("a"), dense, user("b")), (dense, HEADER, user("c"))):
            report = await import_transcript(bus.session(f"s{len(lines)}"), file_of(*lines), bounds=bounds)
            assert [(bad.number, "5002 lists" in bad.reason) for bad in report.bad] == [(lines.index(dense) + 1, True)]
            assert report.added == len(lines) - 1


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n", b'{"role":"user","content":"hi"}\n', b'{"type":"user"}'])
async def test_a_file_of_no_known_format_is_refused_and_says_what_was_looked_for(
    tmp_path: Path, content: bytes
) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        with pytest.raises(UnknownFormat, match="pi: a JSON object with") as caught:
            await import_transcript(session, io.BytesIO(content))
        assert list(caught.value.looked_for) == [known.name for known in FORMATS]
        assert (await session.head()).position == 0


async def test_line_ends_a_byte_order_mark_and_blank_lines_change_nothing(tmp_path: Path) -> None:
    plain = [json.dumps(line).encode() for line in (HEADER, user("a"), user("b"))]
    file = tmp_path / "windows.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b"\r\n  \r\n".join(plain))
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        report = await import_transcript(session, file)
        assert (report.added, report.bad) == (3, ())
        # The same lines with other ends are the same transcript.
        assert (await import_transcript(session, io.BytesIO(b"\n".join(plain)))).added == 0


def test_a_line_without_an_end_is_not_held_in_memory() -> None:
    lines = list(read_lines(io.BytesIO(b"a\n" + b"x" * 5000 + b"\nb\n" + b"y" * 5000), limit_bytes=100))
    assert [(line.number, line.data, line.size_bytes) for line in lines] == [
        (1, b"a", 2),
        (2, None, 5001),
        (3, b"b", 2),
        (4, None, 5000),
    ]


async def test_no_worker_is_called_to_answer_history(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        await import_transcript(session, file_of(HEADER, user("a")))
        await session.publish(our.UserMessage.text("b"))
        consumer = bus.consumer("agents", "w1")
        async with aclosing(works(consumer)) as given:
            async for work in given:
                assert work.position == 3  # the index of the history's own entries did not wake
                break


# --- what a line says of other lines ------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "kept"), [(0, 2), (1, 2), (2, 4), (3, 4), (4, 4), (5, None), (99, None), (-1, None)])
async def test_a_compaction_by_count_keeps_from_that_entry_or_the_next_one_that_went_in(
    tmp_path: Path, index: int, kept: int | None
) -> None:
    # Entries by count: 0 header, 1 a, 2 bad, 3 notice, 4 b, 5 the compaction. A blank line is no entry.
    notice: dict[str, JsonValue] = {"type": "notice", "timestamp": TIME}
    lines = (HEADER, user("a"), BAD, b"", notice, user("b"))
    log = await imported(tmp_path, *lines, compaction(firstKeptEntryIndex=index))

    (made,) = (message for message in log if isinstance(message, our.Compaction))
    # Positions: 1 header, 2 a, 3 notice, 4 b, 5 the compaction; the bad line has none.
    assert made.first_kept == kept


async def test_a_branch_begins_with_a_move_of_the_leaf(tmp_path: Path) -> None:
    log = await imported(
        tmp_path,
        HEADER,
        node(user("a"), "a", None),  # 2
        node(user("b"), "b", "a"),  # 3
        node(user("c"), "c", "b"),  # 4
        node(user("d"), "d", "a"),  # 5 moves, 6
        node({"type": "custom", "timestamp": TIME}, "e", "d"),  # 7, not in the LLM lane
        node(user("f"), "f", "e"),  # 8, follows d
        node(user("g"), "g", None),  # 9 moves, 10
        node({"type": "branch_summary", "timestamp": TIME, "summary": "s", "fromId": "c"}, "h", "c"),  # 11 moves, 12
        node({"type": "label", "timestamp": TIME, "targetId": "e", "label": "x"}, "i", "h"),  # 13, of no LLM entry
        node({"type": "label", "timestamp": TIME, "targetId": "d", "label": "x"}, "j", "i"),  # 14
    )

    moves = {position: message.to for position, message in enumerate(log, 1) if isinstance(message, our.LeafMove)}
    assert moves == {5: 2, 9: None, 11: 4}
    assert texts(log)[-3:] == ["branchSummary", "import.label", "label"]
    (summary_of,) = (message for message in log if isinstance(message, our.BranchSummary))
    assert summary_of.branch == 10
    (label,) = (message for message in log if isinstance(message, our.Label))
    assert label.target == 6
    assert [message.id for message in log if isinstance(message, our.UserMessage)] == ["a", "b", "c", "d", "f", "g"]


LONG = "b" * 1_100_000  # over the limit of an entry
A: dict[str, JsonValue] = node(user("a"), "a", None)  # 2


@pytest.mark.parametrize(
    ("lines", "log", "moves", "kept"),
    [
        pytest.param(
            [
                *(node(user("b"), "b", "a"), node({"type": "custom", "timestamp": TIME}, "c", "a")),  # 3, 4
                node(user("d"), "d", "c"),  # 5 moves, 6
                node(compaction(firstKeptEntryId="c"), "e", "d"),  # 7: c is no LLM entry, the next on the branch is d
                node(compaction(firstKeptEntryId="b"), "f", "e"),  # 8: b is on another branch
                node(compaction(firstKeptEntryId="nobody"), "g", "f"),  # 9
            ],
            ["b", "import.custom", "leafMove", "d", *["compaction"] * 3],
            [2],
            [6, None, None],
            id="a compaction keeps what is on its own branch",
        ),
        pytest.param(
            # The bad line was "b", a child of "a".
            [
                BAD,
                *(node(user("c"), "c", "b"), node(user("d"), "d", "c")),
                node(compaction(firstKeptEntryId="b"), "e", "d"),
            ],
            ["c", "d", "compaction"],
            [],
            [3],
            id="an entry whose parent was a bad line stays where it stands",
        ),
        pytest.param(
            [
                *(node(user(LONG), "b", "a"), node(user("c"), "c", "b"), node(user("d"), "d", "a")),  # -, 3, 4 moves, 5
                node(user("e"), "e", "b"),  # 6 moves, 7: beside c, under the nearest that went in
            ],
            ["c", "leafMove", "d", "leafMove", "e"],
            [2, 2],
            [],
            id="an entry over the limit is no parent of what follows",
        ),
        pytest.param(
            [
                node(user(LONG), "b", "a"),
                node({"type": "label", "timestamp": TIME, "targetId": "a", "label": "x"}, "c", "b"),
            ],
            ["label"],
            [],
            [],
            id="a failed entry is not the leaf",
        ),
    ],
)
async def test_what_stands_in_a_tree_goes_to_its_place(
    tmp_path: Path, lines: list[JsonValue | bytes], log: list[str], moves: list[int], kept: list[int | None]
) -> None:
    found = await imported(tmp_path, HEADER, A, *lines)
    assert texts(found) == ["import.header", "a", *log]
    assert [message.to for message in found if isinstance(message, our.LeafMove)] == moves
    assert [message.first_kept for message in found if isinstance(message, our.Compaction)] == kept


async def test_an_entry_before_its_parent_comes_after_it_and_one_whose_parent_is_missing_is_reported(
    tmp_path: Path,
) -> None:
    lines = (
        HEADER,
        node(user("c"), "c", "b"),
        node(user("b"), "b", "a"),
        node(user("a"), "a", None),
        node(user("e"), "e", "nobody"),  # a first entry, as for pi
    )
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        report = await import_transcript(bus.session("s"), file_of(*lines))
        assert texts(await messages_of(bus.session("s"))) == ["import.header", "a", "b", "c", "leafMove", "e"]
    assert (report.missing_parents, report.bad) == ((MissingParent(5, "nobody"),), ())


# --- an import that ends badly ------------------------------------------------------------------------------------


def tree() -> list[dict[str, JsonValue]]:
    """300 entries with branches, a compaction here and there."""
    lines: list[dict[str, JsonValue]] = [HEADER, node(user("0"), "0", None)]
    for number in range(1, 300):
        parent = str(number - 3 if number % 10 == 5 else number - 1)
        value = user(str(number)) if number % 25 else compaction(firstKeptEntryId=str(number - 2))
        lines.append(node(value, str(number), parent))
    return lines


@pytest.mark.full
async def test_an_import_killed_at_any_moment_and_run_again_gives_the_undisturbed_log(tmp_path: Path) -> None:
    file = tmp_path / "tree.jsonl"
    file.write_bytes(file_of(*tree()).getvalue())
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        await import_transcript(bus.session("whole"), file)
        whole = await messages_of(bus.session("whole"))
        assert any(isinstance(message, our.LeafMove) for message in whole)
        for steps in (1, 2, 4):
            name = f"killed-{steps}"
            await kill_after(steps, tmp_path / "bus", file, name)
            before = (await bus.session(name).head()).position
            assert 0 < before < len(whole)

            report = await import_transcript(bus.session(name), file)

            assert (report.already_there, report.added) == (before, len(whole) - before)
            assert await messages_of(bus.session(name)) == whole


async def kill_after(steps: int, data_dir: Path, file: Path, session: str) -> None:
    """Run an import in a process of its own and SIGKILL it at its so many'th word of progress."""
    command = (sys.executable, "-m", "tests.support.transcripts.importing", str(data_dir), str(file), session)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        with anyio.fail_after(120):
            for _ in range(steps - 1):
                assert await process.stdout.readline()
                process.stdin.write(b"go on\n")
            assert await process.stdout.readline()
    finally:
        process.kill()
        await process.communicate()


async def test_an_import_that_is_cancelled_leaves_a_beginning_and_can_be_run_again(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        with anyio.CancelScope() as scope:

            def stop(progress: ImportProgress) -> None:
                if progress.entries > 100:
                    scope.cancel()

            await import_transcript(session, file_of(*tree()), on_progress=stop)
        await import_transcript(session, file_of(*tree()))
        await import_transcript(bus.session("whole"), file_of(*tree()))
        assert await messages_of(session) == await messages_of(bus.session("whole"))


async def test_a_server_that_goes_away_ends_the_import_with_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        publish, count = session.publish, 0

        async def fail_later(
            *messages: our.Publishable, key: str, expected: Cursor | None, wake: bool, imported: bool
        ) -> Receipt:
            nonlocal count
            count += 1
            if count > 150:
                raise Unavailable("gone")
            return await publish(*messages, key=key, expected=expected, wake=wake, imported=imported)

        monkeypatch.setattr(session, "publish", fail_later)
        with pytest.raises(Unavailable, match="gone"):
            await import_transcript(session, file_of(*tree()))
        monkeypatch.undo()

        await import_transcript(session, file_of(*tree()))
        await import_transcript(bus.session("whole"), file_of(*tree()))
        assert await messages_of(session) == await messages_of(bus.session("whole"))


async def test_large_images_go_into_the_media_store_and_every_line_stays_in_its_place(tmp_path: Path) -> None:
    large = [b"\x89PNG\r\n\x1a\n" + bytes([number]) * 60_000 for number in range(4)]
    lines: list[dict[str, JsonValue]] = [HEADER]
    for number, data in enumerate(large):
        image: JsonValue = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}
        seen: JsonValue = {"role": "user", "content": [{"type": "text", "text": f"image {number}"}, image]}
        lines.append(node(user("", message=seen), f"i{number}", f"a{number - 1}" if number else None))
        lines.append(node(user(f"and {number}"), f"a{number}", f"i{number}"))
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s1")
        for added in (9, 0):  # again: nothing is doubled
            assert (await import_transcript(session, file_of(*lines))).added == added
        log = await messages_of(session)
        said = [text for number in range(4) for text in (f"image {number}", f"and {number}")]
        assert texts(log) == ["import.header", *said]
        found = [
            block.media
            for entry in log
            if isinstance(entry, our.UserMessage)
            for block in entry.content
            if isinstance(block, our.ImageBlock)
        ]
        assert [await session.media.get(media.sha256 or "") for media in found] == large
        assert (await session.head()).size_bytes < 10_000


async def test_progress_ends_at_the_end_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tree.jsonl"
    file.write_bytes(file_of(*tree()).getvalue())
    told: list[ImportProgress] = []
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        report = await import_transcript(bus.session("s1"), file, on_progress=told.append)

    size = file.stat().st_size
    assert told[-1] == ImportProgress(301, size, size, report.added)
    assert [progress.read_bytes for progress in told] == sorted(progress.read_bytes for progress in told)


async def test_a_missing_file_is_the_systems_own_error(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        with pytest.raises(FileNotFoundError):
            await import_transcript(bus.session("s1"), tmp_path / "nothing.jsonl")


# --- the real file ------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_a_real_session_gives_exactly_its_figures_and_goes_in_once(tmp_path: Path, seed_data: Path) -> None:
    file = seed_data / "data" / "pi-session.jsonl"
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("pi")

        first = await import_transcript(session, file)
        again = await import_transcript(session, file)
        usage = await project(session, USAGE)
        log = await entries_of_real(session)

    assert (first.added, first.bad, again.added, again.already_there) == (1003, (), 0, 1003)
    found = summary(usage.state.total.usage)
    assert found["cost"] is not None
    assert round(Decimal(found["cost"]["total"]), 6) == Decimal("42.595908")
    assert {name: value for name, value in found.items() if name != "cost"} == {
        "input": 3689,
        "output": 187_895,
        "reasoning": 0,
        "cache_read": 54_693_675,
        "cache_write": 1_685_320,
        "total_tokens": 3689 + 187_895 + 54_693_675 + 1_685_320,
    }
    assert (usage.state.total.calls, usage.state.total.calls_of_unknown_cost) == (484, 0)
    # The last compaction is line 628 counted from 0 and keeps from line 551; positions count from 1.
    assert [(at, message.first_kept) for at, message in log.items() if isinstance(message, our.Compaction)][-1] == (
        629,
        552,
    )
    answers = [message for message in log.values() if isinstance(message, our.AssistantMessage)]
    assert sum(message.stop_reason == "aborted" for message in answers) == 18
    assert sum(message.stop_reason == "error" for message in answers) == 1
    assert sum(len(list(message.tool_calls())) for message in answers) == 454


async def entries_of_real(session: Session) -> dict[int, object]:
    return {envelope.position: envelope.message async for envelope in session.read(lanes={our.Lane.LLM})}
