"""Whatever reads entries asks whether they are imported: another party wrote those, and they decide nothing."""

import ast
from collections.abc import Iterator

import pytest

from lanebus import ExtensionMessage, UserMessage
from lanebus.bus.wire import Envelope
from lanebus.handlers.integrations.session_states import imported_message, own_message
from tests.support.agent.agents import fresh_bus
from tests.support.paths import ROOT

__all__ = ()

ASKS = {"is_imported", "own_message"}

READERS: dict[str, str] = {
    "agent/ask.py:_running_tools": "reads the starts of calls, at positions that the fold of own entries has found",
    "agent/commands.py:_require_command": "reads the command of a receipt of its own process",
    "agent/compaction.py:CompactionStep": "numbers the summaries of the context",
    "agent/compaction.py:_answers": "gets the entries of the context, imported or not",
    "agent/compaction.py:_is_undone": "gets the entries of the context, imported or not",
    "agent/compaction.py:_parts": "summarises what the model reads, imported or not",
    "agent/compaction.py:find_cut": "cuts what the model reads, imported or not",
    "agent/compaction.py:summary_request": "summarises what the model reads, imported or not",
    "agent/loop.py:AgentLoop": "reads messages at positions that the fold of own entries has found",
    "agent/recording/recorded_loop.py:RecordedLoop": "waits until the session is closed, which its head tells",
    "agent/session_cache.py:CachedSession": "hands the pages to folds, which ask",
    "agent/tracing.py:_add": "adds to a trace what the model reads, imported or not",
    "agent/turn/decision.py:_is_known": "looks at the context, imported or not, to tell a decided call",
    "agent/turn/loop_state.py:_follow_ups": "gets entries of the fold of own entries",
    "agent/turn/request.py:_answer_of": "shows what a model was asked; a definition is compared with its hash",
    "agent/turn/request.py:_event": "shows what a model was asked; a definition is compared with its hash",
    "agent/turn/request.py:_read_events": "shows what a model was asked; a definition is compared with its hash",
    "agent/worker/session_task.py:_is_cut": "reads a message at a position of a fold; commands go to a fold that asks",
    "agent/worker/session_task.py:give_up": "reads a message at a position of a fold; commands go to a fold that asks",
    "agent/worker/session_task.py:give_up_unreadable": "reads the entry that no fold could read",
    "integrations/mcp/replicas.py:McpEventStore": "reads events by `_stored_event`, which asks",
    "integrations/session_states.py:_readable_message": "is asked for entries that are own already",
    "projections/definition.py:FoldInput": "hands entries to folds",
    "projections/folding.py:FoldFailed": "names the entry at which a fold failed",
    "projections/folding.py:fold": "hands the pages to folds",
    "projections/sessions.py:_evolve": "a view: counts what a session holds",
    "projections/sessions.py:with_status": "a view: shows the newest message",
    "projections/turns.py:_evolve": "a view: shows imported turns too",
    "projections/usage.py:_evolve": "a view: counts imported usage too",
    "protocols/acp/editor_session.py:EditorSession": "shows entries through `run.py`, which asks",
    "protocols/agui/run_stream.py:AguiRun": "shows entries through `run.py`, which asks",
    "protocols/ai_sdk/message_stream.py:MessageStream": "shows entries through `run.py`, which asks",
    "protocols/run.py:WorkState": "gets its entries from `RunFold`, which asks",
}
"""functions and classes that read entries and do not ask themselves, with the reason"""


def uses(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the methods and attributes by which code reads entries, and of those by which it asks."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="read" | "follow" | "pages" as name), keywords=[_, *_]):
                yield name
            case ast.Attribute(value=ast.Name(id="envelope"), attr="message"):
                yield "message"
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in ASKS:
                yield name
            case _:
                pass


def definitions(package: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each function and class of a package, with what it uses."""
    folder = ROOT / "handlers"
    for path in sorted((folder / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{path.relative_to(folder).as_posix()}:{node.name}", {*uses(node)}


@pytest.mark.parametrize("package", ["integrations", "protocols", "agent", "projections"])
def test_what_reads_entries_asks_whether_they_are_imported(package: str) -> None:
    silent = {name for name, found in definitions(package) if found - ASKS and not found & ASKS}
    assert silent == {name for name in READERS if name.startswith(f"{package}/")}


async def test_an_entry_is_own_or_imported_or_neither() -> None:
    async with fresh_bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("mine"))
        await session.publish(ExtensionMessage.of("x", {}), imported=True)
        found: list[Envelope] = [envelope async for envelope in session.read()]
        assert [own_message(each) is not None for each in found] == [True, False]
        assert [imported_message(each) is not None for each in found] == [False, True]
