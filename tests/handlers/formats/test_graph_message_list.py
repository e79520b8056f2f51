"""Lists of messages: a new message is added once, and finished tool calls can be left out."""

from hypothesis import given
from hypothesis import strategies as st

from lanebus.bus.messages import AssistantMessage, Delta, LlmMessage, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.handlers.formats.graph.messages import add_messages, without_tools

__all__ = ()

_messages = st.lists(st.builds(UserMessage, id=st.sampled_from([None, "a", "b", "c"])), max_size=6)


def user(id: str | None) -> UserMessage:
    return UserMessage(id=id)


CALLING = AssistantMessage(content=(ToolCallBlock(id="c", name="n"),))
RESULT = ToolResultMessage(tool_call_id="c")
ANSWER = AssistantMessage.text("done")
QUESTION = UserMessage.text("do it")


def test_a_message_whose_id_is_in_the_list_or_the_batch_is_not_added_again() -> None:
    left, right = user("a"), [user("b"), user("a"), user("b")]
    assert add_messages([left], right) == (left, user("b"))


def test_a_message_without_an_id_is_always_new() -> None:
    assert add_messages([user(None)], [user(None), user(None)]) == (user(None),) * 3


def test_live_deltas_are_no_messages() -> None:
    assert add_messages([], [Delta(kind="text", message_id="a", delta="x"), user("a")]) == (user("a"),)


@given(left=_messages, right=_messages)
def test_adding_the_same_batch_twice_adds_what_has_an_id_once(left: list[LlmMessage], right: list[LlmMessage]) -> None:
    once = add_messages(left, right)
    assert once[: len(left)] == tuple(left)
    assert add_messages(once, [message for message in right if message.id]) == once


def test_finished_calls_are_left_out() -> None:
    assert without_tools([QUESTION, CALLING, RESULT, CALLING, RESULT, ANSWER]) == (QUESTION, ANSWER)


def test_calls_without_a_final_answer_stay() -> None:
    messages = (QUESTION, CALLING, RESULT)
    assert without_tools(messages) == messages
    interrupted = (QUESTION, CALLING, RESULT, QUESTION, ANSWER)
    assert without_tools(interrupted) == interrupted
