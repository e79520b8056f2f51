"""A model's request depends on the LLM lane alone: no extension message changes a byte of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import Bounds, Bus, Envelope, ExtensionMessage
from lanebus.bus.messages import (
    Abort,
    AgentEvent,
    Approve,
    BranchSummary,
    Compact,
    Compaction,
    Control,
    ControlAnswered,
    Deny,
    Handoff,
    Label,
    LeafMove,
    LlmLaneMessage,
    Pause,
    Prune,
    Resume,
    Steer,
    TurnId,
)
from lanebus.context import Context, build_context
from lanebus.handlers.providers import PROVIDERS
from lanebus.messages import Publishable
from tests.support.laws.held import held_loop
from tests.support.laws.tiny import is_tiny, shrink
from tests.support.messages.lane_logs import lane_logs
from tests.support.paths import ROOT
from tests.support.servers.real import RealServer
from tests.support.suite.scale import count, examples

HISTORIES = 500
"""number of histories at scale 1"""

NOWHERE = 10_000
"""a position that no history has"""

CANARY = "canary-e51b"
"""part of every extension message"""

_DATA: list[JsonValue] = [
    CANARY,
    {"text": CANARY, "percent": 40},
    {"role": "user", "content": [{"type": "text", "text": CANARY}]},
    {"role": "assistant", "content": [{"type": "toolCall", "id": "a", "name": CANARY, "arguments": {}}]},
    {"role": "tool", "toolCallId": "a", "content": [{"type": "text", "text": CANARY}]},
    {"kind": "leafMove", "to": 1, "why": CANARY},
    {"kind": "compaction", "summary": CANARY, "firstKept": 1},
    {"type": "turn.ended", "turnId": "s.main.1#0", "usage": {"input": 1}, "canary": CANARY},
    [[CANARY], [CANARY]],
]
_KINDS: list[str] = ["progress", "custom", "user", "assistant", "system", "tool", "leafMove", "compaction"]
_MORE_KINDS = ["import.pi", "", "session.closed", "control.abort", "turn.ended"]
_TURN = TurnId(loop_id="s.main.1", turn_index=0)
_texts = st.text(max_size=8).map(lambda text: f"{text}{CANARY}")


def _all_commands(text: str) -> list[Control | AgentEvent]:
    return [
        Abort(by=text, reason=text),
        Steer(by=text, position=1),
        Approve(by=text, turn_id=_TURN, tool_call_id="a"),
        Deny(by=text, turn_id=_TURN, tool_call_id="a", reason=text),
        Pause(by=text, reason=text),
        Handoff(by=text, to=text, reason=text),
        Resume(by=text),
        Compact(by=text),
        ControlAnswered(control=1, outcome="refused", reason=text),
    ]


def _command(text: str, which: int) -> ExtensionMessage:
    return _all_commands(text)[which].as_extension()


_commands = st.builds(_command, _texts, st.integers(0, 8))
_extensions = st.lists(
    st.one_of(
        st.builds(ExtensionMessage, kind=st.sampled_from(_KINDS + _MORE_KINDS), data=st.sampled_from(_DATA)), _commands
    ),
    max_size=4,
)


@dataclass(frozen=True)
class _History:
    """A session's log: the LLM lane, and the extension messages before each of its entries and at the end."""

    said: Sequence[LlmLaneMessage]
    told: Sequence[Sequence[ExtensionMessage]]

    def messages(self, places: Mapping[int, int]) -> Iterator[Publishable]:
        """Return both lanes in order, with all references to positions adjusted to this log."""
        for message, told in zip(self.said, self.told, strict=False):
            yield from told
            yield _moved(message, places)
        yield from self.told[-1]

    def positions(self) -> list[int]:
        """Return the positions of the LLM lane's entries."""
        position, found = 0, list[int]()
        for told in self.told[:-1]:
            position += len(told) + 1
            found.append(position)
        return found


def _moved(message: LlmLaneMessage, places: Mapping[int, int]) -> LlmLaneMessage:
    def at(position: int | None) -> int | None:
        return None if position is None else places.get(position, NOWHERE)

    match message:
        case LeafMove(to=to):
            return message.model_copy(update={"to": at(to)})
        case Compaction(first_kept=first):
            return message.model_copy(update={"first_kept": at(first)})
        case BranchSummary(branch=last):
            return message.model_copy(update={"branch": at(last)})
        case Label(target=target):
            return message.model_copy(update={"target": places.get(target, NOWHERE)})
        case Prune(pruned=pruned):
            return message.model_copy(update={"pruned": tuple(places.get(position, NOWHERE) for position in pruned)})
        case _:
            return message


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[int], list[_History]]:
    """Draw a history with, without and with other extension messages; also the positions it was written for."""
    entries: list[Envelope] = draw(lane_logs())
    said = [entry.message for entry in entries if isinstance(entry.message, LlmLaneMessage)]
    count = len(said) + 1
    one = draw(st.lists(_extensions, min_size=count, max_size=count))
    other = draw(st.lists(_extensions, min_size=count, max_size=count))
    none: list[list[ExtensionMessage]] = [[] for _ in range(count)]
    return [entry.position for entry in entries], [_History(said, told) for told in (one, none, other)]


def _requests(context: Context) -> dict[str, bytes]:
    """Return the request for each provider."""
    return {
        f"{name} {thinking}": json.dumps(
            provider.to_request(context, model="m", foreign_thinking=thinking).body
        ).encode()
        for name, provider in PROVIDERS.items()
        for thinking in ("drop", "text")
    }


async def _sent(bus: Bus, name: str, history: _History, written_for: Sequence[int]) -> dict[str, bytes]:
    places = dict(zip(written_for, history.positions(), strict=True))
    session = bus.session(name)
    if messages := list(history.messages(places)):
        await session.publish(*messages)
    return _requests(replace(await build_context(session), session="s"))


def test_extension_messages_change_no_byte_of_what_a_model_is_sent(valkey: RealServer) -> None:
    drawn_count = spoke = 0
    with held_loop() as held:
        shrink(valkey)
        buses = [held.open(lambda: valkey.bus(bounds=Bounds())), held.open(valkey.bus)]

        @examples(HISTORIES)
        @given(_histories())
        def check(drawn: tuple[list[int], list[_History]]) -> None:
            nonlocal drawn_count, spoke
            drawn_count += 1
            written_for, histories = drawn
            sent = [
                held.run(_sent(buses[is_tiny(drawn_count)], f"h{drawn_count}-{variant}", history, written_for))
                for variant, history in enumerate(histories)
            ]
            assert sent[0] == sent[1] == sent[2]
            assert not any(CANARY.encode() in body for body in sent[0].values())
            spoke += any(told for told in histories[0].told)

        check()
    assert drawn_count >= count(HISTORIES)
    assert spoke >= drawn_count // 2  # most histories had extension messages to leave out


# --- the same, as types -------------------------------------------------------------------------------------------

_HEADER = """
from lanebus import AssistantMessage, ExtensionMessage, LlmMessage, UserMessage
from lanebus.media import resolve_media
from lanebus.bus.messages.message import CompactedSection, TurnRange
from lanebus.bus.messages.json_reader import LlmLaneMessage
from lanebus.context import BY_BYTES, Context
from lanebus.handlers.context.persistent_list import PersistentList
from lanebus.handlers.context.fold import Pairing
from lanebus.providers import to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from lanebus.handlers.providers.request import Target

extension = ExtensionMessage.of("progress")
user, assistant, context = UserMessage.text("a"), AssistantMessage(), Context("s")
"""

_TAKES = {
    "said: LlmMessage = {}": "user",
    "in_lane: LlmLaneMessage = {}": "user",
    "as_llm: LlmMessage = {}.as_llm()": "user",
    "Pairing().joined_by({})": "user",
    "PersistentList[LlmMessage]().appended({})": "user",
    "BY_BYTES.message({})": "user",
    "CompactedSection(range=TurnRange(start_turn=0, end_turn=1), messages=({},))": "user",
    "resolve_media([{}], None).close()": "user",
    "Target(provider='p', model='m').wrote({})": "assistant",
    "to_anthropic({})": "context",
    "to_openai_chat({})": "context",
    "to_openai_responses({})": "context",
    "to_gemini({})": "context",
}
"""function that leads to a request → the type that it takes"""


def _complaints(folder: Path, *programs: str) -> list[set[int]]:
    """Return the lines of each program that mypy complains about. One run checks all, so that imports are read once."""
    paths = [folder / f"program{number}.py" for number in range(len(programs))]
    for path, program in zip(paths, programs, strict=True):
        path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-incremental", *map(str, paths)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode in {0, 1}, run.stderr
    lines = [line.split(":", 3) for line in run.stdout.splitlines() if ": error:" in line]
    assert {name for name, *_ in lines} <= set(map(str, paths)), run.stdout
    return [{int(number) for name, number, *_ in lines if name == str(path)} for path in paths]


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("mypy") is None and os.environ.get("CI") != "true", reason="needs mypy: pip install 'lanebus[check]'"
)
def test_an_extension_message_does_not_type_check_where_a_model_is_spoken_to(tmp_path: Path) -> None:
    good = _HEADER + "\n".join(take.format(value) for take, value in _TAKES.items()) + "\n"
    bad = _HEADER + "\n".join(take.format("extension") for take in _TAKES) + "\n"
    first = _HEADER.count("\n") + 1
    assert _complaints(tmp_path, good, bad) == [set(), set(range(first, first + len(_TAKES)))]
