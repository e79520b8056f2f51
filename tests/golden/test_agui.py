"""Clients of AG-UI get for recorded sessions what they got before, and its referees find no fault in it."""

from pathlib import Path

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from tests.support.golden.agui import HERE, STREAMS, stream_of
from tests.support.node.agui import check_streams, read_events, types_of
from tests.support.node.running import referees, run_node

__all__ = ("referees",)

REPLAY = Path(__file__).parents[1] / "handlers/protocols/agui/replay.mjs"


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_session_gives_its_golden_stream(name: str) -> None:
    assert stream_of(STREAMS[name]) == (HERE / f"{name}.sse").read_text()


def test_every_golden_stream_belongs_to_a_session() -> None:
    assert {path.stem for path in HERE.iterdir()} == {*STREAMS}


@pytest.mark.full
async def test_the_validator_finds_no_fault_in_golden_streams() -> None:
    await check_streams([path.read_text() for path in HERE.iterdir()])


@pytest.mark.parametrize("name", STREAMS)
def test_the_protocols_own_types_accept_each_event(name: str) -> None:
    reader: TypeAdapter[object] = TypeAdapter(Event)
    for event in read_events((HERE / f"{name}.sse").read_text()):
        read = reader.validate_python(event)
        assert reader.dump_python(read, mode="json", by_alias=True, exclude_none=True) == event


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_one_start_and_one_end_which_is_the_last(name: str) -> None:
    types = types_of(read_events((HERE / f"{name}.sse").read_text()))
    ends = [at for at, each in enumerate(types) if each in {"RUN_FINISHED", "RUN_ERROR"}]
    assert (types.index("RUN_STARTED"), types.count("RUN_STARTED"), ends) == (0, 1, [len(types) - 1])


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("name", [name for name, (_, _, shown) in STREAMS.items() if not shown])
async def test_the_size_of_live_pieces_changes_no_joined_text(name: str, size: int) -> None:
    def joined(stream: str) -> dict[object, str]:
        found: dict[object, str] = {}
        for event in read_events(stream):
            if "delta" in event:
                id = event.get("messageId", event.get("toolCallId"))
                found[id] = found.get(id, "") + str(event["delta"])
        return found

    assert joined(stream_of(STREAMS[name], size)) == joined(stream_of(STREAMS[name]))


async def test_both_clients_accept_each_golden_stream(referees: Path) -> None:
    for version in ("0", "1"):
        await run_node(referees, REPLAY, version, *(str(path) for path in sorted(HERE.iterdir())))
