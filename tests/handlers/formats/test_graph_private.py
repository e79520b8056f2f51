"""No provider gets what the graph framework stores beside the content."""

import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from lanebus.codecs import GRAPH_V1, GRAPH_V2
from lanebus.handlers.formats import Codec
from lanebus.providers import ProviderRequest, to_anthropic, to_gemini, to_openai_chat, to_openai_responses
from tests.support.log.entries import context_of

__all__ = ()

CANARY = "canary-19be"

BESIDE: dict[str, JsonValue] = {
    "message_id": CANARY,
    "metadata": {"secret": CANARY, "origin": CANARY},
    "raw": {"secret": CANARY},
    "reasoning": CANARY,
    "parsed_content": {"secret": CANARY},
    "timestamp": 1234567890.125,
    CANARY: CANARY,
}
USAGES: JsonValue = {"completion_tokens": 424242, "prompt_tokens": 424242, "total_tokens": 424242}

HISTORY: list[dict[str, JsonValue]] = [
    {"role": "system", "content": "Be brief.", **BESIDE},
    {"role": "user", "content": [{"type": "text", "text": "hello", "note": CANARY}], **BESIDE},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "hi", "annotations": [{"title": CANARY}]},
            {"type": "tool_call", "id": "c", "name": "read", "args": {}, "note": CANARY},
        ],
        "usages": USAGES,
        **BESIDE,
    },
    {
        "role": "tool",
        "content": [{"type": "tool_result", "call_id": "c", "output": "ok", "note": CANARY}],
        **BESIDE,
    },
]


@pytest.mark.parametrize("codec", [GRAPH_V1, GRAPH_V2], ids=["002", "003"])
@pytest.mark.parametrize("form", [to_anthropic, to_gemini, to_openai_chat, to_openai_responses])
def test_fields_beside_the_content_are_never_sent(codec: Codec, form: Callable[..., ProviderRequest]) -> None:
    messages = [message for value in HISTORY for message in codec.read(value)]
    assert sum(CANARY in message.to_json() for message in messages) == len(HISTORY)
    body = json.dumps(form(context_of(*messages), model="m").body)
    assert "hello" in body
    assert '"ok"' in body
    for private in (CANARY, "424242", "1234567890", "origin"):
        assert private not in body
