"""Write your own agent loop. A recorder publishes its events, so projections and the page show it like a worker's loop.

    python examples/11_own_loop.py

prints
    Refund order 7: stop
    Tell a story: aborted
    completed completed aborted
"""

import os

import anyio

from lanebus import AssistantMessage, Bus, ExtensionMessage, Session, ToolCallBlock, Usage, UserMessage, new_session_id
from lanebus.agent import Recorder, abort, approve
from lanebus.messages import AgentEnded, MessageStarted, ToolWaiting, parse_event
from lanebus.projections import TURNS, look


async def provider(said: str) -> AssistantMessage | str:  # stands for your provider's client
    if said == "Tell a story":
        await anyio.sleep_forever()
    call = ToolCallBlock(id="call-1", name="refund", arguments={"order": 7})
    return AssistantMessage(content=(call,), stop_reason="toolUse") if said == "Refund order 7" else "Done."


async def own_loop(session: Session) -> None:
    async with Recorder(session, agent="shop") as recorder:
        while await recorder.wait_for_work():
            async with recorder.turn(model="fake-1", provider="fake") as turn:  # an abort cancels the block
                said = turn.context.messages[-1].text_content()  # `lanebus.providers` converts a context to a request
                await turn.answer(await provider(said), usage=Usage(input=12, output=3, total_tokens=15))
                for call in turn.calls:
                    if await turn.approval(call):  # waits until a person decides
                        async with turn.tool(call) as tool:
                            tool.result = "order 7 is refunded"


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL")) as bus, anyio.create_task_group() as tasks:
        session = bus.session(new_session_id(), agent="shop")
        tasks.start_soon(own_loop, session)
        for question in ("Refund order 7", "Tell a story"):
            asked = await session.publish(UserMessage.text(question))
            async for envelope in session.follow(after=asked.cursor, kinds={"agent.*"}):
                event = parse_event(envelope.message) if isinstance(envelope.message, ExtensionMessage) else None
                if isinstance(event, ToolWaiting):
                    await approve(session, event.turn_id, event.tool_call_id)
                elif isinstance(event, MessageStarted) and question == "Tell a story":
                    await abort(session)
                elif isinstance(event, AgentEnded):
                    print(f"{question}: {event.stop_reason}")
                    break
        print(*(turn.status for turn in (await look(session, TURNS)).state.turns))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
