"""A user message sent while a model answers stands after the answer, at every position and for every provider."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus import AssistantMessage, Envelope, LlmMessage, TextBlock, ToolResultMessage, UserMessage
from lanebus.handlers.context import DEFERRED, READ_UP_TO, Context, Pairing, evolve, read_position, visible_context
from lanebus.handlers.providers import PROVIDERS
from lanebus.messages import Compaction, LeafMove, LlmLaneMessage, Publishable, ToolResultBlock, TurnId
from tests.support.log.entries import asks, calls, context_of, entry, folded, results, says, texts
from tests.support.messages.lane_logs import lane_logs
from tests.support.providers import anthropic_rules, gemini_rules, openai_chat_rules, openai_responses_rules
from tests.support.suite.scale import examples

__all__ = ()

TURN = TurnId(loop_id="s.main.1", turn_index=0)


def seen(message: AssistantMessage, position: int, *held: int) -> AssistantMessage:
    """The answer of a model that had read so far."""
    metadata: dict[str, JsonValue] = {READ_UP_TO: position}
    if held:
        metadata[DEFERRED] = list(held)
    return message.model_copy(update={"metadata": metadata})


def test_a_message_sent_during_an_answer_stands_after_the_answer() -> None:
    assert texts(context_of(asks("one"), asks("two"), seen(says("One."), 1))) == ["u:one", "a:One.", "u:two"]
    later = context_of(asks("one"), asks("two"), seen(says("One."), 1), asks("three"), seen(says("Two, three."), 4))
    assert texts(later) == ["u:one", "a:One.", "u:two", "u:three", "a:Two, three."]


def test_a_message_sent_during_an_answer_stands_after_the_results_of_its_calls() -> None:
    thought: list[Publishable] = [asks("one"), asks("two"), seen(calls("a", "b"), 1)]
    none = "t:No result provided"
    assert texts(context_of(*thought)) == ["u:one", "a:<a><b>", none, none, "u:two"]
    assert texts(context_of(*thought, results("b", "B"))) == ["u:one", "a:<a><b>", none, "t:B", "u:two"]
    whole = context_of(*thought, results("b", "B"), asks("three"), results("a", "A"))
    assert texts(whole) == ["u:one", "a:<a><b>", "t:A", "t:B", "u:two", "u:three"]


NOTE = asks("note").with_turn_id(TURN)
CASES: dict[str, tuple[list[Publishable], list[str]]] = {
    "several keep their order after each answer that did not read them": (
        [asks("one"), asks("later"), asks("two"), seen(calls("a"), 1), results("a", "A"), seen(says("B"), 5, 2)],
        ["u:one", "a:<a>", "t:A", "u:two", "a:B", "u:later"],
    ),
    "a failed answer moves none": (
        [asks("one"), asks("two"), seen(says("h", stop_reason="aborted"), 1)],
        ["u:one", "u:two"],
    ),
    "an answer without a mark has read all": ([asks("one"), asks("two"), says("Both.")], ["u:one", "u:two", "a:Both."]),
    "a message that is not a user's is not moved": (
        [asks("one"), NOTE, seen(says("One."), 1)],
        ["u:one", "u:note", "a:One."],
    ),
    "it stands after the note that ends a loop": (
        [asks("one"), asks("two"), NOTE.model_copy(update={"metadata": {READ_UP_TO: 1}})],
        ["u:one", "u:note", "u:two"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_messages_sent_during_an_answer(case: str) -> None:
    entries, shown = CASES[case]
    assert texts(context_of(*entries)) == shown


@pytest.mark.parametrize("mark", [True, "1", None, -1, 1.5])
def test_a_mark_that_is_not_a_position_is_ignored(mark: JsonValue) -> None:
    answer = says("One.").model_copy(update={"metadata": {READ_UP_TO: mark, DEFERRED: mark}})
    told = texts(context_of(asks("one"), answer))
    assert told == (["a:One.", "u:one"] if mark == -1 else ["u:one", "a:One."])


def test_a_branch_and_a_compaction_find_the_same_order() -> None:
    thought: list[Publishable] = [asks("one"), asks("two"), seen(says("One."), 1)]
    moved = context_of(*thought, asks("no"), LeafMove(to=3))
    assert texts(moved) == texts(context_of(*thought))
    assert texts(context_of(*thought, Compaction(summary="x", first_kept=1)))[1:] == texts(context_of(*thought))
    assert texts(context_of(*thought, Compaction(summary="x", first_kept=2)))[1:] == ["a:One.", "u:two"]


def test_held_messages_are_not_shown_and_nothing_else_is_lost() -> None:
    context = context_of(asks("one"), calls("a"), asks("then?"), results("a", "A"), calls("b"), asks("two"))
    shown = visible_context(context, {3})
    assert texts(shown) == ["u:one", "a:<a>", "t:A", "a:<b>", "t:No result provided", "u:two"]
    assert texts(context)[-1] == "u:two"
    late = evolve(shown, entry(7, results("b", "B")))
    assert texts(late)[4] == "t:B", "its place is known"


def test_an_answer_without_a_mark_reads_up_to_itself_and_a_user_s_own_mark_is_none() -> None:
    assert read_position(entry(3, says("well"))) == 3
    assert read_position(entry(3, seen(says("well"), 1))) == 1
    marked = asks("one").model_copy(update={"metadata": {READ_UP_TO: 1}})
    assert read_position(entry(3, marked)) is None
    assert read_position(entry(3, marked.model_copy(update={"turn_id": TURN}))) == 1


# --- whatever stands in the log -----------------------------------------------------------------------------------


@st.composite
def marked_logs(draw: st.DrawFn) -> list[Envelope]:
    """Logs whose answers tell how far their models had read, now and then."""
    entries: list[Envelope] = []
    for envelope in draw(lane_logs()):
        message = envelope.message
        if isinstance(message, AssistantMessage) and entries and draw(st.booleans()):
            positions = st.sampled_from([0, *(each.position for each in entries)])
            metadata: dict[str, JsonValue] = {**(message.metadata or {}), READ_UP_TO: draw(positions)}
            metadata[DEFERRED] = list[JsonValue](draw(st.lists(positions, max_size=2)))
            message = message.model_copy(update={"metadata": metadata})
        elif isinstance(message, LlmMessage):
            message = message.model_copy()  # each is one of its own, as it comes from a log
        assert isinstance(message, LlmLaneMessage)
        entries.append(envelope._replace(message=message))
    return entries


def in_order(context: Context) -> list[LlmMessage]:
    """What is said on the path, by the rule itself: each answer in turn is put before what it did not read."""
    said: list[Envelope] = []
    for envelope in context.path:
        message = envelope.message
        metadata = (message.metadata or {}) if isinstance(message, LlmMessage) else {}
        mark, held = metadata.get(READ_UP_TO), metadata.get(DEFERRED)
        is_reader = isinstance(message, AssistantMessage) and not message.is_failed and isinstance(mark, int)
        late = [
            each
            for each in said
            if is_reader
            and each.position < envelope.position
            and isinstance(each.message, UserMessage)
            and each.message.turn_id is None
            and not any(isinstance(block, ToolResultBlock) for block in each.message.content)
            and (each.position > mark or (isinstance(held, list) and each.position in held))  # type: ignore[operator]  # an int
        ]
        said = [each for each in said if each not in late] + [envelope] + sorted(late, key=lambda each: each.position)
    pairing = Pairing()
    for envelope in said:
        if isinstance(envelope.message, LlmMessage):
            pairing = pairing.joined_by(envelope.message)
    return [*pairing.messages]


def plain(entries: Sequence[Envelope]) -> list[Envelope]:
    """Without what puts something else in an entry's place, which the rule says nothing of."""
    kept = (UserMessage, AssistantMessage, ToolResultMessage, LeafMove)
    return [envelope for envelope in entries if isinstance(envelope.message, kept)]


@pytest.mark.full
@examples(300)
@given(marked_logs())
def test_the_order_follows_the_rule_at_every_position(entries: list[Envelope]) -> None:
    context = Context("s")
    for envelope in plain(entries):
        context = evolve(context, envelope)
        assert [*context.messages] == in_order(context)
        assert context.pairing.placeholders == {
            index
            for index, each in enumerate(context.messages)
            if isinstance(each, ToolResultMessage) and each.content == (TextBlock(text="No result provided"),)
        }


@pytest.mark.full
@examples(200)
@given(marked_logs())
def test_the_order_is_the_same_after_deriving_the_context_again(entries: list[Envelope]) -> None:
    context = folded(entries)
    if not entries:
        return
    last = entries[-1].position
    derived = evolve(context, entry(last + 1, LeafMove(to=last)))  # which moves nothing, and derives all
    assert [*derived.messages] == [*context.messages]
    assert derived.pairing.waiting == context.pairing.waiting
    assert derived.pairing.placeholders == context.pairing.placeholders


RULES = {
    "anthropic": anthropic_rules.require_legal,
    "openai-chat": openai_chat_rules.require_legal,
    "openai-responses": openai_responses_rules.require_legal,
    "gemini": gemini_rules.require_legal,
}


def test_the_rules_of_every_provider_are_known() -> None:
    assert RULES.keys() == PROVIDERS.keys()


@pytest.mark.full
@examples(150)
@given(marked_logs())
def test_every_provider_accepts_the_order(entries: list[Envelope]) -> None:
    for name, provider in PROVIDERS.items():
        RULES[name](provider.to_request(folded(entries), model="m").body)
