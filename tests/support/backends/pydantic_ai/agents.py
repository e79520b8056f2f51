"""Agents of pydantic-ai whose models answer by a script, without a provider."""

from collections.abc import AsyncIterator, Sequence

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from lanebus.pydantic_ai import PydanticAgent

__all__ = ("Answer", "greeter", "returned", "scripted", "told")

Answer = str | dict[str, str]
"""a text, which streams word by word; or the calls of tools: name → arguments as JSON"""


def scripted(*answers: Answer) -> FunctionModel:
    """Return a model that gives these answers, by the number of responses in the history of the request.

    A call's id is `<name>-<number of the response>`. After the last answer it says "done".
    """

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        number = sum(message.kind == "response" for message in messages)
        answer = answers[number] if number < len(answers) else "done"
        if isinstance(answer, str):
            for word in answer.split(" "):
                yield word if word == answer.split(" ")[0] else f" {word}"
            return
        for index, (name, arguments) in enumerate(answer.items()):
            yield {index: DeltaToolCall(name=name, json_args=arguments, tool_call_id=f"{name}-{number}")}

    return FunctionModel(stream_function=stream, model_name="scripted")


def told(messages: Sequence[ModelMessage]) -> list[object]:
    """Return what users said in a history."""
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def returned(messages: Sequence[ModelMessage]) -> dict[str, object]:
    """Return what tools returned in a history, by the ids of their calls."""
    return {
        part.tool_call_id: part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }


greeter = PydanticAgent(Agent(scripted("hello")))
"""an agent to load by its name"""
