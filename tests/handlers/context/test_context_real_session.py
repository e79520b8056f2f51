"""A real coding-agent session, 1,002 entries long: its context is its last summary and what followed.

That what its model saw at every position is a legal request: `tests/handlers/providers/test_all_providers.py`.
"""

from pathlib import Path
from typing import cast

from lanebus.bus.messages import AssistantMessage, Compaction
from lanebus.context import Context, evolve
from lanebus.providers import to_anthropic
from tests.support.transcripts.real_session import real_log

Object = dict[str, object]


def _at_end(seed_data: Path) -> Context:
    context = Context("s")
    for envelope in real_log(seed_data):
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
