"""`lanebus show`, and the folded rows of `lanebus tail`: what people read of a session."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.support.cli.command_line import CommandLine, objects

TURN: JsonValue = {"loopId": "s.main.1", "turnIndex": 0}
LONG = "x = 1\n" * 40


def event(kind: str, **data: JsonValue) -> JsonValue:
    return {"role": "extension", "kind": f"agent.{kind}", "data": data}


def talk(call: str = "c1", *more: JsonValue, loop: str = "s.main.1") -> str:
    """Return a session with a call of a tool that has run and a call that waits, as lines of JSON."""
    turn: JsonValue = {"loopId": loop, "turnIndex": 0}
    about: dict[str, JsonValue] = {"turnId": turn, "toolCallId": call, "toolName": "write"}
    entries: list[JsonValue] = [
        {"role": "user", "content": "Please write \u202ethe file.\x1b[31m"},
        event("started", loopId=loop, agent="a"),
        event("turn.started", turnId=turn, prompts=[1]),
        {
            "role": "assistant",
            "model": "m-1",
            "content": [
                {"type": "thinking", "thinking": "secret thought"},
                {"type": "text", "text": "Two steps:\n```\ncode " + "long " * 40 + "\n```\nthen " + "words " * 40},
                {"type": "toolCall", "id": "c0", "name": "read", "arguments": {"path": "notes/a b", "text": LONG}},
                {"type": "toolCall", "id": call, "name": "write", "arguments": {}},
            ],
            "stopReason": "toolUse",
        },
        event("tool.started", turnId=turn, toolCallId="c0", toolName="read"),
        {"role": "toolResult", "toolCallId": "c0", "toolName": "read", "content": LONG, "isError": True},
        event("tool.ended", turnId=turn, toolCallId="c0", toolName="read", isError=True, outcome="failed", position=6),
        event("tool.waiting", **about),
        *more,
    ]
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


def test_a_conversation_is_shown_as_wrapped_text_with_whole_code_and_escapes(lanebus: CommandLine) -> None:
    refused = lanebus("show", "s")
    assert (refused.code, refused.out, "'s'" in refused.err) == (3, "", True)
    assert lanebus("publish", "s", "--json", stdin=talk()).code == 0
    shown = lanebus("show", "s", env={"COLUMNS": "60"})
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert "  Please write \\u202ethe file.\\x1b[31m" in lines
    assert [line.rstrip() for line in lines if "code long" in line] == ["  code " + "long " * 39 + "long"]
    words = [line for line in lines if "words words" in line]
    assert (len(words) > 3, max(map(len, words)) <= 60) == (True, True)
    assert any(re.fullmatch(r"Assistant \(m-1\) +#4  \d\d:\d\d:\d\d", line) for line in lines)
    assert any(re.fullmatch(r"  ← read failed +#6  \d\.\d s", line) for line in lines)
    at = lines.index("write waits for a person:")
    assert lines[at + 1 : at + 3] == [f"  lanebus control s {answer} main.1#0 c1" for answer in ("approve", "deny")]
    short, full = lanebus("show", "s").out, lanebus("show", "s", "--full").out
    assert ("secret thought" in short, "secret thought" in full) == (False, True)
    assert (short.count("x = 1"), full.count("x = 1")) == (10 + 12, 80)
    assert ("more lines; --full shows them" in short, "--full" in full) == (True, False)


def test_a_call_that_was_decided_waits_for_a_worker_and_takes_no_second_decision(lanebus: CommandLine) -> None:
    lanebus("publish", "s", "--json", stdin=talk())
    assert lanebus("control", "s", "approve", "main.1#0", "c1", "--by", "ann").code == 0
    lines = lanebus("show", "s").out.splitlines()
    assert lines[-1] == "write was approved by ann, and waits for a worker"
    refused = lanebus("control", "s", "deny", "main.1#0", "c1")
    assert (refused.code, refused.out) == (4, "")
    assert "'c1' was already approved by ann" in refused.err
    assert lanebus("sessions", "--waiting").out == ""


@pytest.mark.parametrize(
    ("call", "loop"),
    [
        ("c1", "s.main.1"),
        ("-x", "s.main.1"),
        ("a b'$(touch ran)", "s.main.1"),
        ("c1\x1b[5A\x1b[2K; touch ran\n\u202e\x9b'", "s.main.1"),
        ("c1", "s.x; touch ran\x1b.1"),
    ],
    ids=["plain", "option", "shell", "terminal", "loop"],
)
def test_the_printed_command_answers_the_call(lanebus: CommandLine, tmp_path: Path, call: str, loop: str) -> None:
    lanebus("publish", "s", "--json", stdin=talk(call, loop=loop))
    printed = lanebus("show", "s").out.splitlines()[-2].strip()
    code = f"lanebus() {{ printf '%s\\0' \"$@\"; }}; {printed}"
    read = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True
    )
    assert [*tmp_path.iterdir()] == []
    assert lanebus(*read.stdout.decode().split("\0")[:-1]).code == 0
    answer = objects(lanebus("tail", "s", "--kind", "control.approve").out)[0]["message"]
    assert isinstance(answer, dict)
    assert isinstance(data := answer["data"], dict)
    assert (data["toolCallId"], data["turnId"]) == (call, {"loopId": loop, "turnIndex": 0})


def test_a_table_has_one_row_for_the_events_of_a_turn(lanebus: CommandLine) -> None:
    spent: JsonValue = {"input": 5, "output": 7, "total_tokens": 12}
    ended = event("turn.ended", turnId=TURN, stopReason="toolUse", usage=spent, message=4)
    lanebus("publish", "s", "--json", stdin=talk("c1", ended))
    rows = lanebus("tail", "s", "--table", env={"COLUMNS": "90"}).out.splitlines()
    assert [row.split()[0] for row in rows] == ["1", "4", "6", "8", "9"]
    assert rows[-1].endswith("12 tokens")
    assert "main.1#0: 1 tool, " in rows[-1]
    # Longer than the window: a command that is cut cannot be copied.
    assert rows[-2].endswith("write waits for a person: lanebus control s approve main.1#0 c1")
    for words in (("--all",), ("--lane", "extension"), ("--kind", "agent.*")):
        unfolded = lanebus("tail", "s", "--table", *words).out
        assert (words, "agent.turn.started" in unfolded) == (words, True)
    assert len(objects(lanebus("tail", "s").out)) == 9


@pytest.mark.parametrize("attempt", [2, None], ids=["numbered", "of an earlier version"])
def test_a_repeated_tool_call_is_one_tool_in_several_attempts(lanebus: CommandLine, attempt: int | None) -> None:
    again = event("tool.started", turnId=TURN, toolCallId="c0", toolName="read", attempt=attempt)
    other = event("tool.started", turnId=TURN, toolCallId="c1", toolName="write")
    ended = event("turn.ended", turnId=TURN, stopReason="toolUse", usage={"total_tokens": 12}, message=4)
    lanebus("publish", "one", "--json", stdin=talk("c1", again, ended))
    lanebus("publish", "two", "--json", stdin=talk("c1", again, other, ended))
    rows = [lanebus("tail", each, "--table").out.splitlines()[-1] for each in ("one", "two")]
    assert ": 1 tool in 2 attempts, " in rows[0]
    assert ": 2 tools in 3 attempts, " in rows[1]
    assert "read failed (2 attempts), write" in lanebus("turns", "two", "--table", env={"COLUMNS": "200"}).out
    turn, _ = objects(lanebus("turns", "two").out)  # the answer of `talk` names no turn, so it has its own
    assert isinstance(tools := turn["tools"], list)
    assert [each["attempts"] for each in tools if isinstance(each, dict)] == [2, 1]


def test_what_a_framework_stores_is_in_neither_the_conversation_nor_the_folded_table(lanebus: CommandLine) -> None:
    kinds = ("store.langgraph.checkpoint", "store", "note")
    stored = "".join(f'{{"role":"extension","kind":"{kind}","data":"secret"}}\n' for kind in kinds)
    assert lanebus("publish", "s", "--json", stdin=f'{{"role":"user","content":"a"}}\n{stored}').code == 0
    assert "secret" not in lanebus("show", "s").out
    positions = {
        words: [row.split()[0] for row in lanebus("tail", "s", "--table", *words).out.splitlines()]
        for words in ((), ("--all",), ("--lane", "extension"), ("--kind", "store.*"))
    }
    assert positions == {
        (): ["1", "3", "4"],
        ("--all",): ["1", "2", "3", "4"],
        ("--lane", "extension"): ["3", "4"],  # a store may hold content of the LLM lane
        ("--kind", "store.*"): ["2"],
    }
    assert len(objects(lanebus("tail", "s").out)) == 4


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("failed", "failed"), ("skipped", "skipped"), ("unknown", "with unknown outcome"), ("timedOut", "timed out")],
)
def test_a_stopped_call_has_one_name_everywhere(module_lanebus: CommandLine, outcome: str, words: str) -> None:
    about: dict[str, JsonValue] = {"turnId": TURN, "toolCallId": "c0", "toolName": "slow"}
    call: JsonValue = {"type": "toolCall", "id": "c0", "name": "slow", "arguments": {}}
    entries: list[JsonValue] = [
        {"role": "user", "content": "Wait."},
        event("turn.started", turnId=TURN, prompts=[1]),
        {"role": "assistant", "content": [call], "turnId": TURN},
        {"role": "toolResult", **about, "content": "It was stopped.", "isError": True},
        event("tool.ended", **about, isError=True, outcome=outcome, position=4),
    ]
    lines = [json.dumps(entry) for entry in entries]
    assert module_lanebus("publish", outcome, "--json", stdin="\n".join(lines)).code == 0
    wide = {"COLUMNS": "160"}
    shown = [line for line in module_lanebus("show", outcome, env=wide).out.splitlines() if line.startswith("  ← slow")]
    assert [re.sub(r" +#4.*", "", line) for line in shown] == [f"  ← slow {words}"]
    assert f"slow {words}" in module_lanebus("turns", outcome, "--table", env=wide).out
    tail = module_lanebus("tail", outcome, "--table", env=wide).out
    assert "slow (error): It was stopped." in tail
    assert (f"slow {words}" in tail) is (outcome != "failed")
    cut = f"{outcome}-cut"  # the last entry is shown even if it is an error
    assert module_lanebus("publish", cut, "--json", stdin=lines[3]).code == 0
    assert "← slow failed" in module_lanebus("show", cut).out
