"""A real coding-agent session, 1,002 entries long: what its model saw at every position is a legal request."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest

from bus.envelope import Envelope
from bus.messages.context_entry import Compaction, ModelChange, ThinkingLevelChange
from bus.messages.message import AssistantMessage
from bus.messages.reading import LlmLaneMessage, read_llm
from handlers.context import Context, evolve
from handlers.providers import ProviderRequest, to_anthropic, to_openai_chat, to_openai_responses
from tests.handlers.entries import entry
from tests.handlers.providers import anthropic_rules, openai_chat_rules, openai_responses_rules

Object = dict[str, object]


class Rules(Protocol):
    """A referee of one provider's requests."""

    def shape_faults(self, body: object) -> list[str]: ...

    def rule_faults(self, body: object) -> list[str]: ...


def _log(seed_data: Path) -> Iterator[Envelope]:
    """Each line after the header at the position of its number, which the compactions count by too."""
    with (seed_data / "data" / "pi-session.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number:
                yield entry(number, _read(json.loads(line)))


def _read(line: Object) -> LlmLaneMessage:
    match line["type"]:
        case "model_change":
            return ModelChange(provider=str(line["provider"]), model=str(line["modelId"]))
        case "thinking_level_change":
            return ThinkingLevelChange(level=str(line["thinkingLevel"]))
        case "compaction":
            return Compaction(summary=str(line["summary"]), first_kept=cast("int", line["firstKeptEntryIndex"]))
        case _:
            return _read_message(cast("Object", line["message"]))


def _read_message(message: Object) -> LlmLaneMessage:
    if message["role"] == "bashExecution":
        text = f"Ran `{message['command']}`\n```\n{message['output']}\n```"
        return read_llm(json.dumps({"role": "user", "content": text}))
    kept = {"role", "content", "toolCallId", "toolName", "isError", "stopReason", "model", "provider", "timestamp"}
    plain = {key: value for key, value in message.items() if key in kept}
    if isinstance(blocks := plain["content"], list):
        plain["content"] = [
            {key: value for key, value in block.items() if key != "partialJson"}
            for block in cast("list[Object]", blocks)
        ]
    return read_llm(json.dumps(plain))


def _at_end(seed_data: Path) -> Context:
    context = Context("s")
    for envelope in _log(seed_data):
        context = evolve(context, envelope)
    return context


def test_the_context_at_the_end_is_the_last_summary_and_445_messages(seed_data: Path) -> None:
    context = _at_end(seed_data)
    summary, *messages = context.path
    assert (summary.position, messages[0].position, len(messages)) == (628, 551, 445)
    assert isinstance(summary.message, Compaction)
    assert context.messages[0].text_content().endswith(f"<summary>\n{summary.message.summary}\n</summary>")
    first_turn = cast("list[dict[str, list[Object]]]", to_anthropic(context).body["messages"])[0]
    assert first_turn["content"][0]["text"] == context.messages[0].text_content()
    assert not context.faults


def test_no_failed_answer_is_in_the_messages_and_every_good_one_is(seed_data: Path) -> None:
    context = _at_end(seed_data)
    said = [stands.message for stands in context.path if isinstance(stands.message, AssistantMessage)]
    good = [message for message in said if not message.is_failed]
    assert len(said) - len(good) == 7
    assert [message for message in context.messages if isinstance(message, AssistantMessage)] == good


@pytest.mark.parametrize(
    ("to_request", "rules", "said"),
    [
        (to_anthropic, anthropic_rules, "messages"),
        (to_openai_chat, openai_chat_rules, "messages"),
        (to_openai_responses, openai_responses_rules, "input"),
    ],
    ids=["anthropic", "openai-chat", "openai-responses"],
)
def test_what_the_model_saw_is_a_legal_request_at_every_position(
    seed_data: Path, to_request: Callable[..., ProviderRequest], rules: Rules, said: str
) -> None:
    context = Context("s")
    checked: list[object] = []
    positions = 0
    for envelope in _log(seed_data):
        context = evolve(context, envelope)
        request = to_request(context, model="claude-opus-4-5", strict=True)
        messages = cast("list[object]", request.body[said])
        # The shape of a message does not depend on its neighbours: one that was checked as it is need not be again.
        new = [message for index, message in enumerate(messages) if checked[index : index + 1] != [message]]
        assert not rules.shape_faults({**request.body, said: new})
        assert not rules.rule_faults(request.body)
        checked = messages
        positions += 1
    assert positions == 1002
