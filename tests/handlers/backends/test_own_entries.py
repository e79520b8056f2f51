"""Whatever reads entries asks whether they are imported: another party wrote those, and they decide nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanebus import ExtensionMessage, UserMessage
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.backends.own_entries import imported_message, own_message
from tests.support.agent.agents import fresh_bus
from tests.support.paths import ROOT

__all__ = ()

ASKS = {"is_imported", "own_message"}

READERS: dict[str, str] = {
    "agent/cached_session.py": "hands the pages to folds, which ask",
    "agent/compaction/compaction_step.py": "numbers the summaries of the context",
    "agent/compaction/summary_request.py": "summarises what the model reads, imported or not",
    "agent/delay.py": "reads the starts of calls, at positions that the fold of own entries has found",
    "agent/loop.py": "reads messages at positions that the fold of own entries has found",
    "agent/recording/recorded_loop.py": "waits until the session is closed, which its head tells",
    "agent/turn/request_replay.py": "shows what a model was asked; a definition is compared with its hash",
    "agent/turn/visible_context.py": "reads messages at positions that the fold of own entries has found",
    "agent/worker/failed_session.py": "reads a message at a position of a fold; commands go to a fold that asks",
    "projections/errors.py": "names the entry at which a fold failed",
    "projections/fold_input.py": "hands entries to folds",
    "projections/projection.py": "hands the pages to folds",
    "projections/sessions.py": "a view: counts what a session holds",
    "projections/turns.py": "a view: shows imported turns too",
    "projections/usage.py": "a view: counts imported usage too",
    "protocols/acp/editor_session.py": "shows entries through `run.py`, which asks",
    "protocols/agui/run_stream.py": "shows entries through `run.py`, which asks",
    "protocols/ai_sdk/message_stream.py": "shows entries through `run.py`, which asks",
    "protocols/work_state.py": "gets its entries from `run.py`, which asks",
}
"""modules that read entries and do not ask themselves, with the reason"""


def uses(path: Path) -> Iterator[str]:
    """Yield the names of the methods and attributes by which a module reads entries, and of those by which it asks."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr="read" | "follow" | "pages" as name), keywords=[_, *_]):
                yield name
            case ast.Attribute(value=ast.Name(id="envelope"), attr="message"):
                yield "message"
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in ASKS:
                yield name
            case _:
                pass


@pytest.mark.parametrize("package", ["backends", "protocols", "agent", "projections"])
def test_a_module_that_reads_entries_asks_whether_they_are_imported(package: str) -> None:
    silent: set[str] = set()
    for path in (ROOT / "handlers" / package).rglob("*.py"):
        found = set(uses(path))
        if found - ASKS and not found & ASKS:
            silent.add(path.relative_to(ROOT / "handlers").as_posix())
    assert silent == {name for name in READERS if name.startswith(f"{package}/")}


def test_every_store_of_a_framework_is_a_fold_of_states_or_asks_itself() -> None:
    for path in (ROOT / "handlers" / "backends").rglob("*.py"):
        found = set(uses(path))
        assert not (found & {"read", "follow", "pages"}) or "own_message" in found, path.name


async def test_an_entry_is_own_or_imported_or_neither() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("mine"))
        await session.publish(ExtensionMessage.of("x", {}), imported=True)
        found: list[Envelope] = [envelope async for envelope in session.read()]
        assert [own_message(each) is not None for each in found] == [True, False]
        assert [imported_message(each) is not None for each in found] == [False, True]
