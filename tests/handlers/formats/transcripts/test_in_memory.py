"""A transcript in memory equals the log of an import, for any order of its entries."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import Bus
from lanebus.bus.messages import BranchSummary, Compaction, UserMessage
from lanebus.context import build_context, read_tree
from lanebus.handlers.context import branch_message
from lanebus.handlers.context.fold import compaction_message
from lanebus.handlers.formats import PI, import_transcript
from lanebus.handlers.formats.importer import ListedTranscript
from lanebus.handlers.formats.transcript import CyclicTree, UnknownEntry
from tests.support.suite.scale import examples

Object = dict[str, JsonValue]
TIME = "2025-12-09T00:53:29.825Z"
HEADER: Object = {"type": "session", "id": "x", "timestamp": TIME}


def node(entry_id: str, parent: str | None, kind: str = "message", **fields: JsonValue) -> Object:
    said: Object = {"message": {"role": "user", "content": entry_id}} if kind == "message" else {}
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": TIME, **said, **fields}


def listed(*lines: JsonValue) -> ListedTranscript:
    return ListedTranscript(lines, PI)


async def said_at(transcript: ListedTranscript, entry: str | None) -> list[str]:
    context = await build_context(transcript, leaf=transcript.leaf(entry))
    return [message.text_content() for message in context.messages]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([node("a", "a")], "a"),
        ([node("a", "b"), node("b", "a")], "ab"),
        ([node("a", None), node("b", "d"), node("c", "b"), node("d", "c")], "bcd"),
        ([node("r", "a"), node("a", "b"), node("b", "a")], "ab"),
    ],
)
async def test_an_entry_among_its_own_parents_is_refused(lines: list[JsonValue], named: str, tmp_path: Path) -> None:
    with pytest.raises(CyclicTree) as caught:
        listed(*lines)
    assert caught.value.entry in named
    # An import goes by lines: the one that closes the loop is bad, the others go in.
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        file = io.BytesIO(b"\n".join(json.dumps(line).encode() for line in (HEADER, *lines)))
        report = await import_transcript(bus.session("s"), file)
        assert [bad.reason for bad in report.bad] == [str(CyclicTree(str(node_of(lines[-1])["id"])))]


def node_of(line: JsonValue) -> Object:
    assert isinstance(line, dict)
    return line


async def test_lines_in_any_order_missing_parents_and_bad_lines_cost_only_themselves() -> None:
    transcript = listed(node("c", "b"), node("b", "a"), node("d", "a"), node("a", None))
    assert await said_at(transcript, "c") == ["a", "b", "c"]
    assert await said_at(transcript, "d") == ["a", "d"]
    transcript = listed(node("a", None), node("b", "nobody"), node("c", "b"))
    assert await said_at(transcript, "c") == ["b", "c"]
    assert (await read_tree(transcript)).children(0) == (1, 3)
    transcript = listed(HEADER, node("a", None), {"type": "message"}, node("c", "lost"))
    assert [bad.number for bad in transcript.bad] == [3]
    assert await said_at(transcript, "c") == ["a", "c"]
    transcript = listed(node("a", None), node("b", "a", "session_info", name="n"), node("c", "a"))
    assert await said_at(transcript, "b") == ["a"]
    assert await said_at(transcript, None) == []


def test_an_entry_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UnknownEntry) as caught:
        listed(node("a", None)).leaf("b")
    assert caught.value.entry == "b"


# --- any tree -----------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> list[Object]:
    """Entries with any parent among those before them, compactions and branch summaries between them."""
    lines: list[Object] = []
    for number in range(draw(st.integers(1, 14))):
        known = [str(line["id"]) for line in lines]
        parent = draw(st.sampled_from([None, *known, *known[-1:] * 6]))
        kind = draw(st.sampled_from(["message"] * 5 + ["compaction", "branch_summary", "session_info"]))
        fields: Object = {"summary": f"s{number}"} if kind in {"compaction", "branch_summary"} else {}
        if kind == "compaction":
            fields["firstKeptEntryId"] = draw(st.sampled_from([*known, "nobody"]))
        lines.append(node(str(number), parent, kind, **fields))
    return lines


def naive(lines: list[Object], leaf: str) -> list[str]:
    """The texts of the context at a leaf, by the rules as they are written down."""
    by_id = {str(line["id"]): line for line in lines}
    path: list[Object] = []
    at: JsonValue = leaf
    while isinstance(at, str):
        path.insert(0, by_id[at])
        at = by_id[at]["parentId"]
    compactions = [index for index, line in enumerate(path) if line["type"] == "compaction"]
    if not compactions:
        return [told for line in path for told in texts_of(line)]
    last = compactions[-1]
    starts = [index for index in range(last) if path[index]["id"] == path[last].get("firstKeptEntryId")]
    kept = [line for line in path[starts[0] : last] if line["type"] != "compaction"] if starts else []
    summary = compaction_message(Compaction(summary=str(path[last]["summary"])))
    assert summary is not None
    return [summary.text_content(), *(told for line in (*kept, *path[last + 1 :]) for told in texts_of(line))]


def texts_of(line: Object) -> list[str]:
    match line["type"]:
        case "message":
            return [str(line["id"])]
        case "branch_summary":
            told = branch_message(BranchSummary(summary=str(line["summary"])))
            return [told.text_content()] if told else []
        case _:
            return []


@examples(150)
@given(trees(), st.data())
async def test_the_context_at_every_leaf_of_any_tree_is_that_of_a_naive_reader(
    lines: list[Object], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(lines))
    for transcript in (listed(*lines), listed(*shuffled)):
        for line in lines:
            assert await said_at(transcript, str(line["id"])) == naive(lines, str(line["id"]))
        tree = await read_tree(transcript)
        for line in lines:
            path = [envelope.message for envelope in tree.path(transcript.leaf(str(line["id"])))]
            assert len(path) <= len(lines)
            assert all(message.id != line["id"] for message in path[:-1] if isinstance(message, UserMessage))
