"""The JSON that commands print: snake_case keys, one name for one thing, and one form of cost in all of them."""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import anyio
import click
import pytest
from pydantic import JsonValue

from lanebus import AssistantMessage, Bus, TextBlock, Usage, UserMessage
from lanebus.handlers.cli.group import COMMANDS
from lanebus.handlers.cli.group import lanebus as root
from lanebus.handlers.cli.options import ViewCommand
from lanebus.messages import Cost
from lanebus.projections import USAGE, project
from tests.support.cli.command_line import CommandLine, objects

RECEIPT = "session positions is_duplicate"
TOKENS = "input output reasoning cache_read cache_write total_tokens cost"
LETTER = "letter group session position attempts time worker reason size_bytes"

KEYS: dict[str, str | None] = {
    "publish s1 hello": RECEIPT,
    "publish s2 hello": RECEIPT,
    "control s1 pause": f"{RECEIPT} outcome reason",
    "sessions": "session agent has_worker position size_bytes created updated is_closed first_kept archived origin "
    "title llm extension turns usage error failure cursor",
    "sessions --waiting --state open": None,
    "tail s1": None,
    "turns s1": None,
    "turns {demo} --loops": "loop_id agent parent continuation chain children siblings is_selected status stop_reason "
    "turns messages usage",
    "context s1": None,
    "agents": "agent sessions waiting is_waiting_more workers is_default",
    "usage s1": f"{TOKENS} is_estimate counted_from",
    "usage s1 --tree": "session agent is_erased error counted_from usage total children",
    "top --once": "time groups without_worker sessions sessions_left_out pace",
    "demo --once --json": "session entries turns usage",
    "config show": "setting value source",
    "doctor": "level check text remedy node",
    "fork s1": "session parent position",
    "archive s1 --archive {folder}": "session position entries segments size_bytes orphans",
    "trim s1 --before 2 --dry-run": None,
    "replay s1": None,
    "replay s1 --until 1": None,
    "projections list s1": None,
    "projections remove s1 {projection}": None,
    "verify s1": None,
    "dead list": LETTER,
    "dead show {letter}": None,
    "dead redrive --yes": "letters is_dry_run",
    "groups status": "group alive lag pending retries dead seen is_away",
    "groups remove agents --yes --force": None,
    "import {transcript} --session s3": None,
    "agents default support": "default",
    "hand-over s1 support": f"{RECEIPT} agent",
    "close s1": f"{RECEIPT} is_closed",
    "reopen s1": f"{RECEIPT} is_closed",
    "server status": "state data_dir socket aof_bytes pid keeper_pid version openers",
    "erase s2 --yes": "session is_erased media",
}
"""command → the keys of each line that it prints; None where only the spelling counts"""

OF_OTHERS = frozenset({"message", "holders", "models", "turn_id", "body", "state"})
"""keys whose values have keys of their own: messages and turn ids in the form of the log, names, stored states"""

FOREIGN = frozenset({"context"})
"""commands that print the form of another system"""

NOT_HERE = frozenset({"server stop", "namespace accept"})
"""commands that a test with an open server cannot run, or that have tests of their own"""

MAY_BE_EMPTY = frozenset({"sessions --waiting --state open"})
"""commands that list what there is not"""


def keys(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for key, inner in value.items():
            yield from keys(inner) if key not in OF_OTHERS else ()
    elif isinstance(value, list):
        yield from (key for inner in value for key in keys(inner))


def costs(value: JsonValue) -> Iterator[JsonValue]:
    """Yield each value under the key `cost`, also those inside of messages and states."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from [inner] if key == "cost" else costs(inner)
    elif isinstance(value, list):
        yield from (cost for inner in value for cost in costs(inner))


def is_wire_cost(value: JsonValue) -> bool:
    """Whether a cost is null or has the form of message JSON: exact amounts, as text."""
    if not isinstance(value, dict):
        return value is None
    amounts = {"input", "output", "cache_read", "cache_write", "total"}
    return value.keys() - {"source"} == amounts and all(
        isinstance(value[key], str) and Decimal(str(value[key])) >= 0 for key in amounts
    )


def view_commands(group: click.Group, context: click.Context, before: str = "") -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, ViewCommand):
            yield before + name
        if isinstance(command, click.Group):
            yield from view_commands(command, context, f"{before}{name} ")


def test_each_command_that_prints_json_is_in_the_table() -> None:
    found = {*view_commands(root, click.Context(root))}
    assert {name for name in found if not any(line.startswith(name) for line in KEYS)} == NOT_HERE
    assert {"sessions", "dead list", "agents default"} <= found
    assert {line.split()[0] for line in KEYS} <= {name for group in COMMANDS.values() for name in group}


def fill(line: CommandLine, transcript: Path) -> str:
    """Add an answer with a cost, and a dead letter. Return the letter's id."""
    answer = AssistantMessage(
        content=(TextBlock(text="Hi"),),
        stop_reason="stop",
        model="m",
        usage=Usage(
            input=2, output=1, total_tokens=3, cost=Cost(input=Decimal("0.0000001"), total=Decimal("0.0000001"))
        ),
    )

    async def work() -> None:
        async with Bus.open(data_dir=line.data_dir) as bus, bus.consumer("agents", "w1") as consumer:
            await bus.session("s1").publish(UserMessage.text("x"), answer)
            await project(bus.session("s1"), USAGE)
            with anyio.fail_after(120):
                (found,) = await consumer.fetch(1)
            await consumer.dead_letter(found, reason="gone", attempts=3)

    anyio.run(work)
    assert line("export", "s1", "-o", transcript).code == 0
    return str(objects(line("dead", "list").out)[0]["letter"])


@pytest.mark.full
def test_commands_print_keys_in_snake_case_and_costs_in_one_form(lanebus: CommandLine, tmp_path: Path) -> None:
    places = {
        "folder": str(tmp_path / "archive"),
        "transcript": str(tmp_path / "t.jsonl"),
        "demo": "",
        "projection": f"usage@{USAGE.version}",
    }
    places["letter"] = fill(lanebus, Path(places["transcript"]))
    places["demo"] = str(lanebus("demo", "--once", "--json").object["session"])
    priced = set[str]()
    for command, wanted in KEYS.items():
        shown = lanebus(*(word.format(**places) for word in command.split()))
        lines = objects(shown.out)
        assert lines or command in MAY_BE_EMPTY, (command, shown.err)
        for line in lines:
            assert wanted is None or [*line] == wanted.split(), command
            wrong = [key for key in keys(line) if not re.fullmatch("[a-z][a-z0-9_]*", key)]
            assert wrong == [] or command.split()[0] in FOREIGN, (command, wrong)
            found = [*costs(line)]
            assert [cost for cost in found if not is_wire_cost(cost)] == [], command
            priced |= {command for cost in found if cost is not None}
    assert priced >= {
        "sessions",
        "turns s1",
        "turns {demo} --loops",
        "usage s1",
        "usage s1 --tree",
        "tail s1",
        "demo --once --json",
    }
