"""Segment files: their content, and that every damage is detected."""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanebus.bus.archive.segment import (
    LINE_LIMIT_BYTES,
    TEXT_LIMIT_BYTES,
    Header,
    LaneEntry,
    Segment,
    SegmentName,
    Tip,
    file_of,
    folder_of,
    line_of,
    read_segment,
    sealed,
)
from lanebus.bus.errors import ArchiveDamaged, InvalidArchiveName, MessageTooLarge
from lanebus.bus.messages import Lane
from tests.support.suite.scale import examples

HEADER = Header("ns", "s", 2, 3, 5, "4_b", f"1-2-{'0' * 64}")
ENTRIES: Sequence[LaneEntry] = (
    (Lane.LLM, (b"3-0", [b"h", b"1 1700000000000 p", b"m", '{"role":"user","content":"é \u2028 \\u0000"}'.encode()])),
    (Lane.EXTENSION, (b"3-7", [b"x", b"\xff\n", b"", b"y"])),
    (Lane.EXTENSION, (b"4-0", [b"h", b"1 1700000000000 p", b"m", b"\xff not UTF-8"])),
    (Lane.LLM, (b"5-0", [b"h", b"9 1700000000000 p", b"m", b"{}"])),
)


def written(entries: Sequence[LaneEntry] = ENTRIES, header: Header = HEADER) -> tuple[SegmentName, bytes]:
    return sealed(header, [line_of(*entry) for entry in entries])


def read(name: SegmentName, data: bytes) -> Segment:
    return read_segment("ns", "s", name, data)


def resealed(lines: Sequence[str | bytes | Mapping[str, object]]) -> tuple[SegmentName, bytes]:
    """A file of these lines whose seal and name are right, whatever the lines are."""
    said = [json.dumps(line) if isinstance(line, Mapping) else line for line in lines]
    text = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in said)
    text += json.dumps({"count": len(lines) - 1, "sha256": sha256(text).hexdigest()}).encode() + b"\n"
    return named(gzip.compress(text, mtime=0))


def named(data: bytes) -> tuple[SegmentName, bytes]:
    return SegmentName(3, 5, sha256(data).hexdigest()), data


def lines() -> list[dict[str, object]]:
    """The lines of a whole segment without its seal."""
    _, data = written()
    return [json.loads(line) for line in gzip.decompress(data).splitlines()[:-1]]


def test_a_written_segment_reads_back_equal_and_the_same_log_gives_the_same_bytes() -> None:
    name, data = written()
    assert read(name, data) == Segment(name, HEADER, list(ENTRIES))
    assert written() == (name, data)
    assert read(*resealed(lines())).entries == list(ENTRIES)  # resealing is what the writer does


def test_zcat_and_any_json_reader_read_it() -> None:
    _, data = written()
    header, *entries, seal = (json.loads(line) for line in gzip.decompress(data).decode().split("\n")[:-1])
    assert (header["format"], header["first"], header["last"]) == ("lanebus-archive", 3, 5)
    assert entries[0]["lane"] == "llm"
    assert json.loads(entries[0]["m"])["role"] == "user"
    assert entries[1]["fields"] == ["x", {"base64": "/wo="}, "", "y"]
    assert seal["count"] == 4


FIELDS = st.one_of(
    st.lists(st.binary(max_size=20), max_size=6),
    st.tuples(st.just(b"h"), st.binary(max_size=20), st.just(b"m"), st.binary(max_size=50)).map(list),
    st.tuples(st.just(b"h"), st.text().map(str.encode), st.just(b"m"), st.text().map(str.encode)).map(list),
)


@pytest.mark.full
@examples(100)
@given(st.lists(st.tuples(st.sampled_from(Lane), FIELDS), min_size=1, max_size=20))
def test_every_value_comes_back_as_it_was(said: list[tuple[Lane, list[bytes]]]) -> None:
    entries = [(lane, (f"{at}-0".encode(), fields)) for at, (lane, fields) in enumerate(said, 1)]
    header = HEADER._replace(first=1, last=len(said))
    assert read(*written(entries, header)).entries == entries


def test_a_changed_byte_anywhere_is_damage() -> None:
    name, data = written()
    for at in range(len(data)):
        with pytest.raises(ArchiveDamaged):
            read(name, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ArchiveDamaged):
            read(name, data[:at])


def test_a_segment_of_other_positions_or_of_another_session_or_namespace_is_damage() -> None:
    name, data = written()
    for other in (name._replace(first=2), name._replace(last=6)):
        with pytest.raises(ArchiveDamaged, match="positions 3 to 5"):
            read(other, data)
    for namespace, session in (("ns", "t"), ("other", "s")):
        with pytest.raises(ArchiveDamaged, match="namespace"):
            read_segment(namespace, session, name, data)


@pytest.mark.full
def test_a_file_that_decompresses_beyond_the_limit_is_refused() -> None:
    data = zlib.compress(bytes(TEXT_LIMIT_BYTES + 1), 9, zlib.MAX_WBITS | 16)
    assert len(data) < TEXT_LIMIT_BYTES / 500
    with pytest.raises(ArchiveDamaged, match="decompresses to more"):
        read(*named(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off"),
        (b"no gzip at all", "not gzip"),
        (gzip.compress(b"", mtime=0), "cut off"),
        (gzip.compress(b"{}", mtime=0), "cut off"),
        (gzip.compress(b"{}\n", mtime=0), "cut off"),
        (gzip.compress(b"{}\n{}\n", mtime=0), "its seal says None"),
        (written()[1] + b"more", "after its end"),
        (written()[1] + written()[1], "after its end"),
        (written()[1][:-9], "cut off"),
    ],
)
def test_an_invalid_file_with_a_matching_name_is_damage(data: bytes, reason: str) -> None:
    with pytest.raises(ArchiveDamaged, match=reason) as caught:
        read(*named(data))
    assert (caught.value.session, caught.value.segment) == ("s", str(named(data)[0]))


@pytest.mark.parametrize(
    "wrong",
    [
        *("[]", "nothing", '"text"', b"\xff", "[" * 100_000),
        *({}, {"lane": "llm"}),
        {"lane": "other", "id": "4-0", "h": "", "m": ""},
        *({"lane": "llm", "id": each, "h": "", "m": ""} for each in (4, "x")),
        {"lane": "llm", "id": "4-0", "h": "", "m": None},
        *({"lane": "llm", "id": "4-0", "fields": each} for each in ("x", 1)),
        *(
            {"lane": "llm", "id": "4-0", "h": each, "m": ""}
            for each in (1, {"base64": "?"}, {"base64": 1}, {}, "\ud800")
        ),
    ],
)
@pytest.mark.parametrize("at", [0, 3])
def test_an_invalid_line_is_damage_and_no_other_error(wrong: str | bytes | Mapping[str, object], at: int) -> None:
    said: list[str | bytes | Mapping[str, object]] = [*lines()]
    said[at] = wrong
    if at == 3 and wrong == {"lane": "llm", "id": "4-0", "fields": "x"}:
        return  # a text is a list of texts of one letter: odd, and harmless
    with pytest.raises(ArchiveDamaged):
        read(*resealed(said))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"format": "other"}, "another format"),
        ({"version": 2}, "version 2, this package reads 1"),
        ({"first": 2}, "positions 2 to 5"),
        ({"number": "2"}, "an invalid line"),
        ({"incarnation": ["a"]}, "an invalid line"),
        ({"incarnation": 1}, "an invalid line"),
    ],
)
def test_an_invalid_header_is_damage(header: dict[str, object], reason: str) -> None:
    first, *rest = lines()
    with pytest.raises(ArchiveDamaged, match=reason):
        read(*resealed([first | header, *rest]))


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ((1, 2, 4), "position 5 follows 3"),
        ((1, 3, 2, 4), "position 3 follows 4"),
        ((3, 4), "position 4 follows 2"),
        ((1, 2, 3), "ends at position 4"),
        ((), "ends at position 2"),
    ],
)
def test_positions_with_a_gap_or_out_of_order_are_damage(order: Sequence[int], reason: str) -> None:
    whole = lines()
    with pytest.raises(ArchiveDamaged, match=reason):
        read(*resealed([whole[0], *(whole[at] for at in order)]))


def test_a_seal_that_does_not_match_the_lines_is_damage() -> None:
    _, data = written()
    *said, seal = gzip.decompress(data).splitlines(keepends=True)
    with pytest.raises(ArchiveDamaged, match="3 entries, its seal says 4"):
        read(*named(gzip.compress(b"".join([*said[:-1], seal]))))
    with pytest.raises(ArchiveDamaged, match="do not match the SHA-256"):
        read(*named(gzip.compress(b"".join([said[0].replace(b'"s"', b'"t"'), *said[1:], seal]))))


def test_an_entry_that_is_larger_than_a_segment_may_be_is_refused() -> None:
    value = b"\x00" * (LINE_LIMIT_BYTES // 6 + 1)  # each is written in six characters
    with pytest.raises(MessageTooLarge):
        line_of(Lane.LLM, (b"1-0", [b"h", b"", b"m", value]))
    with pytest.raises(MessageTooLarge):
        line_of(Lane.LLM, (b"1-0", [b"x", b"\xff" * (LINE_LIMIT_BYTES + 1)]))


# --- names ----------------------------------------------------------------------------------------------------------


def test_a_name_is_read_as_it_was_written() -> None:
    name = SegmentName(1, 20, "ab" * 32)
    assert SegmentName.parse(str(name)) == name
    assert Tip.parse(str(Tip(3, name))) == Tip(3, name)
    assert file_of("ns", "s", name) == f"ns/s/1-20-{'ab' * 32}.jsonl.gz"


@pytest.mark.parametrize(
    "text",
    ["", "1-2", f"0-2-{'a' * 64}", f"3-2-{'a' * 64}", f"1-2-{'A' * 64}", f"../1-2-{'a' * 64}", f"1-2-{'a' * 65}"],
)
def test_an_invalid_segment_name_is_refused(text: str) -> None:
    for parse, said in ((SegmentName.parse, text), (Tip.parse, f"1 {text}"), (Tip.parse, f"x {'1-1-' + 'a' * 64}")):
        with pytest.raises(InvalidArchiveName):
            parse(said)


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_two_sessions_share_a_folder_on_any_file_system(one: str, other: str) -> None:
    folders = {folder_of(one, "s").lower(), folder_of(other, "s").lower()}
    assert len(folders) == len({one, other})
    assert folder_of(one, "s").count("/") == 1
