"""Each kind of line in the session files of pi and of seed 000, and what it becomes."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from pydantic import JsonValue

from lanebus import Bus
from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError, UnknownRole
from lanebus.context import build_context
from lanebus.handlers.formats import PI, Moved, UnknownFormat, Unplaced, import_transcript
from lanebus.handlers.formats.coding_agent.transcript import CODING_AGENT_FORMAT
from lanebus.handlers.formats.importer import ListedTranscript
from lanebus.handlers.formats.pi import pi
from lanebus.handlers.formats.transcript import Format
from tests.support.formats.kit import GONE, Faults, spoilt
from tests.support.log.entries import texts
from tests.support.transcripts.transcript_files import Object, file_of

SECONDS, TIME, MILLISECONDS = 1765241609.825, "2025-12-09T00:53:29.825Z", 1_765_241_609_825
FORMATS: dict[str, Format] = {"pi": PI, "000": CODING_AGENT_FORMAT}
every_format = pytest.mark.parametrize("name", FORMATS)


class Line(NamedTuple):
    """A line of either format by the names that pi has for its fields."""

    kind: str
    fields: Object

    def of(self, name: str) -> Object:
        """Return the line as the format has it."""
        if name == "pi":
            return {"type": self.kind, "timestamp": TIME, "id": "b", "parentId": "a", **self.fields}
        named = {SNAKE.get(key, key): item for key, item in self.fields.items()}
        return {"type": self.kind, "timestamp": SECONDS, "id": "b", "parent_id": "a", **named}


SNAKE = {
    **{"modelId": "model_id", "provider": "provider_id", "thinkingLevel": "thinking_level", "targetId": "target_id"},
    **{"firstKeptEntryId": "first_kept_entry_id", "tokensBefore": "tokens_before", "fromId": "from_id"},
    **{"customType": "custom_type", "parentId": "parent_id"},
}


def line(kind: str, **fields: JsonValue) -> Line:
    return Line(kind, fields)


def said(role: str, **fields: JsonValue) -> Object:
    """A line of pi with a message."""
    message: Object = {"role": role, "timestamp": MILLISECONDS, **fields}
    return {"type": "message", "timestamp": TIME, "message": message}


def told(role: str, *contents: JsonValue, entry_id: str = "b", parent: str | None = "a") -> Object:
    """A line of seed 000 with a message."""
    message: Object = {"role": role, "contents": [*contents], "id": f"m-{entry_id}", "timestamp": SECONDS}
    return {"type": "message", "timestamp": SECONDS, "id": entry_id, "parent_id": parent, "message": message}


def text(content: str) -> Object:
    return {"type": "text", "content": content}


def result(call: str, content: str) -> Object:
    return {"type": "tool_result", "id": call, "content": content, "is_error": False, "metadata": {}}


def read(name: str, value: JsonValue, position: int | None = None) -> our.Publishable:
    message = FORMATS[name].read(value).message
    found = message.place(position) if isinstance(message, Unplaced) else message
    assert not isinstance(found, Moved)
    return found


def answer_of(value: JsonValue) -> our.AssistantMessage:
    message = read("pi", value)
    assert isinstance(message, our.AssistantMessage)
    return message


# --- both ---------------------------------------------------------------------------------------------------------

KEPT = line("compaction", summary="s", firstKeptEntryId="a", tokensBefore=7)
LABEL, BRANCH = line("label", targetId="a", label="here"), line("branch_summary", summary="s", fromId="a")
STEERING: list[tuple[Line, int | None, our.ContextEntry]] = [
    (line("model_change", provider="p", modelId="m"), None, our.ModelChange(provider="p", model="m")),
    (line("thinking_level_change", thinkingLevel="high"), None, our.ThinkingLevelChange(level="high")),
    (KEPT, 3, our.Compaction(summary="s", first_kept=3, tokens_before=7)),
    (BRANCH, 4, our.BranchSummary(summary="s", branch=4, metadata={"fromId": "a"})),
    (LABEL, 2, our.Label(target=2, label="here")),
]


@every_format
def test_the_entries_of_a_tree_steer_the_context_and_have_their_places(name: str) -> None:
    for one, position, entry in STEERING:
        stamped = entry.model_copy(update={"id": "b", "timestamp": MILLISECONDS})
        if name == "000" and entry.metadata:
            stamped = stamped.model_copy(update={"metadata": {"from_id": "a"}})
        assert read(name, one.of(name), position) == stamped
    assert read(name, LABEL.of(name)) == our.ExtensionMessage.of("import.label", LABEL.of(name))
    labelled = FORMATS[name].read(LABEL.of(name))
    assert (labelled.id, labelled.parent, labelled.is_in_tree) == ("b", "a", True)
    lost = read(name, KEPT.of(name))
    assert isinstance(lost, our.Compaction)
    assert lost.metadata == {"firstKeptEntryId" if name == "pi" else "first_kept_entry_id": "a"}
    assert lost.first_kept is None


@every_format
def test_messages_of_extensions_never_reach_a_model_and_other_lines_are_kept_whole(name: str) -> None:
    content: JsonValue = [text("x")] if name == "000" else "x"
    custom = line("custom_message", customType="note", content=content, display=True, details={"a": 1})
    lines = [custom.of(name)]
    if name == "pi":
        fields: Object = {"customType": "note", "content": "x", "display": True, "details": {"a": 1}}
        lines += [said(role, **fields) for role in ("custom", "hookMessage")]
    for value in lines:
        message = read(name, value)
        assert isinstance(message, our.ExtensionMessage)
        assert message.kind == "custom"
        data = cast("Object", message.data)
        assert data.items() >= {"customType": "note", "details": {"a": 1}}.items()
        assert data["contents"] == [{"type": "text", "text": "x"}]
    for kind in ("custom", "session_info", "channel", "from the future"):
        value = line(kind, name="n", data=[None]).of(name)
        assert read(name, value) == our.ExtensionMessage.of(f"import.{kind}", value)


COUNTED: Object = {"type": "compaction", "timestamp": TIME, "summary": "s", "firstKeptEntryIndex": 5}
FAULTS: dict[str, Faults] = {
    "pi": [
        (
            said("user", content=[{"type": "text", "text": "a"}]),
            {
                "": [[]], "type": [GONE], "message": [GONE], "message > message.role": [{}], "message.content": [5],
                "message.content.0": ["x"], "message.content.0.text": [GONE], "timestamp": ["yesterday"],
            },
        ),
        (
            said("assistant", content=[], usage={"input": 1, "cost": {"total": 1}}),
            {"message.usage.input": ["1"], "message.usage.cost.total": ["free", 1e300]},
        ),
        (said("toolResult", content=[], toolCallId="c"), {"message.toolCallId": [GONE]}),
        (said("bashExecution", command="ls", output="x"), {"message.command": [GONE]}),
        (COUNTED, {"summary": [GONE], "firstKeptEntryIndex": [1.5]}),
        (line("model_change", provider="p", modelId="m").of("pi"), {"provider": [GONE], "parentId": [7]}),
        (LABEL.of("pi"), {"targetId": [5]}),
    ],
    "000": [
        (
            told("user", text("a")),
            {
                "": [[]], "type": [GONE], "message": [GONE, []], "message > message.role": [{}],
                "message.contents.0.content": [5], "parent_id": [7],
            },
        ),
        (line("custom_message", customType="note", content=[text("a")]).of("000"), {"content.0": ["x"]}),
        (KEPT.of("000"), {"summary": [GONE], "first_kept_entry_id": [5], "tokens_before > tokensBefore": ["7"]}),
        (line("model_change", provider="p", modelId="m").of("000"), {"provider_id > provider": [GONE]}),
        (LABEL.of("000"), {"target_id": [None]}),
        (line("leaf", targetId=None).of("000"), {"target_id": [5], "timestamp": ["yesterday", 1e300]}),
    ],
}  # fmt: skip


@every_format
def test_a_line_that_does_not_fit_is_refused_with_the_place_of_the_fault(name: str) -> None:
    for value, path in spoilt(FAULTS[name]):
        with pytest.raises(DecodeError) as caught:
            FORMATS[name].read(value)
        assert caught.value.path == path, value


# --- pi -----------------------------------------------------------------------------------------------------------


def test_a_user_message_keeps_its_text_and_both_its_times() -> None:
    blocks: JsonValue = [{"type": "text", "text": "hi"}]
    for content in (blocks, "hi"):
        expected = our.UserMessage(content=(our.TextBlock(text="hi"),), timestamp=MILLISECONDS)
        assert read("pi", said("user", content=content)) == expected
    message = read("pi", said("user", content="x", timestamp=MILLISECONDS - 500))
    assert isinstance(message, our.UserMessage)
    assert (message.timestamp, message.metadata) == (MILLISECONDS - 500, {"written": MILLISECONDS})
    with pytest.raises(UnknownRole):
        read("pi", said("narrator", content="x"))


def test_an_answer_keeps_everything_that_pi_wrote() -> None:
    usage: Object = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10}
    value = said(
        "assistant",
        content=[
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
            {"type": "text", "text": "Hi", "textSignature": "msg_1"},
            {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"a": 1}, "partialJson": '{"a": 1'},
        ],
        api="anthropic-messages",
        provider="anthropic",
        model="claude",
        usage={**usage, "cost": {"input": 0.1, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.1}},
        stopReason="error",
        errorMessage="overloaded",
    )
    cost = our.Cost(input=Decimal("0.1"), total=Decimal("0.1"), source="pi-session")
    assert answer_of(value) == our.AssistantMessage(
        content=(
            our.ThinkingBlock(text="hm", signature="sig"),
            our.TextBlock(text="Hi"),
            our.ToolCallBlock(id="t1", name="bash", arguments={"a": 1}, metadata={"partialJson": '{"a": 1'}),
        ),
        provider="anthropic",
        model="claude",
        usage=our.Usage(input=1, output=2, cache_read=3, cache_write=4, total_tokens=10, cost=cost),
        stop_reason="error",
        error_message="overloaded",
        timestamp=MILLISECONDS,
        metadata={"api": "anthropic-messages", "blocks": {"1": {"textSignature": "msg_1"}}},
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[("0.017400000000000002", "0.0174"), ("0.30000000000000004", "0.3"), ("0", "0"), ("3", "3")],
        *[("1e-7", "0.0000001"), ("120", "120"), ("0.000012499999999999999", "0.0000125")],
    ],
)
def test_float_rounding_errors_are_removed_from_costs(written: str, meant: str) -> None:
    value = said("assistant", content=[], usage={"input": 1, "cost": {"total": json.loads(written)}})
    usage = answer_of(value).usage
    assert usage is not None
    assert usage.cost is not None
    assert format(usage.cost.total, "f") == meant


def test_an_unknown_cost_stop_reason_or_block_is_kept_as_it_was() -> None:
    assert answer_of(said("assistant", content=[], usage={"input": 1, "output": 2})).usage == our.Usage(
        input=1, output=2
    )
    message = answer_of(said("assistant", content=[], stopReason="sensitive"))
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "sensitive")
    strange: Object = {"type": "hologram", "data": [1]}
    redacted: Object = {"type": "thinking", "thinking": "[redacted]", "thinkingSignature": "opaque", "redacted": True}
    message = answer_of(said("assistant", content=[strange, redacted]))
    assert message.content == (our.UnknownBlock(raw=strange), our.RedactedThinkingBlock(data="opaque"))
    assert message.metadata == {"blocks": {"1": {"thinking": "[redacted]", "redacted": True}}}


def test_a_result_keeps_its_details_and_a_call_the_signature_of_its_thinking() -> None:
    image: Object = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    facts: Object = {"toolCallId": "t1", "toolName": "edit", "isError": True, "details": {"diff": "-a\n+b"}}
    message = read("pi", said("toolResult", content=[image], **facts))
    assert isinstance(message, our.ToolResultMessage)
    assert (message.tool_call_id, message.tool_name, message.is_error) == ("t1", "edit", True)
    assert message.metadata == {"details": {"diff": "-a\n+b"}}
    assert json.loads(message.to_json())["content"] == [image]
    call: JsonValue = {"type": "toolCall", "id": "t1", "name": "f", "arguments": {}, "thoughtSignature": "c2ln"}
    calling = answer_of(said("assistant", content=[call], provider="google", model="gemini", stopReason="toolUse"))
    assert calling.content == (our.ToolCallBlock(id="t1", name="f", signature="c2ln"),)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"output": "a\n", "exitCode": 0}, "Ran `ls`\n```\na\n\n```"),
        ({"output": ""}, "Ran `ls`\n(no output)"),
        ({"output": "a", "exitCode": 2}, "Ran `ls`\n```\na\n```\n\nCommand exited with code 2"),
        ({"output": "a", "exitCode": 2, "cancelled": True}, "Ran `ls`\n```\na\n```\n\n(command cancelled)"),
        (
            {"output": "a", "truncated": True, "fullOutputPath": "/log"},
            "Ran `ls`\n```\na\n```\n\n[Output truncated. Full output: /log]",
        ),
    ],
)
def test_a_users_command_is_described_as_pi_does(facts: Object, words: str) -> None:
    message = read("pi", said("bashExecution", command="ls", **facts))
    assert isinstance(message, our.UserMessage)
    assert message.text_content() == words
    kept = {key: item for key, item in facts.items() if key != "output"}
    assert message.metadata == {"bashExecution": {"command": "ls", **kept}}
    hidden = read("pi", said("bashExecution", command="ls", excludeFromContext=True, **facts))
    assert isinstance(hidden, our.ExtensionMessage)
    assert (hidden.kind, cast("Object", hidden.data)["output"]) == ("import.bashExecution", facts["output"])


def test_pis_header_is_kept_and_a_compaction_may_name_its_first_line_by_count() -> None:
    header: Object = {"type": "session", "timestamp": TIME, "id": "x", "cwd": "/"}
    assert read("pi", header) == our.ExtensionMessage.of("import.header", {"format": "pi", "header": header})
    kept = our.Compaction(summary="s", first_kept=6, timestamp=MILLISECONDS)
    assert read("pi", COUNTED, 6) == kept
    lost = kept.model_copy(update={"first_kept": None, "metadata": {"firstKeptEntryIndex": 5}})
    assert read("pi", COUNTED) == lost
    entry = PI.read(line("compaction", summary="s", firstKeptEntryId="a1", details={"x": 1}).of("pi"))
    assert isinstance(entry.message, Unplaced)
    assert (entry.message.kind, entry.message.names) == ("kept", "a1")
    made = entry.message.place(3)
    assert isinstance(made, our.Compaction)
    assert made.metadata == {"details": {"x": 1}}


def test_messages_of_pis_extensions_become_user_messages_on_request() -> None:
    fields: Object = {"customType": "note", "content": "x", "details": [1]}
    for one in (line("custom_message", **fields), line("message", message={"role": "custom", **fields})):
        entry = pi(custom_to_llm=True).read(one.of("pi"))
        message = entry.message
        assert isinstance(message, our.UserMessage)
        assert (entry.id, entry.parent, message.text_content(), message.id) == ("b", "a", "x", "b")
        custom = cast("Object", (message.metadata or {})["custom"])
        assert custom.items() >= {"customType": "note", "details": [1]}.items()
    with pytest.raises(DecodeError):
        pi(custom_to_llm=True).read(line("custom_message", customType="note", content=5).of("pi"))


def test_every_line_of_a_real_session_is_understood(seed_data: Path) -> None:
    kinds: Counter[str] = Counter()
    with (seed_data / "data" / "pi-session.jsonl").open("rb") as file:
        kinds.update(type(read("pi", our.parse_json(data), 1)).__name__ for data in file)
    assert kinds == {
        **{"ExtensionMessage": 1, "AssistantMessage": 484, "ToolResultMessage": 448, "UserMessage": 55 + 3},
        **{"ModelChange": 5, "ThinkingLevelChange": 5, "Compaction": 2},
    }


# --- seed 000 -----------------------------------------------------------------------------------------------------

HEADER: Object = {
    "type": "session",
    "version": 3,
    "id": "x",
    "timestamp": SECONDS,
    "cwd": "/home",
    "parent_session": None,
}


def test_a_message_keeps_its_own_id_and_its_entrys_a_tools_metadata_and_the_exact_time() -> None:
    entry = CODING_AGENT_FORMAT.read({**told("user", text("hi")), "meta": {"reply_to": "9"}})
    assert entry.message == our.UserMessage(
        content=(our.TextBlock(text="hi"),),
        id="m-b",
        timestamp=MILLISECONDS,
        metadata={"entry": {"id": "b", "timestamp": SECONDS, "meta": {"reply_to": "9"}}},
    )
    assert (entry.id, entry.parent, entry.is_in_tree, entry.also) == ("b", "a", True, ())
    full: Object = {**result("c", "x"), "terminate": False, "metadata": {"entry": 5}}
    message = read("000", told("tool", full))
    assert isinstance(message, our.ToolResultMessage)
    assert message.metadata == {"entry": 5, "entry_": {"id": "b", "timestamp": SECONDS}}
    change: Object = {**line("model_change", provider="p", modelId="m").of("000"), "timestamp": 1.0000005}
    exact = our.ModelChange(provider="p", model="m", id="b", timestamp=1000, metadata={"timestamp": 1.0000005})
    assert read("000", change) == exact
    hooked = read("000", Line("compaction", {**KEPT.fields, "from_hook": True}).of("000"), 3)
    assert isinstance(hooked, our.Compaction)
    assert hooked.metadata == {"from_hook": True}


def test_a_leaf_is_a_move_to_its_place_and_a_batch_of_results_is_several_messages() -> None:
    leaf = line("leaf", targetId="a").of("000")
    for position, to in ((2, 2), (0, None)):
        assert read("000", leaf, position) == our.LeafMove(to=to, id="b", timestamp=MILLISECONDS)
    assert read("000", leaf) == our.ExtensionMessage.of("import.leaf", leaf)
    entry = CODING_AGENT_FORMAT.read(told("tool", result("1", "a"), result("2", "b")))
    batch = [each for each in (entry.message, *entry.also) if isinstance(each, our.ToolResultMessage)]
    assert [message.tool_call_id for message in batch] == ["1", "2"]
    assert len({message.batch_id for message in batch}) == 1


async def test_a_session_goes_in_as_the_tree_that_it_is(tmp_path: Path) -> None:
    lines = (
        HEADER,  # 1
        told("user", text("q"), entry_id="a", parent=None),  # 2
        told("assistant", {"type": "tool_call", "id": "1", "name": "x"}, {"type": "tool_call", "id": "2", "name": "y"}),
        told("tool", result("1", "r1"), result("2", "r2"), entry_id="c", parent="b"),  # 4, 5
        told("assistant", text("done"), entry_id="d", parent="c"),  # 6
        {**line("leaf", targetId="a", parentId="d").of("000"), "id": "e"},  # 7
        told("user", text("again"), entry_id="f", parent="a"),  # 8
        {
            **line("compaction", summary="S", firstKeptEntryId="c", tokensBefore=1, parentId="c").of("000"),
            "id": "g",
        },  # 9 moves, 10
        b"not json",
        {**line("leaf", targetId="f", parentId="g").of("000"), "id": "h"},  # 11
    )
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        report = await import_transcript(session, file_of(*lines))
        assert (report.format, [bad.number for bad in report.bad]) == ("000", [9])
        assert (await import_transcript(session, file_of(*lines))).added == 0
        log = [envelope.message async for envelope in session.read()]
        moves = {at: message.to for at, message in enumerate(log, 1) if isinstance(message, our.LeafMove)}
        assert moves == {7: 2, 9: 5, 11: 8}
        (compaction,) = (message for message in log if isinstance(message, our.Compaction))
        assert compaction.first_kept == 4  # the first of the batch
        assert texts(await build_context(session)) == ["u:q", "u:again"]
        assert texts(await build_context(session, leaf=6)) == ["u:q", "a:<1><2>", "t:r1", "t:r2", "a:done"]
        # Of the kept results the calls were cut off, so that no provider would take them.
        assert [text[:2] for text in texts(await build_context(session, leaf=10))] == ["u:"]


async def test_a_file_without_a_header_is_no_session_of_the_seed(tmp_path: Path) -> None:
    async with Bus.open(data_dir=tmp_path / "bus") as bus:
        session = bus.session("s")
        with pytest.raises(UnknownFormat):
            await import_transcript(session, file_of(b"not json", told("user", text("x"), parent=None)))
        assert (await session.head()).position == 0


def test_a_memory_log_and_an_import_hold_the_same() -> None:
    transcript = ListedTranscript([HEADER, told("assistant", text("x"), parent=None)], CODING_AGENT_FORMAT)
    header, answer = transcript.entries
    assert isinstance(header.message, our.ExtensionMessage)
    assert isinstance(answer.message, our.AssistantMessage)
    assert (answer.position, answer.time) == (2, SECONDS)
