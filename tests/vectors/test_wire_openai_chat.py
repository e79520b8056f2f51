"""A message as Chat Completions takes it is what the sample cases say."""

from typing import cast

import pytest
from pydantic import JsonValue

from lanebus.bus.messages import Compaction, LlmMessage, SystemMessage, UserMessage
from lanebus.codecs import GRAPH_V2
from lanebus.context import Context
from lanebus.providers import ProviderRequest, to_openai_chat
from tests.support.log.entries import context_of
from tests.support.providers.openai_chat_rules import require_legal
from tests.support.vectors.cases import Case, Object, cases
from tests.support.vectors.openai_cases import answering, is_merged, read_all, with_data, without_arguments_text

CONTRADICTED = {
    "af.chat.image_file_id": "the API takes a file's id for no image's URL: the image is left out with a warning",
    "af.chat.doc_b64": "the API has no part of that type: a PDF goes as its part for files",
    "af.chat.remote_tool_skipped": "a call that runs elsewhere is the model's own all the same, and goes with a result",
    "af.chat.summary_order": "what a summary says is told by a user, not by the model",
}

Message = dict[str, JsonValue]


@cases("wire_openai_chat", contradicted=CONTRADICTED)
def test_a_chat_request_says_what_the_case_says(case: Case) -> None:
    given, expect = with_data(case)
    match given:
        case {"message": dict(message)}:
            found = [one for one in GRAPH_V2.read(message) if isinstance(one, LlmMessage)]
        case {"messages": list(messages)}:
            found = read_all(messages)
        case {"system": list(), "context_summary": str()}:
            assert _plain(_summarised(given)) == expect["wire"]
            return
        case _:
            pytest.fail("no such case")
    context, calls_are_ours = answering(found)
    wire = _plain(context, merge_developer=is_merged(found, expect))
    _require_equal(wire[1:] if calls_are_ours else [message for message in wire if message["role"] != "tool"], expect)


def _require_equal(wire: list[Message], expect: Object) -> None:
    wanted = cast("JsonValue", expect["wire"])
    match wanted:
        case None:
            assert wire == []
        case list():
            assert wire == wanted
        case {"role": str()}:
            assert wire == [_flat(cast("Message", expect["wire"]))]
        case {"content": content}:
            assert [message["content"] for message in wire] == [content]
        case _:
            pytest.fail("no such case")


def _plain(context: Context, *, merge_developer: bool = False) -> list[Message]:
    """Our messages, as cases can be compared with: calls by their ids in the log, with arguments that are parsed."""
    request = to_openai_chat(context, model="m", merge_developer=merge_developer)
    require_legal(request.body)
    return [_flat(message, request) for message in cast("list[Message]", request.body["messages"])]


def _flat(message: Message, request: ProviderRequest | None = None) -> Message:
    flat = {**message}
    if request and isinstance(call := flat.get("tool_call_id"), str):
        flat["tool_call_id"] = request.call_ids.get(call, call)
    if isinstance(calls := flat.get("tool_calls"), list):
        flat["tool_calls"] = [_call(call) for call in calls if isinstance(call, dict)]
    return flat


def _call(call: Message) -> Message:
    """Id, name and arguments: some cases have these bare, the API wants them in `function`."""
    function = call.get("function")
    fields = function if isinstance(function, dict) else call
    return without_arguments_text({"id": call["id"], "name": fields["name"], "arguments": fields["arguments"]})


def _summarised(given: Message) -> Context:
    system = [SystemMessage.text(str(text)) for text in cast("list[str]", given["system"])]
    said = [*cast("list[list[str]]", given["context"]), *cast("list[list[str]]", given["extra"])]
    users = [UserMessage.text(text) for _, text in said]
    return context_of(*system, Compaction(summary=str(given["context_summary"])), *users)
