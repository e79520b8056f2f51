"""Keep the threads of a LangGraph agent on the bus, and look at one as a session: its messages, turns and usage.

    pip install 'lanebus[langgraph]' langgraph
    python examples/13_langgraph.py

prints
    Hello, Ada. You wrote 1 message.
    Hello, Ada. You wrote 2 messages.
    4 messages, 2 turns, 24 tokens
    Hello, Ada. You wrote 2 messages.
    4 messages, 3 turns, 36 tokens
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's marker of types does not count in a namespace package, and the parameters of some methods are not typed.

import os

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore

from lanebus import Bus, new_session_id
from lanebus.context import build_context
from lanebus.langgraph import LanebusSaver, LanebusStore
from lanebus.projections import TURNS, USAGE, project


async def model(state: MessagesState, store: BaseStore) -> dict[str, list[AnyMessage]]:
    known, count = await store.aget(("people",), "user"), len(state["messages"]) // 2 + 1
    text = f"Hello, {known.value['name'] if known else 'you'}. You wrote {count} message{'s' * (count > 1)}."
    usage = UsageMetadata(input_tokens=8, output_tokens=4, total_tokens=12)  # a real model reports its own
    return {"messages": [AIMessage(text, usage_metadata=usage)]}


async def main() -> None:
    async with Bus.open(os.environ.get("LANEBUS_URL"), namespace=new_session_id()) as bus:
        store, session = LanebusStore(bus), bus.session("support-42")
        await store.aput(("people",), "user", {"name": "Ada"})
        builder = StateGraph(MessagesState).add_node("model", model).add_edge(START, "model")
        graph = builder.compile(checkpointer=LanebusSaver(bus), store=store)
        thread = RunnableConfig(configurable={"thread_id": session.id})
        at = thread
        for is_branch in (False, False, True):  # the last run continues after the first answer again
            result = await graph.ainvoke({"messages": [HumanMessage("Hi!")]}, at if is_branch else thread)
            print(result["messages"][-1].text)
            at = at if at is not thread else (await graph.aget_state(thread)).config
            turns, usage = (await project(session, TURNS)).state, (await project(session, USAGE)).state
            if len(turns.turns) > 1:
                shown = len((await build_context(session)).messages)
                print(f"{shown} messages, {len(turns.turns)} turns, {usage.total.usage.total_tokens} tokens")


if __name__ == "__main__":
    anyio.run(main)
