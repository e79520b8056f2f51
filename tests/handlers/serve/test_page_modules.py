"""Pure modules of the page, run in Node."""

import json
import sys
import unicodedata
from pathlib import Path

import pytest

from lanebus.bus.messages import Delta
from lanebus.bus.wire import DecodeFailure
from lanebus.handlers.projections import UNSAFE, Views
from lanebus.handlers.serve.api.turns import timeline_view
from tests.support.node.running import run_node
from tests.support.page.recorded import record_loops
from tests.support.page.serving import temporary_bus
from tests.support.paths import ROOT

APP = ROOT / "handlers/serve/static/app"


async def test_a_timeline_at_a_past_position_has_the_rows_of_a_log_that_ends_there(
    referees: Path, tmp_path: Path
) -> None:
    async with temporary_bus() as bus:
        whole, session, views = bus.session("whole"), bus.session("s1"), Views()
        await record_loops(whole, loops=2, turns=3, approved=0, failed=1, child="s1-child")
        timelines = list[object]()
        async for envelope in whole.read():
            assert not isinstance(envelope.message, DecodeFailure | Delta)
            await session.publish(envelope.message)
            timelines.append(await timeline_view(views, session))
    found = tmp_path / "timelines.json"
    found.write_text(json.dumps(timelines))
    said = json.loads(await run_node(referees, Path(__file__).parent / "timeline_at.mjs", str(APP), str(found)))
    assert said["differ"] == []
    assert said["rows"] > 15
    assert said["open"] > 40


async def test_the_layout_of_the_log_learns_the_height_of_a_position_from_what_is_loaded(referees: Path) -> None:
    found = json.loads(await run_node(referees, Path(__file__).parent / "layout.mjs", str(APP)))
    whole = 10_000 * 24
    assert found["whole"] == whole
    assert found["arriving"] == whole  # the newest page was drawn before all of it had arrived
    assert found["other"] == pytest.approx(whole, rel=0.02)  # less what is not loaded of the newest page
    assert (found["start"], found["middle"], found["at"]) == (0, whole / 2, 5001)
    assert whole - 240 <= found["end"] <= whole
    assert found["long"] > 10_000 * 24  # a page within one turn says nothing of the others
    assert found["mixed"] == pytest.approx(found["mean"])


async def test_the_page_and_the_terminal_escape_the_same_characters(referees: Path) -> None:
    found = json.loads(await run_node(referees, Path(__file__).parent / "unseen.mjs", str(APP)))
    page = {number for first, last in found for number in range(first, last + 1)}
    terminal = {number for number in range(sys.maxunicode + 1) if UNSAFE.match(chr(number))}
    # A character that one of the two does not know yet may be a letter of a newer Unicode.
    unknown = {number for number in terminal ^ page if unicodedata.category(chr(number)) == "Cn"}
    assert [f"U+{number:04X}" for number in sorted((terminal ^ page) - unknown)] == []
    assert {0x2800, 0x16FE4, 0x1D159, 0x13430, 0xE000, 0xFE0F, 0x202E} <= terminal & page
