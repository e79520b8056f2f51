"""Bounds are fields of dataclasses, so that tests can make them tiny: a fault then shows at 3 and not at 400,000.

And patterns: those that repeat a group are named.
"""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from typing import cast

from tests.support.paths import ROOT

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")

NUMBERS = """
of the stored form, of the wire, or of a protocol: all who read and write it have to agree
    bus/archive/segment.py: LINE_LIMIT_BYTES TEXT_LIMIT_BYTES
    bus/archive/segment.py: FILE_LIMIT_BYTES
    bus/following/hub.py: _LAST
    bus/log/namespace.py: SCHEMA
    bus/log/reading.py: SMALL_BYTES
    bus/media/resolve.py: _KEY_LENGTH
    bus/media/store.py: REDIS_MEDIA_LIMIT_BYTES
    bus/messages/json_reader.py: DEPTH_LIMIT DIGITS_LIMIT _TOO_LONG
    bus/messages/content.py: NAME_LIMIT_BYTES
    bus/messages/message.py: LARGEST_NODE
    bus/publishing/encoding.py: KEY_LIMIT_BYTES
    bus/publishing/publisher.py: BATCHES_IN_FLIGHT
    bus/retention.py: _FARTHEST
    bus/servers/topology.py: SLOTS
    bus/wire/codec.py: MESSAGE_LIMIT_BYTES VERSION
    bus/wire/keys.py: BUCKETS
    handlers/agent/commands.py: UNKNOWN_POSITION
    handlers/agent/models/provider_model.py: _KEY_LENGTH
    handlers/agent/tools/subagent.py: _DIGEST_BYTES _PARENT_CHARACTERS
    handlers/agent/turn/loop_state.py: _MOST_DIGITS _MOST_IMPORTED_DIGITS
    handlers/agent/turn/request.py: _HASH_LENGTH
    handlers/formats/coding_agent/codec.py: _FAR
    handlers/formats/coding_agent/transcript.py: _LAST_SECOND
    handlers/formats/graph/reader.py: _ROOM
    handlers/formats/graph/shapes.py: _LIMIT _MILLISECONDS_FROM
    handlers/formats/round_trip.py: _FAR _LIMIT _ROOM
    handlers/formats/lanebus_export.py: CARRIED_LIMIT_BYTES VERSION _DEEP
    handlers/formats/transcript.py: ROOT
    handlers/formats/source.py: DOCUMENT_LIMIT_BYTES LINE_LIMIT_BYTES
    handlers/protocols/agui/encoder.py: _MOST
    handlers/protocols/agui/run_stream.py: _ID_LIMIT
    handlers/protocols/ai_sdk/message_stream.py: _ID_LIMIT
    handlers/protocols/client_content.py: _NAME_LIMIT _URL_LIMIT
    handlers/serve/access/credentials.py: NAME_LIMIT
    handlers/serve/access/credentials.py: _KEY_BYTES
    handlers/serve/api/bodies.py: KEY_LIMIT _COMMAND_CHARACTERS _FIELDS
    handlers/serve/api/upkeep.py: _FURTHEST _ID_DIGITS _ID_LIMIT
    handlers/verify/entries.py: HIGHEST
of the operating system or of another program
    bus/embedded/data_dir.py: SOCKET_PATH_BYTES
    bus/opening.py: _OLDEST_REDIS
    bus/servers/topology.py: SENTINEL_PORT
    handlers/cli/commands/doctor.py: _REDIS
the default of an argument, an option or a field: a test passes its own
    bus/following/subscription.py: BUFFER_BYTES
    bus/groups/consumer.py: HEARTBEAT_SECONDS
    bus/media/resolve.py: RESOLVE_LIMIT_BYTES
    bus/messages/content.py: FILE_LIMIT_BYTES INLINE_LIMIT_BYTES
    bus/publishing/publisher.py: RESERVE_BYTES
    bus/session.py: PUBLISH_SECONDS
    handlers/agent/models/model.py: DEFAULT_MAX_TOKENS SILENCE_SECONDS
    handlers/agent/recording/recorder.py: WAIT_SECONDS
    handlers/agent/tools/subagent.py: MAX_CHILDREN MAX_DEPTH
    handlers/agent/tools/tool.py: TOOL_SECONDS
    handlers/agent/worker/worker.py: DRAIN_SECONDS HEARTBEAT_SECONDS
    handlers/cli/commands/transcripts.py: INPUT_LIMIT_BYTES
    handlers/cli/commands/serve.py: PORT
    handlers/cli/commands/sessions.py: _LIMIT
    handlers/projections/folding.py: STORE_EVERY
    handlers/providers/anthropic.py: MAX_TOKENS
an estimate, or the shape of one in memory: any other number gives the same answers
    bus/log/log.py: _EXACT
    bus/log/reading.py: GROWTH LARGE_SHARE
    bus/media/store.py: _LARGE_BYTES
    handlers/agent/models/model.py: _BYTES_A_TOKEN
    handlers/agent/models/offline.py: _CHARACTERS_PER_TOKEN
    handlers/context/build.py: ENTRY_BYTES
    handlers/context/persistent_list.py: _SIZE
    handlers/context/tokens.py: _IMAGE_BYTES_A_TOKEN _IMAGE_CHARACTERS
    handlers/formats/round_trip.py: _LONG
    handlers/serve/gate.py: _SESSIONS_AT_ONCE
how much is shown to people
    bus/messages/json_reader.py: _SEARCHED
    handlers/agent/turn/decision.py: _REASON_CHARACTERS
    handlers/cli/commands/demo.py: _WIDTH
    handlers/cli/commands/groups.py: _LOOK
    handlers/cli/commands/sessions.py: _LOOKED_INTO
    handlers/cli/commands/top.py: FEWEST
    handlers/cli/commands/transcripts.py: _CELLS _LINES_WITH_HEADER _PAUSE
    handlers/cli/summary.py: _HINT
    handlers/cli/output.py: _LONGEST _NARROWEST
    handlers/projections/sessions.py: TITLE_LENGTH
    handlers/serve/replies.py: RAW_SHOWN
    handlers/serve/watcher.py: WINDOW_SECONDS
    handlers/verify/entries.py: SHOWN
    handlers/verify/entries.py: _LOOK
of the demo's model and of its arithmetic, which nobody else uses
    handlers/agent/models/offline.py: LARGEST LONGEST MOST _SHORT
a part of a projection's version: another number is another fold
    handlers/projections/agent_status.py: _DECIDED_KEPT
    handlers/projections/timeline.py: _DECISIONS_KEPT
    handlers/projections/usage.py: _KEPT _MISMATCHES_KEPT _OPEN_KEPT
of the text that a model is asked with: another number is another request
    handlers/agent/compaction.py: LEAST_CHARACTERS MOST_CHARACTERS RESULT_CHARACTERS
    handlers/agent/worker/session_task.py: SHORTEST_CUT
    handlers/context/loop_compaction.py: _SHORT_BYTES
of the embedded server's keeper, a program of its own that takes no arguments for it
    bus/embedded/keeper.py: ENDING_BYTES ID_BYTES LOG_BYTES TAIL_BYTES
    bus/embedded/server.py: ATTEMPTS LONGEST_PAUSE PATIENCE STEADY
the ranges of a metric, which only show more or less detail
    bus/publishing/publisher.py: _PUBLISHES _SECONDS
    handlers/agent/health.py: _TURN_SECONDS
how long a command of the command line waits
    handlers/cli/access.py: HINT_SECONDS OPEN_SECONDS
    handlers/cli/commands/demo.py: PATIENCE
    handlers/cli/commands/top.py: PATIENCE_SECONDS
"""
"""the numbers at the top of modules, each below the reason why it is not such a bound"""

PATCHED = {
    "VERSION": "a version that is still to come",
    "FILE_LIMIT_BYTES": "of the stored form, and too large to be reached here",
    "OPEN_SECONDS": "no argument for it, and it would take ten seconds",
    "DOCUMENT_LIMIT_BYTES": "too large to be reached here",
}
"""a constant of the product that tests patch → the reason"""


def is_number(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=[*elements]):
            return bool(elements) and all(map(is_number, elements))
        case ast.Name(id=name):
            return CONSTANT.fullmatch(name) is not None and name.endswith(("BYTES", "SECONDS", "LIMIT"))
        case _:
            return False


def numbers(text: str) -> Iterator[str]:
    """Yield the upper-case names that a module assigns numbers to at its top level."""
    for statement in ast.parse(text).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if CONSTANT.fullmatch(name) and is_number(value):
                    yield name
            case _:
                pass


def patched(text: str) -> Iterator[str]:
    """Yield the upper-case names that are patched with `setattr`, without those of `tests/support`."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[*arguments]):
                for place in arguments[:2]:
                    last = place.values[-1] if isinstance(place, ast.JoinedStr) else place
                    dotted = str(last.value) if isinstance(last, ast.Constant) else ""
                    name = dotted.rpartition(".")[2]
                    if CONSTANT.fullmatch(name) and not dotted.startswith("tests."):
                        yield name
            case _:
                pass


def files(*folders: str) -> Iterator[tuple[str, str]]:
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_a_number_at_the_top_of_a_module_has_a_reason_to_be_no_bound() -> None:
    rows = (line.strip().split(": ") for line in NUMBERS.splitlines() if line.startswith(" "))
    listed = [f"{path}:{name}" for path, names in rows for name in names.split()]
    found = [f"{path}:{name}" for path, text in files("bus", "handlers") for name in numbers(text)]
    assert sorted(found) == sorted(listed)


def test_no_test_patches_a_constant_without_a_reason() -> None:
    assert {name for _, text in files("tests") for name in patched(text)} == PATCHED.keys()


def test_numbers_and_patches_are_found_however_they_are_written() -> None:
    text = "A = 1\nB: int = 2 * 1_024\n_C = -1.5\nD = A_BYTES // 2\nE, F = 1, 2\ng = 3\nH = 'x'\nI = True\nJ = (1, 2)\n"
    assert [*numbers(text)] == ["A", "B", "_C", "D", "J"]
    patches = "p.setattr('a.B', 1)\np.setattr(a, 'C_D', 1)\np.setattr(f'{a}.E', 1)\np.setattr('a.b', 1)\n"
    assert [*patched(patches)] == ["B", "C_D", "E"]


REPEATED_GROUP = re.compile(r"(?<!\\)\)(?:[*+]|\{\d+,\})(?!\+)")


def test_no_pattern_repeats_a_group_over_foreign_text_of_any_length() -> None:
    # `re` keeps some 200 bytes for each repetition: 1 MB of a request took 221 MB. `(…)*+` keeps none.
    found = set[str]()
    for file in (file for folder in ("bus", "handlers") for file in (ROOT / folder).rglob("*.py")):
        if "re.compile(" in file.read_text():
            path = file.relative_to(ROOT)
            module = import_module(".".join(("lanebus", *path.with_suffix("").parts)).removesuffix(".__init__"))
            values = vars(module).items()
            patterns = {name: cast("re.Pattern[str]", each) for name, each in values if isinstance(each, re.Pattern)}
            found |= {f"{path}: {name}" for name, each in patterns.items() if REPEATED_GROUP.search(str(each.pattern))}
    assert found == {
        *(f"bus/text.py: {name}" for name in ("_ASSIGNED", "_HEADER", "_QUERY", "_URL")),  # of cut texts
        "handlers/serve/guard.py: _BASE_PATH",  # of a setting
    }
