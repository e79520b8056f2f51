"""What the page's views make of a thread's session: its context, turns and usage."""

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage

from lanebus import AssistantMessage, Bus, Lane
from lanebus.context import build_context
from lanebus.handlers.integrations.langgraph.thread import lane_message
from lanebus.langgraph import BackendBounds, LanebusSaver
from lanebus.messages import (
    ImageBlock,
    Prune,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UnknownBlock,
    Usage,
    UserMessage,
)
from lanebus.projections import TURNS, USAGE, project
from tests.support.backends.langgraph_graphs import REMOVE_ALL_MESSAGES, config_of, conversation, said
from tests.support.servers.real import RealServer

T = config_of("t")


async def context(bus: Bus, session: str = "t") -> list[str]:
    """Return the texts of a session's context, which has no faults."""
    found = await build_context(bus.session(session))
    assert found.faults == ()
    return [message.text_content() for message in found.messages]


async def test_the_views_show_messages_turns_and_usage(bus: Bus) -> None:
    await conversation(LanebusSaver(bus)).ainvoke(said("weather?"), T)
    found = await build_context(bus.session("t"))
    asked, call, result, answer = found.messages
    assert (found.provider, found.model) == ("openai", "gpt-test")
    assert isinstance(asked, UserMessage)
    assert asked.text_content() == "weather?"
    assert isinstance(call, AssistantMessage)
    assert [each.name for each in call.tool_calls()] == ["weather"]
    assert isinstance(result, ToolResultMessage)
    assert (result.tool_name, result.text_content(), result.is_error) == ("weather", "sunny", False)
    assert answer.text_content() == "You said: sunny"

    turns = (await project(bus.session("t"), TURNS)).state.turns
    assert [[tool.name for tool in turn.tools] for turn in turns] == [["weather"], []]
    assert [turn.status for turn in turns] == ["completed", "completed"]
    assert turns[0].usage == Usage(input=5, output=2, reasoning=1, cache_read=4, cache_write=1, total_tokens=12)
    total = (await project(bus.session("t"), USAGE)).state.total
    assert (total.calls, total.usage.total_tokens, total.usage.input) == (2, 24, 10)


async def test_no_worker_is_woken_and_neither_the_extension_lane_nor_no_channel_shows_anything(bus: Bus) -> None:
    await conversation(LanebusSaver(bus)).ainvoke(said("hi"), T)
    assert [each async for each in bus.session("t").read(lanes={Lane.EXTENSION})] == []
    assert await bus.unfetched_work() == ()

    await conversation(LanebusSaver(bus, messages=None)).ainvoke(said("one"), config_of("unshown"))
    assert await context(bus, "unshown") == []


async def test_the_context_goes_where_the_graph_goes_and_usage_is_counted_once(bus: Bus) -> None:
    graph = conversation(LanebusSaver(bus))
    await graph.ainvoke(said("one"), T)
    first = (await graph.aget_state(T)).config
    await graph.ainvoke(said("two"), T)
    second = (await graph.aget_state(T)).config
    assert await context(bus) == ["one", "You said: one", "two", "You said: two"]

    await graph.ainvoke(said("other"), first)
    assert await context(bus) == ["one", "You said: one", "other", "You said: other"]

    await graph.ainvoke(said("three"), second)  # back on the branch that was left
    assert await context(bus) == ["one", "You said: one", "two", "You said: two", "three", "You said: three"]

    messages: list[BaseMessage] = (await graph.aget_state(T)).values["messages"]
    removed = [RemoveMessage(str(message.id)) for message in messages[:2]]
    await graph.aupdate_state(T, {"messages": removed})
    newest = [each.message async for each in bus.session("t").read(lanes={Lane.LLM})][-1]
    assert isinstance(newest, Prune)  # what stays is not shown again
    assert len(newest.pruned) == 2
    assert await context(bus) == ["two", "You said: two", "three", "You said: three"]

    edited = HumanMessage("TWO", id=messages[2].id)
    await graph.aupdate_state(T, {"messages": [edited]})
    assert await context(bus) == ["TWO", "You said: two", "three", "You said: three"]

    await graph.ainvoke(said("four"), T)
    assert (await context(bus))[-2:] == ["four", "You said: four"]
    usage = (await project(bus.session("t"), USAGE)).state.total.usage
    assert usage.total_tokens == 5 * 12

    await graph.aupdate_state(T, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]}, as_node="tool")
    assert await context(bus) == []
    await graph.ainvoke(said("five"), T)
    assert await context(bus) == ["five", "You said: five"]


async def test_another_process_continues_what_is_shown(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        for number, bus in enumerate((one, other, one, other)):
            await conversation(LanebusSaver(bus)).ainvoke(said(f"m{number}"), T)
        texts = [text for number in range(4) for text in (f"m{number}", f"You said: m{number}")]
        assert await context(one) == texts
        assert (await project(one.session("t"), USAGE)).state.total.calls == 4


async def test_a_copy_shows_the_conversation_and_a_deleted_thread_none(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    await conversation(saver).ainvoke(said("one"), T)
    await saver.acopy_thread("t", "copy")
    await saver.adelete_thread("t")
    await conversation(saver).ainvoke(said("two"), config_of("copy"))
    assert await context(bus) == []
    assert await context(bus, "copy") == ["one", "You said: one", "two", "You said: two"]
    await conversation(saver).ainvoke(said("new"), T)
    assert await context(bus) == ["new", "You said: new"]


async def test_messages_of_a_deleted_thread_are_shown_again_if_they_are_stored_again(bus: Bus) -> None:
    saver = LanebusSaver(bus)
    for _ in range(2):
        await conversation(saver).aupdate_state(T, {"messages": [HumanMessage("same", id="1")]}, as_node="model")
        assert await context(bus) == ["same"]
        await saver.adelete_thread("t")
        assert await context(bus) == []


def test_blocks_of_all_kinds_are_shown_and_what_cannot_be_is_cut_and_never_fails() -> None:
    blocks: list[str | dict[str, object]] = [
        {"type": "text", "text": "a"},
        {"type": "reasoning", "reasoning": "b"},
        {"type": "image", "url": "https://example.com/a.png"},
        {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
        {"type": "image", "url": "file:///etc/passwd"},
        {"type": "other", "x": 1},
    ]
    shown = lane_message(
        AIMessage(blocks, tool_calls=[{"name": "t", "args": {"x": None}, "id": "1"}]),
        limit_bytes=10_000,
    )
    kinds = [type(block) for block in shown.content]
    assert kinds == [TextBlock, ThinkingBlock, ImageBlock, ImageBlock, UnknownBlock, UnknownBlock, ToolCallBlock]
    assert b"passwd" not in shown.to_json_bytes()
    assert lane_message(HumanMessage("x" * 1_000), limit_bytes=80).text_content() == "x" * 10
    assert lane_message(HumanMessage("a\ud800b"), limit_bytes=1_000).text_content() == "a?b"
    odd = AIMessage("a", response_metadata={"model_name": 1, "finish_reason": {}}, tool_calls=[])
    shown = lane_message(odd, limit_bytes=BackendBounds().shown_bytes)
    assert isinstance(shown, AssistantMessage)
    assert (shown.model, shown.stop_reason) == (None, "stop")
