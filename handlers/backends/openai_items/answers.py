"""The SDK's items and answers as messages of lanebus, and the other way round."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from agents import Agent, ModelResponse, TResponseInputItem
from agents.models.default_models import get_default_model

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.llm import now_ms
from lanebus.handlers.backends.openai_items.messages import messages_of
from lanebus.handlers.backends.openai_items.usage import usage_of
from lanebus.handlers.backends.own_entries import own_message
from lanebus.handlers.context.fold import Context
from lanebus.handlers.providers.openai.responses.form import to_openai_responses

__all__ = ("AGENT", "PROVIDER", "agent_of", "answer_of", "input_of", "model_of", "outputs")

AGENT = "agent"
"""key of an answer's metadata: the name of the agent that answered"""

PROVIDER = "openai"


def model_of(agent: Agent[Any]) -> str:
    """Return the name of an agent's model."""
    model = agent.model
    if model is None or isinstance(model, str):
        return model or get_default_model()
    name: object = getattr(model, "model", None)
    return name if isinstance(name, str) else type(model).__name__


def answer_of(response: ModelResponse, agent: Agent[Any], *, limit_bytes: int) -> AssistantMessage:
    """Return the message of a model's answer, with its usage and the agent's name."""
    texts = [json.dumps(item.model_dump(mode="json", exclude_none=True)) for item in response.output]
    shown = [each.message for each in messages_of(texts, limit_bytes=limit_bytes)]
    content = tuple(block for message in shown if isinstance(message, AssistantMessage) for block in message.content)
    return AssistantMessage(
        content=content,
        stop_reason="toolUse" if any(block.type == "toolCall" for block in content) else "stop",
        model=model_of(agent),
        provider=PROVIDER,
        usage=usage_of(response.usage),
        response_id=response.response_id,
        timestamp=now_ms(),
        metadata={AGENT: agent.name},
    )


def input_of(context: Context, model: str) -> list[TResponseInputItem]:
    """Return the items of a context, as `to_openai_responses` writes them."""
    if not context.messages:
        return []
    return cast("list[TResponseInputItem]", to_openai_responses(context, model=model).body["input"])


def agent_of(context: Context, first: Agent[Any]) -> Agent[Any]:
    """Return the agent that the conversation was handed over to: the one of the newest own answer, else `first`."""
    own = (own_message(envelope) for envelope in reversed(context.path))
    named = (
        message.metadata.get(AGENT) for message in own if isinstance(message, AssistantMessage) and message.metadata
    )
    name = next((name for name in named if isinstance(name, str)), first.name)
    return next((agent for agent in _reachable(first) if agent.name == name), first)


def _reachable(first: Agent[Any]) -> Iterable[Agent[Any]]:
    known, waiting = {first.name}, [first]
    while waiting:
        agent = waiting.pop()
        yield agent
        for handoff in agent.handoffs:
            # A `Handoff` refers to its agent weakly, in an attribute that the SDK's own graph reads too.
            reference = None if isinstance(handoff, Agent) else getattr(handoff, "_agent_ref", None)
            target = cast("Agent[Any] | None", handoff if reference is None else reference())
            if isinstance(target, Agent) and target.name not in known:
                known.add(target.name)
                waiting.append(target)


def outputs(items: Iterable[TResponseInputItem]) -> dict[str, object]:
    """Return the outputs of tool calls among items: call id → output."""
    found: dict[str, object] = {}
    for item in cast("Sequence[dict[str, object]]", [*items]):
        call_id = item.get("call_id")
        if isinstance(call_id, str) and str(item.get("type")).endswith("_output"):
            found[call_id] = item.get("output")
    return found
