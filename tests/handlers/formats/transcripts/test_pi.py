"""Each kind of line in pi's session files, and what it becomes."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import JsonValue

from lanebus.bus import messages as our
from lanebus.bus.errors import DecodeError, UnknownRole
from lanebus.handlers.formats import PI, Unplaced
from lanebus.handlers.formats.pi import pi
from lanebus.handlers.formats.transcript import TranscriptEntry

Object = dict[str, JsonValue]
TIME = "2025-12-09T00:53:29.825Z"
MILLISECONDS = 1_765_241_609_825


def line(kind: str, **fields: JsonValue) -> Object:
    return {"type": kind, "timestamp": TIME, **fields}


def said(role: str, **fields: JsonValue) -> Object:
    message: Object = {"role": role, "timestamp": MILLISECONDS, **fields}
    return line("message", message=message)


def read(value: JsonValue) -> TranscriptEntry:
    return PI.read(value)


def message_of(value: JsonValue) -> object:
    message = read(value).message
    assert not isinstance(message, Unplaced)
    return message


def placed(value: JsonValue, position: int | None) -> object:
    message = read(value).message
    assert isinstance(message, Unplaced)
    return message.place(position)


def test_a_user_message_keeps_its_text_and_both_its_times() -> None:
    blocks: JsonValue = [{"type": "text", "text": "hi"}]
    for content in (blocks, "hi"):
        assert message_of(said("user", content=content)) == our.UserMessage(
            content=(our.TextBlock(text="hi"),), timestamp=MILLISECONDS
        )
    value = line("message", message={"role": "user", "content": "x", "timestamp": MILLISECONDS - 500})
    message = message_of(value)
    assert isinstance(message, our.UserMessage)
    assert (message.timestamp, message.metadata) == (MILLISECONDS - 500, {"written": MILLISECONDS})


def test_an_answer_keeps_everything_that_pi_wrote() -> None:
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
        usage={
            "input": 1,
            "output": 2,
            "cacheRead": 3,
            "cacheWrite": 4,
            "totalTokens": 10,
            "cost": {"input": 0.1, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.1},
        },
        stopReason="error",
        errorMessage="overloaded",
    )

    assert message_of(value) == our.AssistantMessage(
        content=(
            our.ThinkingBlock(text="hm", signature="sig"),
            our.TextBlock(text="Hi"),
            our.ToolCallBlock(id="t1", name="bash", arguments={"a": 1}, metadata={"partialJson": '{"a": 1'}),
        ),
        provider="anthropic",
        model="claude",
        usage=our.Usage(
            input=1,
            output=2,
            cache_read=3,
            cache_write=4,
            total_tokens=10,
            cost=our.Cost(input=Decimal("0.1"), total=Decimal("0.1"), source="pi-session"),
        ),
        stop_reason="error",
        error_message="overloaded",
        timestamp=MILLISECONDS,
        metadata={"api": "anthropic-messages", "blocks": {"1": {"textSignature": "msg_1"}}},
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0.017400000000000002", "0.0174"),
        ("0.30000000000000004", "0.3"),
        ("0", "0"),
        ("3", "3"),
        ("1e-7", "0.0000001"),
        ("120", "120"),
        ("0.000012499999999999999", "0.0000125"),
    ],
)
def test_float_rounding_errors_are_removed_from_costs(written: str, meant: str) -> None:
    data = json.dumps(said("assistant", content=[], usage={"input": 1, "cost": {"total": 0}})).replace(
        '"total": 0', f'"total": {written}'
    )
    message = message_of(our.parse_json(data))
    assert isinstance(message, our.AssistantMessage)
    assert message.usage is not None
    assert message.usage.cost is not None
    assert format(message.usage.cost.total, "f") == meant


def test_an_unknown_cost_stop_reason_or_block_is_kept_as_it_was() -> None:
    message = message_of(said("assistant", content=[], usage={"input": 1, "output": 2}))
    assert isinstance(message, our.AssistantMessage)
    assert message.usage == our.Usage(input=1, output=2)
    message = message_of(said("assistant", content=[], stopReason="sensitive"))
    assert isinstance(message, our.AssistantMessage)
    assert (message.stop_reason, message.raw_stop_reason) == ("stop", "sensitive")
    strange: Object = {"type": "hologram", "data": [1]}
    redacted: Object = {"type": "thinking", "thinking": "[redacted]", "thinkingSignature": "opaque", "redacted": True}
    message = message_of(said("assistant", content=[strange, redacted]))
    assert isinstance(message, our.AssistantMessage)
    assert message.content == (our.UnknownBlock(raw=strange), our.RedactedThinkingBlock(data="opaque"))
    assert message.metadata == {"blocks": {"1": {"thinking": "[redacted]", "redacted": True}}}


def test_a_result_keeps_its_details_and_a_call_the_signature_of_its_thinking() -> None:
    value = said(
        "toolResult",
        toolCallId="t1",
        toolName="edit",
        content=[{"type": "image", "data": "aGk=", "mimeType": "image/png"}],
        isError=True,
        details={"diff": "-a\n+b"},
    )
    message = message_of(value)
    assert isinstance(message, our.ToolResultMessage)
    assert (message.tool_call_id, message.tool_name, message.is_error) == ("t1", "edit", True)
    assert message.metadata == {"details": {"diff": "-a\n+b"}}
    assert json.loads(message.to_json())["content"] == [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    call: JsonValue = {"type": "toolCall", "id": "t1", "name": "f", "arguments": {}, "thoughtSignature": "c2ln"}
    message = message_of(said("assistant", content=[call], provider="google", model="gemini", stopReason="toolUse"))
    assert isinstance(message, our.AssistantMessage)
    assert message.content == (our.ToolCallBlock(id="t1", name="f", signature="c2ln"),)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"output": "a\n", "exitCode": 0}, "Ran `ls`\n```\na\n\n```"),
        ({"output": ""}, "Ran `ls`\n(no output)"),
        ({"output": "a", "exitCode": 2}, "Ran `ls`\n```\na\n```\n\nCommand exited with code 2"),
        ({"output": "a", "exitCode": 2, "cancelled": True}, "Ran `ls`\n```\na\n```\n\n(command cancelled)"),
        (
            {"output": "a", "truncated": True, "fullOutputPath": "/tmp/log"},  # noqa: S108  # only a text
            "Ran `ls`\n```\na\n```\n\n[Output truncated. Full output: /tmp/log]",
        ),
    ],
)
def test_a_users_command_is_described_as_pi_does(facts: Object, text: str) -> None:
    message = message_of(said("bashExecution", command="ls", **facts))
    assert isinstance(message, our.UserMessage)
    assert message.text_content() == text
    kept = {key: item for key, item in facts.items() if key != "output"}
    assert message.metadata == {"bashExecution": {"command": "ls", **kept}}


def test_what_pi_kept_from_the_model_headers_and_unknown_lines_are_in_the_extension_lane() -> None:
    message = message_of(said("bashExecution", command="ls", output="a", excludeFromContext=True))
    assert isinstance(message, our.ExtensionMessage)
    assert message.kind == "import.bashExecution"
    assert isinstance(message.data, dict)
    assert message.data["output"] == "a"
    header = line("session", id="x", cwd="/")
    assert message_of(header) == our.ExtensionMessage.of("import.header", {"format": "pi", "header": header})
    future: Object = {"type": "from the future", "x": [None]}
    for value in (line("session_info", name="n", id="a", parentId="b"), future):
        assert message_of(value) == our.ExtensionMessage.of(f"import.{value['type']}", value)


def test_the_entries_of_a_tree_steer_the_context_and_have_their_places() -> None:
    assert message_of(line("model_change", provider="anthropic", modelId="claude")) == our.ModelChange(
        provider="anthropic", model="claude", timestamp=MILLISECONDS
    )
    assert message_of(line("thinking_level_change", thinkingLevel="high")) == our.ThinkingLevelChange(
        level="high", timestamp=MILLISECONDS
    )
    first = line("compaction", summary="s", firstKeptEntryIndex=5, tokensBefore=7)
    assert placed(first, 6) == our.Compaction(summary="s", first_kept=6, tokens_before=7, timestamp=MILLISECONDS)
    assert placed(first, None) == our.Compaction(
        summary="s", tokens_before=7, timestamp=MILLISECONDS, metadata={"firstKeptEntryIndex": 5}
    )
    second = read(line("compaction", summary="s", firstKeptEntryId="a1", details={"x": 1}, id="b", parentId="a2"))
    assert isinstance(second.message, Unplaced)
    assert (second.message.kind, second.message.names) == ("kept", "a1")
    assert (second.id, second.parent, second.is_in_tree) == ("b", "a2", True)
    made = second.message.place(3)
    assert isinstance(made, our.Compaction)
    assert (made.id, made.first_kept, made.metadata) == ("b", 3, {"details": {"x": 1}})
    tree: Object = {"id": "b", "parentId": None}
    assert placed(line("branch_summary", summary="s", fromId="a", **tree), 4) == our.BranchSummary(
        id="b", summary="s", branch=4, timestamp=MILLISECONDS, metadata={"fromId": "a"}
    )
    label = line("label", targetId="a", label="here", **tree)
    assert placed(label, 2) == our.Label(id="b", target=2, label="here", timestamp=MILLISECONDS)
    assert placed(label, None) == our.ExtensionMessage.of("import.label", label)
    assert read(label).is_in_tree
    assert read(label).parent is None


@pytest.mark.parametrize(
    "value",
    [
        line("custom_message", customType="note", content="x", display=True, details=[1]),
        said("custom", customType="note", content="x", display=True, details=[1]),
        said("hookMessage", customType="note", content="x", display=True, details=[1]),
    ],
)
def test_messages_of_pis_extensions_never_reach_a_model(value: Object) -> None:
    message = message_of(value)
    assert isinstance(message, our.ExtensionMessage)
    assert message.kind == "custom"
    assert isinstance(message.data, dict)
    assert message.data.items() >= {"customType": "note", "display": True, "details": [1]}.items()
    assert message.data["contents"] == [{"type": "text", "text": "x"}]


@pytest.mark.parametrize(
    "value",
    [
        line("custom_message", customType="note", content="x", display=True, details=[1], id="b", parentId="a"),
        line(
            "message",
            message={"role": "custom", "customType": "note", "content": "x", "details": [1]},
            id="b",
            parentId="a",
        ),
    ],
)
def test_messages_of_pis_extensions_become_user_messages_on_request(value: Object) -> None:
    entry = pi(custom_to_llm=True).read(value)
    assert (entry.id, entry.parent) == ("b", "a")
    message = entry.message
    assert isinstance(message, our.UserMessage)
    assert (message.text_content(), message.id) == ("x", "b")
    assert message.metadata is not None
    custom = message.metadata["custom"]
    assert isinstance(custom, dict)
    assert custom.items() >= {"customType": "note", "details": [1]}.items()
    with pytest.raises(DecodeError):
        pi(custom_to_llm=True).read({**line("custom_message", customType="note", content=5)})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([], ""),
        ({}, "type"),
        (line("message"), "message"),
        (line("message", message={}), "message.role"),
        (said("user", content=5), "message.content"),
        (said("user", content=["x"]), "message.content.0"),
        (said("user", content=[{"type": "text"}]), "message.content.0.text"),
        (said("toolResult", content=[]), "message.toolCallId"),
        (said("assistant", content=[], usage={"input": "1"}), "message.usage.input"),
        (said("assistant", content=[], usage={"cost": {"total": "free"}}), "message.usage.cost.total"),
        (said("assistant", content=[], usage={"cost": {"total": 1e300}}), "message.usage.cost.total"),
        (said("bashExecution", output="x"), "message.command"),
        (line("compaction", firstKeptEntryIndex=1), "summary"),
        (line("compaction", summary="s", firstKeptEntryIndex=1.5), "firstKeptEntryIndex"),
        (line("model_change", modelId="m"), "provider"),
        (line("label", targetId=5), "targetId"),
        ({**line("model_change", provider="p", modelId="m"), "timestamp": "yesterday"}, "timestamp"),
        (line("model_change", provider="p", modelId="m", id="a", parentId=7), "parentId"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_with_the_place_of_the_fault(value: JsonValue, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read(value)
    assert caught.value.path == path


def test_a_role_that_we_do_not_know_is_refused() -> None:
    with pytest.raises(UnknownRole):
        read(said("narrator", content="x"))


def test_every_line_of_a_real_session_is_understood(seed_data: Path) -> None:
    kinds: Counter[str] = Counter()
    with (seed_data / "data" / "pi-session.jsonl").open("rb") as file:
        for data in file:
            message = read(our.parse_json(data)).message
            kinds[type(message.place(1) if isinstance(message, Unplaced) else message).__name__] += 1

    assert kinds == {
        "ExtensionMessage": 1,
        "AssistantMessage": 484,
        "ToolResultMessage": 448,
        "UserMessage": 55 + 3,
        "ModelChange": 5,
        "ThinkingLevelChange": 5,
        "Compaction": 2,
    }
