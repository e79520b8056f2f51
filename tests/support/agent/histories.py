"""Random histories of sessions, and a projection whose state is the positions that it has seen."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st
from pydantic import TypeAdapter

from lanebus import Envelope, ExtensionMessage
from lanebus.bus.messages import AssistantMessage, ToolCallBlock, ToolResultMessage, TurnId, Usage, UserMessage
from lanebus.messages import AgentEnded, AgentStarted, Cost, Publishable, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from lanebus.projections import Projection


def collect(state: tuple[int, ...], envelope: Envelope) -> tuple[int, ...]:
    return (*state, envelope.position)


T = TypeVar("T")


def made(kind: Callable[..., T], **fields: st.SearchStrategy[object]) -> st.SearchStrategy[T]:
    """Values of a type; `st.builds` would add required fields a second time, under their names in JSON."""
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


amounts = st.decimals(min_value=0, max_value=100, places=9)


usages = made(
    Usage,
    input=st.integers(0, 1000),
    output=st.integers(0, 1000),
    cost=st.none() | made(Cost, input=amounts, total=amounts, source=st.sampled_from([None, "a", "b"])),
)


turn_ids = made(TurnId, loop_id=st.sampled_from(["s1.main.1", "s1.main.2"]), turn_index=st.integers(0, 2))


call_ids = st.sampled_from(["t1", "t2"])


calls = made(ToolCallBlock, id=call_ids, name=st.just("f"))


stop_reasons = st.sampled_from(["stop", "toolUse", "error", "aborted"])


tools = {"turn_id": turn_ids, "tool_call_id": call_ids, "tool_name": st.just("f")}


events = st.one_of(
    made(AgentStarted, loop_id=st.sampled_from(["s1.main.1", "s1.main.2"]), agent=st.just("main")),
    made(
        AgentEnded,
        loop_id=st.sampled_from(["s1.main.1", "s1.main.2"]),
        stop_reason=stop_reasons,
        turns=st.just(1),
        usage=usages,
    ),
    made(TurnStarted, turn_id=turn_ids, prompts=st.sampled_from([(), (1,)])),
    made(TurnEnded, turn_id=turn_ids, stop_reason=stop_reasons, usage=usages),
    made(ToolStarted, **tools),
    made(ToolEnded, is_error=st.booleans(), **tools),
)

messages: st.SearchStrategy[Publishable] = st.one_of(
    st.text(max_size=5).map(UserMessage.text),
    made(
        AssistantMessage,
        content=st.lists(calls, max_size=2).map(tuple),
        turn_id=st.none() | turn_ids,
        usage=st.none() | usages,
        stop_reason=stop_reasons,
        model=st.sampled_from([None, "m1", "m2"]),
    ),
    made(ToolResultMessage, tool_call_id=call_ids, turn_id=st.none() | turn_ids, is_error=st.booleans()),
    events.map(lambda event: event.as_extension()),
    st.just(ExtensionMessage.of("agent.turn.ended", "nonsense")),
)

POSITIONS = Projection[tuple[int, ...]](
    name="positions", version=1, state=TypeAdapter(tuple[int, ...]), initial=(), evolve=collect
)


histories = st.lists(messages, max_size=25)
