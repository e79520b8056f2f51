"""Golden chats: what each version of the client gets of a run, and what it makes of it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from lanebus import Delta, Envelope
from lanebus.handlers.protocols import MessageStream, RunPlace, UiMessages
from lanebus.handlers.protocols.ai_sdk.encoder import Version
from tests.support.golden.chats import CHATS, HERE, VERSIONS, file_of, stream_of
from tests.support.node.running import run_node

Object = dict[str, JsonValue]
ALL: list[tuple[str, Version]] = [(name, version) for name in CHATS for version in VERSIONS]
KNOWN_TO_5 = {
    *("start", "finish", "abort", "error", "message-metadata", "start-step", "finish-step"),
    *("text-start", "text-delta", "text-end", "reasoning-start", "reasoning-delta", "reasoning-end"),
    *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-input-error"),
    *("tool-output-available", "tool-output-error"),
}
KNOWN: dict[Version, set[str]] = {
    5: KNOWN_TO_5,
    6: KNOWN_TO_5 | {"tool-approval-request", "tool-output-denied"},
    7: KNOWN_TO_5 | {"tool-approval-request", "tool-output-denied", "reset-step"},
}


def chunks(stream: bytes) -> list[Object]:
    """Return the chunks of a complete stream."""
    frames = stream.decode("ascii").split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


@pytest.mark.parametrize(("name", "version"), ALL)
def test_a_recorded_run_gives_the_same_stream_of_what_its_version_reads(name: str, version: Version) -> None:
    stream = stream_of(CHATS[name], version)
    assert stream == (HERE / file_of(name, version)).read_bytes()
    kinds = {str(each["type"]) for each in chunks(stream)}
    assert {kind for kind in kinds if not kind.startswith("data-")} <= KNOWN[version]
    assert {path.name for path in HERE.iterdir()} == {file_of(*each) for each in ALL}


@pytest.mark.parametrize(("name", "version"), ALL)
def test_each_part_and_step_that_began_ends(name: str, version: Version) -> None:
    opened = list[tuple[str, JsonValue]]()
    for chunk in chunks(stream_of(CHATS[name], version)):
        kind, _, edge = str(chunk["type"]).rpartition("-")
        if edge == "start" and kind in {"text", "reasoning"}:
            opened.append((kind, chunk.get("id")))
        elif edge == "end":
            opened.remove((kind, chunk.get("id")))
        elif chunk["type"] == "start-step":
            opened.append(("step", None))
        elif chunk["type"] == "finish-step":
            opened.remove(("step", None))
    assert opened == []


@pytest.mark.parametrize("version", VERSIONS)
def test_live_deltas_and_stored_entries_give_the_same_text_in_the_same_message(version: Version) -> None:
    live = CHATS["live"]
    stored = live._replace(log=[entry for entry in live.log if not isinstance(entry.message, Delta)])
    assert message_id(chunks(stream_of(live, version))) == message_id(chunks(stream_of(stored, version)))
    ours, theirs = (shown(chunks(stream_of(each, version))) for each in (live, stored))
    if version < 7:  # what was taken back stays
        assert ours == ["I was about", "Well, well \u2028 \U0001f600.", "I look.", "All is well.", "Not all is well."]
    assert theirs == ["Well, well \u2028 \U0001f600.", "I look.", "Not all is well."]
    assert version < 7 or ours == theirs


def message_id(said: Sequence[Object]) -> JsonValue:
    return next(each["messageId"] for each in said if each["type"] == "start")


def shown(said: Sequence[Object]) -> list[str]:
    """Return the texts of a message's parts, as a client shows them."""
    done, step = list[str](), dict[JsonValue, str]()
    for each in said:
        match each["type"]:
            case "text-delta" | "reasoning-delta":
                step[each["id"]] = step.get(each["id"], "") + str(each["delta"])
            case "reset-step":
                step.clear()
            case "start-step":
                done, step = [*done, *step.values()], {}
            case _:
                pass
    return [*done, *step.values()]


def test_snapshots_for_a_client_that_joins_late_repeat_no_text() -> None:
    live = CHATS["live"]
    at = next(at for at, entry in enumerate(live.log) if getattr(entry.message, "delta", "") == "Well, ")
    late: list[Envelope] = [entry for entry in live.log[:at] if not isinstance(entry.message, Delta)]
    for entry in live.log[at : at + 2]:
        assert isinstance(entry.message, Delta)
    texts = [cast("Delta", entry.message) for entry in live.log[at : at + 2]]
    both = texts[0].model_copy(update={"delta": "".join(each.delta for each in texts), "is_snapshot": True})
    snapshot = live.log[at + 1]._replace(message=both)
    joined = live._replace(log=[*late, snapshot, snapshot, *live.log[at + 2 :]])
    assert shown(chunks(stream_of(joined, 7))) == ["Well, well \u2028 \U0001f600.", "I look.", "Not all is well."]


def test_a_stream_that_cannot_go_on_ends_with_an_error() -> None:
    stream = MessageStream(RunPlace(1, None), 1)
    assert chunks(stream.fail("Why.")) == [{"type": "error", "errorText": "Why."}]
    assert stream.is_done
    assert b"".join(map(stream.add, CHATS["tools"].log)) == b""


async def test_each_version_of_the_client_reads_its_golden_chats(referees: Path) -> None:
    asked = [[version, str(HERE / file_of(name, version))] for name, version in ALL]
    found = json.loads(await run_node(referees, Path(__file__).parent / "read.mjs", json.dumps(asked)))
    for (name, version), each in zip(ALL, found, strict=True):
        assert each["errors"] == [], (name, version)
        said = chunks(stream_of(CHATS[name], version))
        message = each["message"]
        assert message["id"] == message_id(said)
        parts = [part for part in message["parts"] if part["type"] in {"text", "reasoning"}]
        assert [part["text"] for part in parts] == shown(said), (name, version)
        assert {part["state"] for part in parts} <= {"done"}
        calls = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
        open_states = {"input-available"} if version == 5 else {"approval-requested"}
        assert {state for part in calls if not re.match("output-", state := part["state"])} == (
            open_states if name == "approval" else set()
        ), (name, version)


def _loaded(version: Version, *, messages: int = 500, size: int = 1_000_000) -> UiMessages:
    return UiMessages(version, until=None, messages=messages, size=size)


def test_loaded_messages_leave_out_the_oldest_beyond_a_bound() -> None:
    log = CHATS["tools"].log
    texts = list[str]()
    for size in (1_000_000, 2_000, 1):
        loaded = _loaded(6, size=size)
        for entry in log:
            loaded.add(entry)
        texts.append(json.dumps(loaded.messages()))
    assert len(texts[0]) > len(texts[1]) > len(texts[2])
    assert json.loads(texts[1])[-1]["parts"][-1] == json.loads(texts[0])[-1]["parts"][-1]
    few = _loaded(6, messages=1)
    for entry in log:
        few.add(entry)
    assert len(few.messages()) == 1


async def test_loaded_messages_are_those_that_the_client_makes_of_the_stream(referees: Path, tmp_path: Path) -> None:
    asked = list[tuple[Version, Path]]()
    ours = list[list[JsonValue]]()
    for name, version in ALL:
        chat = CHATS[name]
        if name == "approval_continued":
            continue  # its stream begins in the middle
        stream, loaded = MessageStream(RunPlace(1, chat.loop_id), chat.until, version), _loaded(version)
        asked.append((version, tmp_path / f"{name}-{version}.sse"))
        with asked[-1][1].open("wb") as file:
            for entry in chat.log:
                if not isinstance(entry.message, Delta) and not stream.is_done:
                    file.write(stream.add(entry))
                    loaded.add(entry)
        ours.append(loaded.messages())
    listed = json.dumps([[version, str(path)] for version, path in asked])
    found = json.loads(await run_node(referees, Path(__file__).parent / "read.mjs", listed))
    for (_, path), each, messages in zip(asked, found, ours, strict=True):
        assert [message["role"] for message in cast("list[Object]", messages)][:2] == ["user", "assistant"], path.name
        assert messages[1] == each["message"], path.name
