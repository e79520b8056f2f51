"""Lines of the log: events with their fields, and nothing that quotes a message."""

import json
import logging
import subprocess
import sys
from dataclasses import fields

import pytest

from docs.site.tables import fill_in
from lanebus.bus.errors import LoginRefused, Refused, Unavailable
from lanebus.errors import DecodeError, SessionClosed
from lanebus.handlers.agent import LogContext, ServerHealth, write_event
from lanebus.handlers.agent.health import (
    COMMON_FIELDS,
    EVENTS,
    FIELD_MEANINGS,
    LogEvent,
    ServerLost,
    WorkRetried,
    within,
)
from lanebus.handlers.cli.log_options import JsonLines, TerminalLines
from tests.support.cli.command_line import CommandLine
from tests.support.paths import ROOT

SECRET = "the-text-of-a-message"


def record(text: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    found = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("lanebus.x", logging.WARNING, "x.py", 1, text, arguments, found)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


def test_the_reference_has_every_event_with_its_fields() -> None:
    page = fill_in((ROOT / "docs/reference/logs.md").read_text())
    for event in EVENTS:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{event.NAME}` |")]
        assert event.meaning() in line
        assert all(f"`{name}`" in line for name in event.field_names())
    assert all(f"| `{name}` | {text} |" in page for name, text in FIELD_MEANINGS.items())


def test_every_event_is_listed_once_and_no_field_hides_one_of_the_record_or_of_all_events() -> None:
    # By name: a class with slots replaces another one, which is there until it is collected.
    assert {each.__name__ for each in LogEvent.__subclasses__()} == {each.__name__ for each in EVENTS}
    assert len({event.NAME for event in EVENTS}) == len(EVENTS)
    names = [name for event in EVENTS for name in event.field_names()]
    assert {*names} == FIELD_MEANINGS.keys()
    assert {*names}.isdisjoint({*vars(record("")), "message", "asctime", "event", *COMMON_FIELDS})
    assert tuple(each.name for each in fields(LogContext)) == COMMON_FIELDS


def test_a_line_of_json_has_the_fields_of_the_event_and_of_the_task(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("lanebus.test")
    with within(LogContext(session="s", worker="w1")) as context, caplog.at_level(logging.INFO):
        context.turn = "s.main.1#0"
        write_event(logger, WorkRetried(attempt=2, seconds=0.5, error="ValueError"))
    line = json.loads(JsonLines().format(caplog.records[0]))
    assert line.pop("time").endswith("Z")
    assert line == {
        **{"level": "warning", "logger": "lanebus.test", "event": "work.retried", "session": "s", "agent": ""},
        **{"turn": "s.main.1#0", "worker": "w1", "trace_id": "", "attempt": 2, "seconds": 0.5, "error": "ValueError"},
    }
    assert caplog.records[0].funcName == "test_a_line_of_json_has_the_fields_of_the_event_and_of_the_task"
    fields = "session=s turn=s.main.1#0 worker=w1 attempt=2 seconds=0.5 error=ValueError"
    assert TerminalLines().format(caplog.records[0]).endswith(f"WARNING work.retried {fields}")


def test_other_lines_have_a_message_and_the_fields_of_the_task() -> None:
    with within(LogContext(session="s", worker="w1")):
        line = json.loads(JsonLines().format(record("the MCP server %s broke\nbadly", "x")))
        text = TerminalLines().format(record("it broke\x1b[2J\nbadly"))
    assert (line["message"], line["session"], line["worker"]) == ("the MCP server x broke badly", "s", "w1")
    assert text.endswith("WARNING it broke\\x1b[2J badly session=s worker=w1")


@pytest.mark.parametrize("lines", [JsonLines(), TerminalLines()], ids=["json", "text"])
def test_errors_are_shown_without_their_text_unless_it_is_made_of_ids(lines: logging.Formatter) -> None:
    error = raised(ValueError(SECRET))
    error.__cause__ = raised(KeyError(SECRET))
    for shown in (
        record("it failed", error=error),
        record("it failed: %s", error),
        record("%s", DecodeError("x", SECRET)),
    ):
        text = lines.format(shown)
        assert SECRET not in text
        assert type(error).__name__ in text or "DecodeError" in text
    assert "test_logs.py" in lines.format(record("it failed", error=error))
    closed = SessionClosed("session-1")
    assert str(closed) in lines.format(record("it failed: %s", closed)).replace("\\u", "")


async def test_an_outage_is_logged_once_for_each_kind_of_fault_and_its_end_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[int] = []
    health = ServerHealth(found=lambda: found.append(1))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            health.note("heartbeat", Unavailable("no answer"))
            health.note("leases", TimeoutError())
        assert health.reason == "the server is unreachable: no answer to heartbeat"
        health.note("heartbeat", Refused("NOPERM"))
        assert health.reason == "the server refuses heartbeat: NOPERM"
        health.note("heartbeat", Refused("NOPERM", "hset"))
        assert health.reason == "the server refuses heartbeat: NOPERM for the command 'hset'"
        health.note("heartbeat", LoginRefused())
        assert health.reason == "the server refuses the user or password: WRONGPASS"
        health.note("leases", None)
        assert (health.reason is not None, found) == (True, [])
        health.note("heartbeat", None)
        health.note("heartbeat", None)
        assert health.reason is None
        assert found == [1]
        health.note("heartbeat", Unavailable("again"))
    found_events = [vars(each) for each in caplog.records if "event" in vars(each)]
    lost = ["unreachable", "NOPERM", "NOPERM", "WRONGPASS", None, "unreachable"]
    assert [each.get("error") for each in found_events] == lost
    assert [each["event"] for each in found_events] == [f"server.{'lost' if error else 'found'}" for error in lost]


def test_an_event_below_the_level_of_its_logger_costs_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, logger="lanebus.quiet"):
        write_event(logging.getLogger("lanebus.quiet"), ServerLost(what="ping", error="unreachable", command=""))
    assert caplog.records == []


@pytest.mark.full
def test_importing_lanebus_configures_no_logging() -> None:
    code = (
        "import logging, lanebus, lanebus.agent, lanebus.handlers.serve.server, lanebus.handlers.cli.commands.worker\n"
        "names = [each for each in logging.Logger.manager.loggerDict if each.startswith('lanebus')]\n"
        "print([each for each in (None, *names) if logging.getLogger(each).handlers])\n"
        "print(logging.getLogger('lanebus').level)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "0"]


@pytest.mark.full
def test_a_wrong_address_of_the_monitor_and_a_wrong_form_of_lines_are_named(lanebus: CommandLine) -> None:
    for address in ("9464", "localhost:", "localhost:70000", ":9464"):
        answer = lanebus("serve", "--monitor", address)
        assert (answer.code, "write HOST:PORT" in answer.err) == (2, True)
    answer = lanebus("worker", "tests.support.agent.api_agent:agent", "--log-format", "loud")
    assert (answer.code, "'auto', 'text', 'json'" in answer.err) == (2, True)
