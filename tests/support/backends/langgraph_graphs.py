"""Graphs of LangGraph for tests, and a program that runs one of them until it is killed.

    python -m tests.support.backends.langgraph_graphs URL THREAD

It runs the graph `counting` and prints the number of each step when it begins.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's marker of types does not count in a namespace package, and the parameters of some methods are not typed.

import operator
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Protocol, TypedDict, cast

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import StateSnapshot

from lanebus import Bus
from lanebus.langgraph import LanebusSaver, LanebusStore

__all__ = ("REMOVE_ALL_MESSAGES", "Graph", "adding", "config_of", "conversation", "counting", "main", "named", "said")

Input = Mapping[str, object] | None


class Graph(Protocol):
    """What tests use of a compiled graph. LangGraph's own class is not fully typed."""

    def invoke(self, input: Input, config: RunnableConfig) -> object: ...
    def get_state(self, config: RunnableConfig) -> StateSnapshot: ...
    def get_state_history(self, config: RunnableConfig) -> Iterator[StateSnapshot]: ...
    async def ainvoke(self, input: Input, config: RunnableConfig, *, durability: str | None = None) -> object: ...
    async def aget_state(self, config: RunnableConfig) -> StateSnapshot: ...
    def aget_state_history(self, config: RunnableConfig) -> AsyncIterator[StateSnapshot]: ...
    async def aupdate_state(
        self, config: RunnableConfig, values: Input, as_node: str | None = None
    ) -> RunnableConfig: ...


def named(config: RunnableConfig, name: str = "thread_id") -> str:
    """Return what a config names."""
    return str(config.get("configurable", {})[name])


def _joined(items: Any, more: Sequence[Any]) -> Any:
    return [*items, *chain.from_iterable(more)]


class Adding(TypedDict):
    """The state of `adding`."""

    items: Annotated[list[int], DeltaChannel(_joined, snapshot_frequency=7)]
    total: Annotated[int, operator.add]


class Counting(TypedDict):
    """The state of `counting`."""

    steps: Annotated[list[int], operator.add]


def config_of(thread: str, **named: str) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread, **named}}


def counting(saver: BaseCheckpointSaver[Any], *, end: int = 20, tell: Callable[[int], None] = lambda _: None) -> Graph:
    """Return a graph that appends 0, 1, 2, … to its state, one in each step."""

    def step(state: Counting) -> Counting:
        number = len(state["steps"])
        tell(number)
        return {"steps": [number]}

    def after_step(state: Counting) -> str:
        return "step" if len(state["steps"]) < end else END

    builder = StateGraph(Counting)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", after_step)
    return cast("Graph", builder.compile(checkpointer=saver))


def adding(saver: BaseCheckpointSaver[Any]) -> Graph:
    """Return a graph with a delta channel, to which each run appends the channel's length."""

    def step(state: Adding) -> Adding:
        return {"items": [len(state["items"])], "total": 1}

    builder = StateGraph(Adding)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    return cast("Graph", builder.compile(checkpointer=saver))


def conversation(saver: BaseCheckpointSaver[Any], store: LanebusStore | None = None) -> Graph:
    """Return a graph that answers each message, and calls a tool first if the message has the word "weather"."""

    def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        last = state["messages"][-1]
        calls = [{"name": "weather", "args": {"city": "Oslo"}, "id": f"call-{len(state['messages'])}"}]
        asks = isinstance(last, HumanMessage) and "weather" in last.text
        answer = AIMessage(
            "" if asks else f"You said: {last.text}",
            tool_calls=calls if asks else [],
            usage_metadata={
                "input_tokens": 10,
                "output_tokens": 2,
                "total_tokens": 12,
                "input_token_details": {"cache_read": 4, "cache_creation": 1},
                "output_token_details": {"reasoning": 1},
            },
            response_metadata={"model_name": "gpt-test", "model_provider": "openai", "finish_reason": "stop"},
        )
        return {"messages": [answer]}

    def tool(state: MessagesState) -> dict[str, list[AnyMessage]]:
        last = state["messages"][-1]
        assert isinstance(last, AIMessage)
        return {"messages": [ToolMessage("sunny", tool_call_id=last.tool_calls[0]["id"], name="weather")]}

    def after_model(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tool" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", after_model)
    builder.add_edge("tool", "model")
    return cast("Graph", builder.compile(checkpointer=saver, store=store))


def said(text: str) -> dict[str, object]:
    """Return the input of `conversation`."""
    return {"messages": [HumanMessage(text)]}


def main() -> None:
    """Run until killed."""
    anyio.run(_count)


async def _count() -> None:
    url, thread = sys.argv[1:]
    async with Bus.open(url) as bus:
        graph = counting(LanebusSaver(bus), tell=lambda number: print(number, flush=True))
        await graph.ainvoke({"steps": []}, config_of(thread), durability="sync")


if __name__ == "__main__":
    main()
