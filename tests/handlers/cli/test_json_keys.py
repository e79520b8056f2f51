"""The keys of the JSON that commands print: snake_case, and one name for one thing in all of them."""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

RECEIPT = "session positions is_duplicate"
USAGE = "input output reasoning cache_read cache_write total_tokens cost"

KEYS = {
    "publish s1 hello": RECEIPT,
    "publish s2 hello": RECEIPT,
    "control s1 pause": f"{RECEIPT} outcome reason",
    "sessions": "session agent has_worker position size_bytes created updated is_closed first_kept archived origin "
    "title llm extension turns usage",
    "agents": "agent sessions waiting is_waiting_more workers is_default",
    "usage s1": f"{USAGE} is_estimate counted_from",
    "usage s1 --tree": "session agent is_erased counted_from usage total children",
    "top --once": "time groups sessions sessions_left_out pace",
    "fork s1": "session parent position",
    "trim s1 --before 2 --dry-run": None,
    "replay s1": None,
    "verify s1": None,
    "close s1": f"{RECEIPT} is_closed",
    "reopen s1": f"{RECEIPT} is_closed",
    "server status": "state data_dir socket aof_bytes pid keeper_pid version openers",
    "erase s2 --yes": "session is_erased media",
}
"""command → the keys of each line that it prints; None where only the spelling counts"""

MESSAGE = frozenset({"message", "holders", "models"})
"""keys whose values have keys of their own: messages in the form of the log, names"""


def keys(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in MESSAGE:
                yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_commands_print_the_keys_of_the_table_and_all_are_in_snake_case(lanebus: CommandLine) -> None:
    for command, wanted in KEYS.items():
        shown = lanebus(*command.split())
        lines = objects(shown.out)
        assert lines, (command, shown.err)
        for line in lines:
            assert wanted is None or [*line] == wanted.split(), command
            assert [key for key in keys(line) if not re.fullmatch("[a-z][a-z0-9_]*", key)] == [], command
