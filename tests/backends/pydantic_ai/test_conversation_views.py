"""What a stored conversation shows on the page: its context, turns and usage."""

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.test import TestModel

from lanebus import AssistantMessage, Lane, ToolResultMessage, UserMessage
from lanebus.context import build_context
from lanebus.projections import TURNS, USAGE, project
from lanebus.pydantic_ai import LanebusConversationStore
from tests.support.servers.real import RealServer

__all__ = ()


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_a_saved_run_shows_its_messages_turns_and_usage(shared_valkey: RealServer) -> None:
    agent = Agent(TestModel(custom_output_text="done"), instructions="Be brief.", tools=[double])
    async with shared_valkey.bus() as bus:
        store = LanebusConversationStore(bus)
        first = await agent.run("Hello", conversation=Conversation(conversation_id="c"))
        await store.save(first)
        await store.save(await agent.run("Again", conversation=await store.load("c")))
        session = bus.session("c")
        context = await build_context(session)
        assert [type(message) for message in context.messages] == [
            *(UserMessage, AssistantMessage, ToolResultMessage, AssistantMessage),
            *(UserMessage, AssistantMessage),
        ]
        assert [instruction.text_content() for instruction in context.system] == ["Be brief."]
        state = (await project(session, TURNS)).state
        assert [(str(turn.turn_id), turn.status) for turn in state.turns] == [
            ("c.main.1#0", "completed"),
            ("c.main.1#1", "completed"),
            ("c.main.2#0", "completed"),
        ]
        assert [run.name for run in state.turns[0].tools] == ["double"]
        assert state.turns[0].results
        assert state.waiting == ()
        total = (await project(session, USAGE)).state.total.usage
        conversation = await store.load("c")
        assert conversation is not None
        assert (total.input, total.output) == (conversation.usage.input_tokens, conversation.usage.output_tokens)


async def test_a_reader_of_the_extension_lane_alone_sees_nothing_of_a_conversation(shared_valkey: RealServer) -> None:
    agent = Agent(TestModel(custom_output_text="done"))
    async with shared_valkey.bus() as bus:
        store = LanebusConversationStore(bus)
        await store.save(await agent.run("Hello", conversation=Conversation(conversation_id="c")))
        assert [envelope async for envelope in bus.session("c").read(lanes={Lane.EXTENSION})] == []
        answers = [
            envelope.message
            async for envelope in bus.session("c").read(lanes={Lane.LLM})
            if isinstance(envelope.message, AssistantMessage)
        ]
        assert [answer.text_content() for answer in answers] == ["done"]
