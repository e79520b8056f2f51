"""Bounds are fields of dataclasses, so that tests can make them tiny: a fault then shows at 3 and not at 400,000.

Each number at the top of a module is listed here, with the reason why it is not such a bound.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")

NUMBERS: dict[str, frozenset[str]] = {
    "of the stored form, of the wire, or of a protocol: all who read and write it have to agree": frozenset(
        {
            "bus/archive/segment.py:LINE_LIMIT_BYTES",
            "bus/archive/segment.py:TEXT_LIMIT_BYTES",
            "bus/archive/store.py:FILE_LIMIT_BYTES",
            "bus/log/namespace.py:SCHEMA",
            "bus/wire/codec.py:MESSAGE_LIMIT_BYTES",
            "bus/wire/codec.py:VERSION",
            "bus/wire/keys.py:BUCKETS",
            "bus/log/reading.py:SMALL_BYTES",
            "bus/media/resolve.py:_KEY_LENGTH",
            "bus/media/store.py:REDIS_MEDIA_LIMIT_BYTES",
            "bus/messages/message.py:LARGEST_NODE",
            "bus/messages/json_reader.py:DEPTH_LIMIT",
            "bus/messages/json_reader.py:DIGITS_LIMIT",
            "bus/messages/json_reader.py:_TOO_LONG",
            "bus/messages/media.py:NAME_LIMIT_BYTES",
            "bus/publishing/encoding.py:KEY_LIMIT_BYTES",
            "bus/publishing/publisher.py:BATCHES_IN_FLIGHT",
            "bus/following/hub.py:_LAST",
            "bus/retention/trim.py:_FARTHEST",
            "bus/servers/discovery.py:SLOTS",
            "handlers/agent/tools/subagent.py:_DIGEST_BYTES",
            "handlers/agent/tools/subagent.py:_PARENT_CHARACTERS",
            "handlers/agent/turn/request.py:_HASH_LENGTH",
            "handlers/agent/models/provider_model.py:_KEY_LENGTH",
            "handlers/agent/turn/loop_state.py:_MOST_DIGITS",
            "handlers/agent/turn/loop_state.py:_MOST_IMPORTED_DIGITS",
            "handlers/formats/coding_agent/codec.py:_FAR",
            "handlers/formats/json_object.py:_FAR",
            "handlers/formats/json_object.py:_LIMIT",
            "handlers/formats/json_object.py:_ROOM",
            "handlers/formats/graph/reader.py:_ROOM",
            "handlers/formats/graph/shapes.py:_LIMIT",
            "handlers/formats/graph/shapes.py:_MILLISECONDS_FROM",
            "handlers/formats/lanebus_export.py:CARRIED_LIMIT_BYTES",
            "handlers/formats/source.py:LINE_LIMIT_BYTES",
            "handlers/formats/lanebus_export.py:VERSION",
            "handlers/formats/lanebus_export.py:_DEEP",
            "handlers/formats/placement.py:ROOT",
            "handlers/formats/coding_agent/transcript.py:_LAST_SECOND",
            "handlers/formats/source.py:DOCUMENT_LIMIT_BYTES",
            "handlers/serve/access/principal.py:NAME_LIMIT",
            "handlers/serve/access/signed_tokens.py:_KEY_BYTES",
            "handlers/serve/api/bodies.py:KEY_LIMIT",
            "handlers/serve/api/bodies.py:_FIELDS",
            "handlers/protocols/client_content.py:_NAME_LIMIT",
            "handlers/protocols/agui/run_input.py:_ID_LIMIT",
            "handlers/protocols/agui/encoder.py:_MOST",
            "handlers/protocols/ai_sdk/chat_request.py:_ID_LIMIT",
            "handlers/serve/api/upkeep.py:_FURTHEST",
            "handlers/serve/api/upkeep.py:_ID_LIMIT",
            "handlers/serve/api/upkeep.py:_ID_DIGITS",
            "handlers/agent/commands.py:UNKNOWN_POSITION",
            "handlers/verify/entries.py:HIGHEST",
        }
    ),
    "of the operating system or of another program": frozenset(
        {
            "bus/opening.py:_OLDEST_REDIS",
            "handlers/cli/commands/doctor.py:_REDIS",
            "bus/servers/topology.py:SENTINEL_PORT",
            "bus/embedded/data_dir.py:SOCKET_PATH_BYTES",
        }
    ),
    "the default of an argument, an option or a field: a test passes its own": frozenset(
        {
            "bus/groups/consumer.py:HEARTBEAT_SECONDS",
            "bus/publishing/limits.py:RESERVE_BYTES",
            "bus/media/resolve.py:RESOLVE_LIMIT_BYTES",
            "bus/messages/media.py:INLINE_LIMIT_BYTES",
            "bus/messages/media.py:FILE_LIMIT_BYTES",
            "bus/session/publishing.py:PUBLISH_SECONDS",
            "bus/following/subscription.py:BUFFER_BYTES",
            "handlers/agent/models/model.py:DEFAULT_MAX_TOKENS",
            "handlers/agent/models/model.py:SILENCE_SECONDS",
            "handlers/agent/recording/recorder.py:WAIT_SECONDS",
            "handlers/agent/tools/subagent.py:MAX_CHILDREN",
            "handlers/agent/tools/subagent.py:MAX_DEPTH",
            "handlers/agent/tools/tool.py:TOOL_SECONDS",
            "handlers/agent/worker/worker.py:DRAIN_SECONDS",
            "handlers/agent/worker/worker.py:HEARTBEAT_SECONDS",
            "handlers/cli/commands/serve.py:PORT",
            "handlers/cli/commands/sessions.py:_LIMIT",
            "handlers/projections/folding.py:STORE_EVERY",
            "handlers/cli/commands/convert.py:INPUT_LIMIT_BYTES",
            "handlers/providers/anthropic.py:MAX_TOKENS",
        }
    ),
    "an estimate, or the shape of one in memory: any other number gives the same answers": frozenset(
        {
            "handlers/serve/gate.py:_SESSIONS_AT_ONCE",
            "handlers/context/folds.py:ENTRY_BYTES",
            "bus/media/store.py:_LARGE_BYTES",
            "bus/log/reading.py:GROWTH",
            "bus/log/reading.py:LARGE_SHARE",
            "bus/log/log.py:_EXACT",
            "handlers/agent/models/offline.py:_CHARACTERS_PER_TOKEN",
            "handlers/agent/models/model.py:_BYTES_A_TOKEN",
            "handlers/formats/round_trip.py:_LONG",
            "handlers/context/tokens.py:_IMAGE_BYTES_A_TOKEN",
            "handlers/context/tokens.py:_IMAGE_CHARACTERS",
            "handlers/context/persistent_list.py:_SIZE",
        }
    ),
    "how much is shown to people": frozenset(
        {
            "handlers/agent/turn/decision.py:_REASON_CHARACTERS",
            "handlers/cli/commands/groups.py:_LOOK",
            "handlers/cli/commands/transcripts.py:_LINES_WITH_HEADER",
            "handlers/cli/commands/sessions.py:_LOOKED_INTO",
            "handlers/cli/commands/demo.py:_WIDTH",
            "handlers/serve/watcher.py:WINDOW_SECONDS",
            "handlers/cli/commands/top.py:FEWEST",
            "handlers/cli/commands/transcripts.py:_CELLS",
            "handlers/cli/commands/transcripts.py:_PAUSE",
            "handlers/cli/summary.py:_HINT",
            "handlers/cli/text.py:_NARROWEST",
            "handlers/cli/text.py:_LONGEST",
            "handlers/projections/sessions.py:TITLE_LENGTH",
            "handlers/serve/replies.py:RAW_SHOWN",
            "handlers/verify/entries.py:SHOWN",
            "handlers/verify/problem.py:_LOOK",
        }
    ),
    "of the demo's model and of its arithmetic, which nobody else uses": frozenset(
        {
            "handlers/agent/models/offline.py:LARGEST",
            "handlers/agent/models/offline.py:LONGEST",
            "handlers/agent/models/offline.py:_SHORT",
            "handlers/agent/models/offline.py:MOST",
        }
    ),
    "a part of a projection's version: another number is another fold": frozenset(
        {
            "handlers/projections/usage.py:_KEPT",
            "handlers/projections/agent_status.py:_DECIDED_KEPT",
            "handlers/projections/timeline.py:_DECISIONS_KEPT",
            "handlers/projections/usage.py:_MISMATCHES_KEPT",
            "handlers/projections/usage.py:_OPEN_KEPT",
        }
    ),
    "of the text that a model is asked with: another number is another request": frozenset(
        {
            "handlers/agent/worker/session_task.py:SHORTEST_CUT",
            "handlers/agent/compaction.py:LEAST_CHARACTERS",
            "handlers/agent/compaction.py:MOST_CHARACTERS",
            "handlers/agent/compaction.py:RESULT_CHARACTERS",
            "handlers/context/loop_compaction.py:_SHORT_BYTES",
        }
    ),
    "of the embedded server's keeper, a program of its own that takes no arguments for it": frozenset(
        {
            "bus/embedded/keeper.py:ENDING_BYTES",
            "bus/embedded/keeper.py:ID_BYTES",
            "bus/embedded/keeper.py:LOG_BYTES",
            "bus/embedded/keeper.py:TAIL_BYTES",
            "bus/embedded/server.py:ATTEMPTS",
            "bus/embedded/server.py:LONGEST_PAUSE",
            "bus/embedded/server.py:PATIENCE",
            "bus/embedded/server.py:STEADY",
        }
    ),
    "the ranges of a metric, which only show more or less detail": frozenset(
        {
            "bus/publishing/limits.py:_PUBLISHES",
            "bus/publishing/limits.py:_SECONDS",
            "handlers/agent/health.py:_TURN_SECONDS",
        }
    ),
    "how long a command of the command line waits": frozenset(
        {
            "handlers/cli/commands/demo.py:PATIENCE",
            "handlers/cli/access.py:HINT_SECONDS",
            "handlers/cli/access.py:OPEN_SECONDS",
            "handlers/cli/commands/top.py:PATIENCE_SECONDS",
        }
    ),
}
"""reason → the constants that it applies to"""

PATCHED: dict[str, str] = {
    "tests/bus/wire/test_upcasters.py:VERSION": "a version that is still to come",
    "tests/contract/test_archive_reading.py:VERSION": "a version that is still to come",
    "tests/contract/test_archive_store.py:FILE_LIMIT_BYTES": "of the stored form, and too large to be reached here",
    "tests/handlers/cli/test_command_line.py:OPEN_SECONDS": "no argument for it, and it would take ten seconds",
    "tests/handlers/formats/transcripts/test_openai_chat.py:DOCUMENT_LIMIT_BYTES": "too large to be reached here",
}
"""a constant of the product that a test patches → the reason"""


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_number(body) and _is_number(orelse)
        case ast.Tuple(elts=[*elements]):
            return bool(elements) and all(map(_is_number, elements))
        case ast.Name(id=name):
            return CONSTANT.fullmatch(name) is not None and name.endswith(("BYTES", "SECONDS", "LIMIT"))
        case _:
            return False


def _numbers(text: str) -> Iterator[str]:
    """Return the upper-case names that a module assigns numbers to at its top level."""
    for statement in ast.parse(text).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if CONSTANT.fullmatch(name):
                if _is_number(value):
                    yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if CONSTANT.fullmatch(name):
                if _is_number(value):
                    yield name
            case _:
                pass


def _patched(text: str) -> Iterator[str]:
    """Return the upper-case names that are patched with `setattr`, without those of `tests/support`."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[first, *rest]):
                for place in (first, *rest[:1]):
                    dotted = _text(place)
                    name = dotted.rpartition(".")[2]
                    if CONSTANT.fullmatch(name) and not dotted.startswith("tests."):
                        yield name
            case _:
                pass


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            return text
        case _:
            return ""


def _files(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted(Path(ROOT, folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_a_number_at_the_top_of_a_module_has_a_reason_to_be_no_bound() -> None:
    found = [f"{path}:{name}" for path, text in _files("bus", "handlers") for name in _numbers(text)]
    listed = [name for names in NUMBERS.values() for name in names]
    assert sorted(found) == sorted(listed)


def test_no_test_patches_a_constant_without_a_reason() -> None:
    found = {f"{path}:{name}" for path, text in _files("tests") for name in _patched(text)}
    assert found == PATCHED.keys()


def test_numbers_and_patches_are_found_however_they_are_written() -> None:
    text = "A = 1\nB: int = 2 * 1_024\n_C = -1.5\nD = A_BYTES // 2\nE, F = 1, 2\ng = 3\nH = 'x'\nI = True\nJ = (1, 2)\n"
    assert [*_numbers(text)] == ["A", "B", "_C", "D", "J"]
    patches = "p.setattr('a.B', 1)\np.setattr(a, 'C_D', 1)\np.setattr(f'{a}.E', 1)\np.setattr('a.b', 1)\n"
    assert [*_patched(patches)] == ["B", "C_D", "E"]
