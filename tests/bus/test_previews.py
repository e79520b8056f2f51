"""The live deltas that a late follower gets, compared with a scan of every delta."""

from collections import defaultdict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lanebus import Cursor, Delta, Envelope, Lane
from lanebus.bus.errors import DecodeError
from lanebus.bus.previews import SessionDeltas
from lanebus.bus.wire import DecodeFailure

KINDS = st.sampled_from(["text", "text", "text", "text", "cut", "unreadable"])
PIECES = st.lists(st.tuples(st.sampled_from("mn"), st.integers(0, 1), KINDS, st.booleans()), max_size=30)
PLACES = st.tuples(st.integers(0, 12), st.integers(0, 12))


def made(pieces: Sequence[tuple[str, int, str, bool]]) -> list[Envelope]:
    """Return live deltas in order; one whose flag is set is below the next position."""
    envelopes: list[Envelope] = []
    position, number = 1, 0
    for index, (id, block, kind, is_next) in enumerate(pieces):
        position, number = (position + 1, 1) if is_next else (position, number + 1)
        message: Delta | DecodeFailure
        if kind == "unreadable":
            message = DecodeFailure(DecodeError("kind", "is none"), b"")
        elif kind == "cut":
            message = Delta(kind="cut", message_id=id, delta="stopped", block=block)
        else:
            message = Delta(kind="text", message_id=id, delta=f"{index} ", block=block)
        envelopes.append(Envelope("s", position, Lane.LLM, message, float(index), "p", number, "i"))
    return envelopes


def up_to_the_cut(envelopes: Sequence[Envelope], id: str) -> list[tuple[Envelope, Delta]]:
    told: list[tuple[Envelope, Delta]] = []
    for envelope in envelopes:
        if isinstance(delta := envelope.message, Delta) and delta.message_id == id:
            if told and told[-1][1].kind == "cut":
                break
            told.append((envelope, delta))
    return told


def texts(envelopes: Sequence[Envelope]) -> dict[tuple[str, int, str], str]:
    found: defaultdict[tuple[str, int, str], str] = defaultdict(str)
    for envelope in envelopes:
        if isinstance(delta := envelope.message, Delta):
            found[delta.message_id, delta.block, delta.kind] += delta.delta
    return dict(found)


@given(PIECES, PLACES, PLACES)
def test_joined_deltas_equal_the_single_deltas(
    pieces: list[tuple[str, int, str, bool]], one: tuple[int, int], other: tuple[int, int]
) -> None:
    envelopes = made(pieces)
    spoken = SessionDeltas()
    for envelope in envelopes:
        spoken.add(envelope)
    after, until = (Cursor(*place) for place in sorted((one, other)))

    for ids in (set[str](), {"m"}, {"m", "n"}):
        since = list(spoken.since(after, until, ids))
        between = [e for e in envelopes if e.cursor.is_after(after) and not e.cursor.is_after(until)]
        told = [e for id in ids for e, _ in up_to_the_cut(envelopes, id) if e in between]
        assert texts(since) == texts(sorted(told, key=lambda e: e.cursor))
        unreadable = [e for e in between if not isinstance(e.message, Delta)]
        assert [e for e in since if not isinstance(e.message, Delta)] == unreadable
        cursors = [e.cursor for e in since]
        assert cursors == sorted(set(cursors))
        assert {*cursors} <= {e.cursor for e in between}

    for id, said in spoken.messages.items():
        seen = [(e, delta) for e, delta in up_to_the_cut(envelopes, id) if not e.cursor.is_after(after)]
        if not any(delta.kind == "cut" for _, delta in seen):
            blocks = sorted({delta.block for _, delta in seen})
            assert [(e.cursor, e.message) for e in said.snapshots(after)] == [
                (
                    Cursor(after.position, 0, after.incarnation),
                    Delta(
                        kind="text",
                        message_id=id,
                        block=block,
                        delta="".join(delta.delta for _, delta in seen if delta.block == block),
                        is_snapshot=True,
                    ),
                )
                for block in blocks
            ]
