"""What the requests of all providers promise alike: any LLM lane makes a legal request, with all of its content."""

import copy
import json
import math
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import cast

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from lanebus.agent import ToolSpec
from lanebus.bus import messages as our
from lanebus.bus.wire import Envelope
from lanebus.context import Context, build_context, evolve
from lanebus.providers import ContentRefused, NoModel, ProviderRequest, RequestOptions, ToolChoice, ToolNotOffered
from tests.support.log.entries import ListedSession, asks, calls, context_of, folded, results, says
from tests.support.messages.lane_logs import CANARY, lane_logs
from tests.support.providers.forms import FORMS
from tests.support.providers.gemini_rules import signature_faults
from tests.support.suite.scale import SCALE, examples, randomness
from tests.support.transcripts.real_session import real_log

Object = dict[str, object]
Step = tuple[str, int]
every_form = pytest.mark.parametrize("name", FORMS)
PNG = our.MediaRef.from_bytes(b"\x89PNG\r\n\x1a\n1234")
PDF = our.MediaRef.from_bytes(b"%PDF-1.7 x", filename="a.pdf")
MP3 = our.MediaRef.from_bytes(b"ID3\x03")
STORED = our.MediaRef(kind="sha256", sha256="0" * 64)
TOOLS = (ToolSpec("read", "Reads.", {"type": "object"}), ToolSpec("fs.read", "Reads, too.", {"type": "object"}))
_options = st.fixed_dictionaries(
    {"model": st.just("m")},
    optional={
        "foreign_thinking": st.sampled_from(["drop", "text"]),
        "store": st.booleans(),
        "merge_developer": st.booleans(),
        "stream": st.booleans(),
        "error_prefix": st.sampled_from(["", "E "]),
        "tools": st.just(TOOLS),
        "cache": st.booleans(),
        "max_tokens": st.just(17),
    },
).map(lambda options: cast("RequestOptions", options))


# --- any log ------------------------------------------------------------------------------------------------------


@pytest.mark.full
@every_form
@examples(300)
@given(entries=lane_logs(), options=_options)
def test_every_context_is_a_legal_request_with_all_of_its_calls_results_and_texts_in_order(
    name: str, entries: list[Envelope], options: RequestOptions
) -> None:
    context = folded(entries)
    request = FORMS[name].to(context, **options)
    FORMS[name].require_legal(request.body)
    assert name != "gemini" or not signature_faults(request.body)
    assert CANARY not in json.dumps([request.body, request.warnings])
    assert "terminate" not in json.dumps(request.body)
    said = _said(name, request)
    assert _steps(said) == _expected_steps(context)
    if name.startswith("openai"):
        named = [block.id for message in context.messages for block in _calls(message)]
        assert [request.call_ids.get(str(one["call"]), one["call"]) for one in said if "call" in one] == named
    # A summary of thinking or of a document may stand between them; what was said may not be missing.
    remaining = iter([text for one in said for text in _texts_of(name, one)])
    for ways in _expected_texts(context, options.get("error_prefix", "[TOOL ERROR] "), name.startswith("openai")):
        assert any(text in ways for text in remaining), ways


@pytest.mark.full
def test_a_context_of_a_real_session_is_a_legal_request_at_every_position_that_is_drawn(seed_data: Path) -> None:
    log = list(real_log(seed_data))
    assert len(log) == 1002
    # A request is made of the whole context, so all positions cost the square of them: 100 CPU seconds.
    share = math.ceil(len(log) * min(SCALE, 1) ** 2)
    drawn = {1, len(log), *randomness("real session").sample(range(1, len(log) + 1), share)}
    context = Context("s")
    checked: dict[str, list[object]] = {name: [] for name in FORMS}
    for position, envelope in enumerate(log, 1):
        context = evolve(context, envelope)
        if position not in drawn:
            continue
        for name, form in FORMS.items():
            body = form.to(context, model="claude-opus-4-5", strict=True).body
            said = cast("list[object]", body[form.said])
            # The shape of a message does not depend on its neighbours: one that was checked as it is need not be again.
            known = checked[name]
            new = [each for index, each in enumerate(said) if index >= len(known) or known[index] != each]
            assert not form.shape_faults({**body, form.said: new}), (name, position)
            assert not form.rule_faults(body), (name, position)
            assert name != "gemini" or not signature_faults(body), position
            checked[name] = said


# --- the body -----------------------------------------------------------------------------------------------------


@every_form
def test_without_a_model_the_context_names_it_and_a_session_that_names_none_has_no_request(name: str) -> None:
    form = FORMS[name]
    request = form.to(context_of(our.ModelChange(provider=form.provider, model="m9"), asks("hi")))
    assert request.body.get("model") == (None if name == "gemini" else "m9")  # Gemini's is in the address
    with pytest.raises(NoModel):
        form.to(context_of(asks("hi")))


@every_form
def test_a_request_begins_with_a_user_also_where_the_context_says_nothing_or_begins_with_the_model(name: str) -> None:
    assert _texts_to(name) == ["..."]
    assert _texts_to(name, asks("a"), says(""), asks("b")) == ["a", "b"]
    assert _texts_to(name, says("hi")) == (["hi"] if name.startswith("openai") else ["...", "hi"])


@every_form
def test_summaries_are_sent(name: str) -> None:
    texts = _texts_to(name, asks("a"), our.Compaction(summary="S1"), our.BranchSummary(summary="S2"))
    assert ["S1" in texts[0], "S2" in texts[1]] == [True, True]


@every_form
async def test_extension_messages_are_never_sent(name: str) -> None:
    said = our.ExtensionMessage.of("notification", {"text": CANARY})
    session = ListedSession(asks("a"), said, calls("x"), said, results("x", "1"), said)
    request = FORMS[name].to(await build_context(session), model="m")
    FORMS[name].require_legal(request.body)
    assert CANARY not in json.dumps(request.body)


_CHOICES: dict[str, list[JsonValue]] = {
    "anthropic": [{"type": "auto"}, {"type": "any"}, None, {"type": "tool", "name": "fs_read"}],
    "gemini": [
        {"mode": "AUTO"},
        {"mode": "ANY"},
        {"mode": "NONE"},
        {"mode": "ANY", "allowedFunctionNames": ["fs.read"]},
    ],
    "openai_chat": ["auto", "required", "none", {"type": "function", "function": {"name": "fs_read"}}],
    "openai_responses": ["auto", "required", "none", {"type": "function", "name": "fs_read"}],
}


@every_form
def test_a_tool_choice_is_sent_with_its_tools_alone_and_one_that_is_not_offered_is_refused(name: str) -> None:
    choices = [ToolChoice("auto"), ToolChoice("required"), ToolChoice("none"), ToolChoice("named", "fs.read")]
    for choice, sent in zip(choices, _CHOICES[name], strict=True):
        body = FORMS[name].request(asks("hi"), tools=TOOLS, tool_choice=choice).body
        wanted = {"toolConfig": {"functionCallingConfig": sent}} if name == "gemini" else {"tool_choice": sent}
        assert {key: body.get(key) for key in wanted} == wanted
        if choice.mode != "named":
            assert not FORMS[name].request(asks("hi"), tool_choice=choice).body.keys() & wanted
    absent = ToolChoice("named", "fs_read")
    with pytest.raises(ToolNotOffered, match=r"'fs_read', which is not offered: choose one of 'read', 'fs.read'") as no:
        FORMS[name].request(asks("a"), tools=TOOLS, tool_choice=absent)
    assert (no.value.name, no.value.offered) == ("fs_read", ("read", "fs.read"))


# --- calls and results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in FORMS if name != "gemini"])  # which has ids of its own
def test_illegal_ids_are_made_legal_and_stay_apart_at_calls_and_results(name: str) -> None:
    ids = ["a.b", "a:b", "a_b", "", *("x" * length for length in (41, 42, 65, 66)), "ok"]
    request = FORMS[name].request(asks("a"), calls(*ids), *(results(call, call) for call in reversed(ids)))
    said = _said(name, request)
    called = [str(one["call"]) for one in said if "call" in one]
    assert [request.call_ids.get(call, call) for call in called] == ids
    assert {"a_b", "ok"} <= {*called}
    assert [(one["result"], one["texts"]) for one in said if "result" in one] == [
        (wire, [call] if call or name != "anthropic" else []) for wire, call in zip(called, ids, strict=True)
    ]
    again = _said(name, FORMS[name].request(asks("a"), calls("x"), results("x", "1"), calls("x"), results("x", "2")))
    first, second = (one["call"] for one in again if "call" in one)
    assert first != second
    assert [(one["result"], one["texts"]) for one in again if "result" in one] == [(first, ["1"]), (second, ["2"])]


def test_an_id_that_every_answer_uses_again_costs_no_more_each_time() -> None:
    def cost(turns: int) -> int:
        """Calls of functions to make a request."""
        said = [message for _ in range(turns) for message in (calls("call-0"), results("call-0", "1"))]
        context, events = context_of(asks("a"), *said), count(1)
        sys.setprofile(lambda _frame, _event, _arg: next(events))
        try:
            FORMS["openai_chat"].to(context, model="m")
        finally:
            sys.setprofile(None)
        return next(events)

    assert cost(1000) < 6 * cost(250)  # eleven times as much where each begins its search anew


@every_form
def test_results_follow_their_calls_in_order_before_anything_else_and_a_missing_one_is_an_error(name: str) -> None:
    said = (asks("a"), calls("x", "y", "z"), asks("and?"), results("y", "2"), results("x", "1"), asks("now"))
    request = FORMS[name].request(*said)
    told = _said(name, request)
    assert [next(iter(one)) for one in told] == ["text", *["call"] * 3, *["result"] * 3, "text", "text"]
    mark = "" if name == "anthropic" else "[TOOL ERROR] "  # whose results have a flag
    texts = [["1"], ["2"], [f"{mark}No result provided"]]
    assert name == "gemini" or [one["texts"] for one in told if "result" in one] == texts
    for text in ("1", "2", f"{mark}No result provided"):
        assert json.dumps(text) in json.dumps(request.body)
    assert name != "anthropic" or '"is_error": true' in json.dumps(request.body)


@every_form
@pytest.mark.parametrize(
    ("fields", "sent", "is_warned"),
    [
        ({"arguments": {"a": 1}}, {"a": 1}, False),
        ({"arguments": None}, {}, False),
        ({"arguments": [1]}, {"value": [1]}, True),
        ({"arguments": "a"}, {"value": "a"}, True),
        ({"arguments": {"a": 1}, "arguments_raw": '{"a":2}'}, {"a": 1}, False),
        ({"arguments_raw": ""}, {}, False),
        ({"arguments_raw": '{"a":'}, '{"a":', True),
        ({"arguments_raw": "[1]"}, "[1]", True),
    ],
)
def test_arguments_are_sent_as_an_object(name: str, fields: Object, sent: JsonValue, is_warned: bool) -> None:
    call = our.ToolCallBlock.model_validate({"id": "x", "name": "t", **fields})
    request = FORMS[name].to(context_of(asks("a"), says(call)))
    (found,) = (one["arguments"] for one in _said(name, request) if "call" in one)
    if not isinstance(sent, str):
        assert found == sent
    elif name.startswith("openai"):  # its arguments are text, so what did not parse goes back as it came
        assert found == sent
        assert request.warnings == ("messages.1: arguments of tool call 'x' are no JSON object, sent as they came",)
        with pytest.raises(ContentRefused):
            FORMS[name].request(asks("a"), says(call), strict=True)
    else:
        assert found == {"value": sent} if sent == '{"a":' else isinstance(found, dict)
    assert any("arguments" in warning for warning in request.warnings) is is_warned


@every_form
def test_illegal_names_of_tools_are_made_legal_with_a_warning(name: str) -> None:
    illegal = ("7 up", "n" * 129)
    blocks = [our.ToolCallBlock(id=str(at), name=tool) for at, tool in enumerate(illegal)]
    request = FORMS[name].request(asks("a"), says(*blocks), results("0", "1"), results("1", "2"))
    sent = [str(one["name"]) for one in _said(name, request) if "call" in one]
    assert [request.tool_names[wire] for wire in sent] == [*illegal]
    assert request.warnings == tuple(
        f"messages.1: tool name {tool!r} sent as {wire!r}" for tool, wire in zip(illegal, sent, strict=True)
    )


# --- thinking -----------------------------------------------------------------------------------------------------

_ITEM = json.dumps({"id": "rs_1", "encrypted_content": "c2ln"})
_SIGNED = {"openai_responses": (our.ThinkingBlock(text="hm", signature=_ITEM), our.RedactedThinkingBlock(data=_ITEM))}
_SIGNED_ELSEWHERE = (our.ThinkingBlock(text="hm", signature="c2ln"), our.RedactedThinkingBlock(data="c2ln"))


@every_form
def test_thinking_of_another_model_or_provider_is_left_out_or_sent_as_text(name: str) -> None:
    content, form = (*_SIGNED.get(name, _SIGNED_ELSEWHERE), "b"), FORMS[name]
    others = [
        form.says(*content, model="another"),
        form.says(*content, provider="another"),
        form.says(our.ThinkingBlock(text="hm", signature=None if name != "gemini" else "{}"), "b", model="another"),
        says(*content).model_copy(update={"provider": None, "model": None}),
    ]
    for other in others:
        dropped = form.request(asks("a"), other)
        told = form.request(asks("a"), other, foreign_thinking="text")
        assert [text for one in _said(name, dropped) for text in _texts_of(name, one)] == ["a", "b"]
        assert "[Reasoning] hm" in json.dumps(told.body)
        assert "c2ln" not in json.dumps([dropped.body, told.body])


@every_form
def test_thinking_that_cannot_go_back_is_one_warning(name: str) -> None:
    thought = our.AssistantMessage(
        content=(our.ThinkingBlock(text="hm"), our.TextBlock(text="b")), provider="p", model="m"
    )
    redacted = our.AssistantMessage(content=(our.RedactedThinkingBlock(data="xx"), our.TextBlock(text="c")))
    request = FORMS[name].to(context_of(asks("a"), thought, asks("d"), redacted), model="m", strict=True)
    assert [warning.partition(": it ")[0] for warning in request.warnings] == [
        "messages.1 and 1 more: thinking left out"
    ]
    as_text = FORMS[name].to(context_of(asks("a"), thought), model="m", foreign_thinking="text")
    assert "[Reasoning] hm" in json.dumps(as_text.body)
    assert as_text.warnings == ()


# --- what the API cannot represent --------------------------------------------------------------------------------

_DOCX = our.MediaRef.from_bytes(b"\0", mime_type="x/docx")
_UNSENDABLE: list[tuple[our.Block, str, str]] = [
    (our.DataBlock(mime_type="x/y"), "data", "all"),
    (our.AnnotationBlock(), "annotation", "all"),
    (our.ErrorBlock(message="boom"), "error 'boom'", "all"),
    (our.UnknownBlock(raw={"type": "new"}), "unknown", "all"),
    (our.UnknownBlock(raw={"type": "server_tool_use"}), "unknown", "anthropic"),
    (our.UnknownBlock(raw={"executableCode": {}}), "unknown", "gemini"),
    (our.ThinkingBlock(text="hm", signature="sig"), "thinking", "anthropic gemini openai_chat"),
    (our.ToolCallBlock(id="x", name="t"), "toolCall", "all"),
    (our.ImageBlock(media=our.MediaRef.from_bytes(b"II*\0", mime_type="image/tiff")), "image", "all"),
    (our.ImageBlock(media=our.MediaRef.from_bytes(b"GIF89a....")), "image", "gemini"),
    (our.ImageBlock(media=PDF), "image", "gemini"),
    (our.ImageBlock(media=our.MediaRef.from_url("s3://bucket/a.png")), "image", "all"),
    (our.ImageBlock(media=our.MediaRef.from_url("https://example.com/a")), "image", "gemini"),
    (our.ImageBlock(media=our.MediaRef(kind="file_id", file_id="file-1")), "image", "gemini openai_chat"),
    (our.ImageBlock(media=STORED), "image", "all"),
    (our.AudioBlock(media=MP3), "audio", "anthropic openai_responses"),
    (our.AudioBlock(media=PNG), "audio", "gemini"),
    (our.AudioBlock(media=our.MediaRef.from_bytes(b"fLaC\0\0\0\x22")), "audio", "openai_chat"),
    (our.AudioBlock(media=our.MediaRef.from_url("https://example.com/a.mp3")), "audio", "openai_chat"),
    (
        our.VideoBlock(media=our.MediaRef.from_url("https://example.com/a.mp4")),
        "video",
        "anthropic openai_chat openai_responses",
    ),
    (our.VideoBlock(media=our.MediaRef.from_url("https://example.com/a.png")), "video", "gemini"),
    (our.DocumentBlock(media=_DOCX), "document", "anthropic gemini openai_chat"),
    (our.DocumentBlock(media=our.MediaRef.from_bytes(b"\0")), "document", "openai_responses"),
    (
        our.DocumentBlock(media=our.MediaRef.from_bytes(b"\xff", mime_type="text/plain")),
        "document",
        "anthropic openai_chat",
    ),
    (
        our.DocumentBlock(media=our.MediaRef.from_url("https://example.com/a.x", mime_type="x/docx")),
        "document",
        "anthropic",
    ),
    (our.DocumentBlock(media=our.MediaRef.from_url("https://example.com/a.pdf")), "document", "openai_chat"),
    (our.DocumentBlock(media=our.MediaRef.from_url("gs://bucket/a.pdf")), "document", "openai_responses"),
    (our.DocumentBlock(media=STORED), "document", "openai_chat openai_responses"),
]


@every_form
def test_what_the_api_cannot_represent_is_left_out_with_a_warning_and_refused_if_strict(name: str) -> None:
    form = FORMS[name]
    for block, named, where in _UNSENDABLE:
        if where != "all" and name not in where.split():
            continue
        messages = (asks("a"), says("b"), our.UserMessage.of("c", block))
        request = form.request(*messages)
        assert _texts_to(name, *messages)[2:] == ["c"], block
        (warning,) = request.warnings
        assert re.match(rf"messages\.2: {re.escape(named)} left out: .", warning), block
        if not isinstance(block, our.ThinkingBlock):
            with pytest.raises(ContentRefused) as refused:
                form.request(*messages, strict=True)
            assert (refused.value.provider, refused.value.losses) == (form.provider, request.warnings)


@every_form
def test_an_image_of_a_model_or_in_instructions_is_left_out_with_a_warning_and_refused_if_strict(name: str) -> None:
    form, content = FORMS[name], (our.TextBlock(text="b"), our.ImageBlock(media=PNG))
    for message in (
        our.AssistantMessage(content=content),
        our.SystemMessage(content=content),
        our.DeveloperMessage(content=content),
    ):
        request = form.request(asks("a"), message)
        assert '"b"' in json.dumps(request.body)
        (warning,) = request.warnings
        assert re.match(r"(messages\.1|system\.0.*): image left out", warning)
        with pytest.raises(ContentRefused):
            form.request(asks("a"), message, strict=True)


@every_form
def test_details_of_blocks_that_are_left_out_are_warnings(name: str) -> None:
    ref = our.AnnotationRef(url="https://example.com")
    shown = our.UserMessage.of(
        our.TextBlock(text="a", annotations=(ref,)), our.ImageBlock(media=PNG, alt_text="x", bbox=(0, 0, 1, 1))
    )
    context = context_of(shown, our.UserMessage.of(our.TextBlock(text="b", annotations=())))
    told = [loss for loss in FORMS[name].to(context, model="m").warnings if "no request has a field" in loss]
    assert [loss.partition(" left out")[0] for loss in told] == [
        "messages.0: annotations of a text, alt text of an image, bounding box of an image"
    ]
    with pytest.raises(ContentRefused):
        FORMS[name].to(context, model="m", strict=True)


@every_form
def test_strict_changes_nothing_of_what_the_api_can_represent_and_stored_media_are_sent_as_resolved(name: str) -> None:
    messages = (our.UserMessage.of("a", our.ImageBlock(media=PNG)), says(our.ThinkingBlock(text="hm"), "b"))
    assert FORMS[name].request(*messages, strict=True) == FORMS[name].request(*messages)
    stored = our.UserMessage.of("a", our.ImageBlock(media=STORED))
    resolved = FORMS[name].request(stored, says("b"), media={"0" * 64: PNG}, strict=True)
    assert resolved == FORMS[name].request(our.UserMessage.of("a", our.ImageBlock(media=PNG)), says("b"))


# --- what is sent -------------------------------------------------------------------------------------------------


def _everything(name: str) -> list[our.LlmMessage]:
    media: list[our.Block] = [our.ImageBlock(media=PNG), our.DocumentBlock(media=PDF)]
    if name in {"gemini", "openai_chat"}:
        media.append(our.AudioBlock(media=MP3))
    searched = our.UnknownBlock(
        raw={"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    )
    call = our.ToolCallBlock(id="a.b", name="read", arguments={"ü": 1.5, "snake_case": None, "deep": {"b": [1]}})
    shown = our.ToolResultMessage(tool_call_id="a.b", content=(our.TextBlock(text="1"), our.ImageBlock(media=PNG)))
    return [
        our.SystemMessage.text("be kind"),
        our.DeveloperMessage.text("be short"),
        our.UserMessage.of("look", *media),
        FORMS[name].says(
            *_SIGNED.get(name, _SIGNED_ELSEWHERE), "so", *([searched] if name == "anthropic" else []), call
        ),
        shown,
        calls("x"),
        our.ToolResultMessage(tool_call_id="x", structured={"c": {"d": [2]}}),
        asks("and?"),
    ]


@every_form
def test_a_request_may_be_changed_without_changing_the_next_or_what_it_was_made_of(name: str) -> None:
    tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": []})
    context = context_of(*_everything(name))
    before = copy.deepcopy(FORMS[name].to(context, model=FORMS[name].model, tools=[tool]).body)
    _spoil(FORMS[name].to(context, model=FORMS[name].model, tools=[tool]).body)
    assert FORMS[name].to(context, model=FORMS[name].model, tools=[tool]).body == before


def _spoil(value: object) -> None:
    """Empties every object and list in it."""
    children: list[object] = []
    match value:
        case dict():
            found = cast("Object", value)
            children = [*found.values()]
            found.clear()
        case list():
            items = cast("list[object]", value)
            children = [*items]
            items.clear()
        case _:
            pass
    for child in children:
        _spoil(child)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [name for name in FORMS if name != "gemini"])  # whose SDK takes the body apart
async def test_the_sdk_sends_the_body_as_it_is(name: str, stream: bool) -> None:
    import anthropic
    import openai

    sent: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(500)

    tools = [ToolSpec("read", "Reads.", {"type": "object", "properties": {"ü": {"type": "number"}}})]
    options: RequestOptions = {"stream": stream, "tools": tools, "tool_choice": ToolChoice("auto"), "max_tokens": 16}
    if name != "anthropic":
        options["store"] = False
    body = FORMS[name].request(*_everything(name), **options).body
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as transport:
        theirs = anthropic.AsyncAnthropic(api_key="none", http_client=transport, max_retries=0)
        ours = openai.AsyncOpenAI(api_key="none", http_client=transport, max_retries=0)
        # The body is plain JSON; that it fits the SDK's types is checked above.
        creates: dict[str, Callable[..., Awaitable[object]]] = {
            "anthropic": theirs.messages.create,
            "openai_chat": ours.chat.completions.create,
            "openai_responses": ours.responses.create,
        }
        with pytest.raises((anthropic.InternalServerError, openai.InternalServerError)):
            await creates[name](**body)
    assert json.loads(sent[0]) == body


# --- what was said ------------------------------------------------------------------------------------------------


def _texts_to(name: str, *messages: our.LlmMessage | our.Compaction | our.BranchSummary) -> list[str]:
    """The texts of a request of these messages."""
    return [text for one in _said(name, FORMS[name].request(*messages)) for text in _texts_of(name, one)]


def _texts_of(name: str, one: Object) -> list[str]:
    """Texts of a text or, where they stand on the wire as they are, of a result."""
    return [str(one["text"])] if "text" in one else cast("list[str]", one.get("texts", []))


def _said(name: str, request: ProviderRequest) -> list[Object]:
    """Texts, calls and results on a wire, in their order, as {"text"}, {"call"} and {"result"}."""
    messages = cast("list[Object]", request.body[FORMS[name].said])
    return [one for index, message in enumerate(messages) for one in _said_in(name, index, message)]


def _said_in(name: str, index: int, message: Object) -> Iterator[Object]:
    match name:
        case "anthropic":
            yield from _said_to_anthropic(_list(message["content"]))
        case "gemini":
            yield from _said_to_gemini(index, _list(message["parts"]))
        case "openai_chat":
            yield from _said_to_chat(message)
        case _:
            yield from _said_to_responses(message)


def _said_to_anthropic(blocks: list[Object]) -> Iterator[Object]:
    for block in blocks:
        match block["type"]:
            case "text":
                yield {"text": block["text"]}
            case "tool_use":
                yield {"call": block["id"], "name": block["name"], "arguments": block["input"]}
            case "tool_result":
                yield {"result": block["tool_use_id"], "texts": _texts(block.get("content"))}
            case _:
                pass


def _said_to_gemini(content: int, parts: list[Object]) -> Iterator[Object]:
    # Their order alone says which response is whose: both count from 0 in their content.
    called = answered = 0
    for part in parts:
        if "functionCall" in part:
            call = cast("Object", part["functionCall"])
            yield {"call": f"{content}.{called}", "name": call["name"], "arguments": call["args"]}
            called += 1
        if "functionResponse" in part:
            yield {"result": f"{content - 1}.{answered}"}
            answered += 1
        if "text" in part and not part.get("thought"):
            yield {"text": part["text"]}


def _said_to_chat(message: Object) -> Iterator[Object]:
    if message["role"] in {"system", "developer"}:
        return
    if message["role"] == "tool":
        yield {"result": message["tool_call_id"], "texts": _texts(message.get("content"))}
        return
    for text in _texts(message.get("content")):
        yield {"text": text}
    for call in _list(message.get("tool_calls") or []):
        yield _called(call["id"], cast("Object", call["function"]))


def _said_to_responses(item: Object) -> Iterator[Object]:
    match item.get("type", "message"):
        case "function_call":
            yield _called(item["call_id"], item)
        case "function_call_output":
            yield {"result": item["call_id"], "texts": _texts(item["output"])}
        case "message" if item["role"] in {"user", "assistant"}:
            for text in _texts(item["content"]):
                yield {"text": text}
        case _:
            pass


def _called(call: object, function: Object) -> Object:
    arguments: JsonValue
    try:
        arguments = json.loads(str(function["arguments"]))
    except ValueError:
        arguments = None
    sent = arguments if isinstance(arguments, dict) else function["arguments"]
    return {"call": call, "name": function["name"], "arguments": sent}


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part["text"]) for part in _list(content or []) if "text" in part]


def _list(value: object) -> list[Object]:
    return cast("list[Object]", value)


def _calls(message: our.LlmMessage) -> list[our.ToolCallBlock]:
    is_answer = isinstance(message, our.AssistantMessage)
    return [block for block in message.content if isinstance(block, our.ToolCallBlock)] if is_answer else []


def _steps(said: list[Object]) -> list[Step]:
    """The calls and results in order; each result as the number of its call."""
    steps: list[Step] = []
    numbers: dict[object, int] = {}
    for one in said:
        if "call" in one:
            assert one["call"] not in numbers
            numbers[one["call"]] = len(numbers)
            steps.append(("call", numbers[one["call"]]))
        elif "result" in one:
            steps.append(("result", numbers[one["result"]]))
    return steps


def _expected_steps(context: Context) -> list[Step]:
    steps: list[Step] = []
    called = answered = 0
    for message in context.messages:
        if isinstance(message, our.ToolResultMessage):
            steps.append(("result", answered))
            answered += 1
        count = len(_calls(message))
        steps += [("call", called + number) for number in range(count)]
        called += count
    return steps


def _expected_texts(context: Context, prefix: str, is_exact: bool) -> Iterator[set[str]]:
    """What was said, in its order, each in the ways in which it may be sent.

    Args:
        context: the context.
        prefix: what stands before a failed result.
        is_exact: whether results and white space are sent as they are.
    """
    for message in context.messages:
        for block in message.content:
            if not isinstance(block, our.TextBlock) or not (block.text if is_exact else block.text.strip()):
                continue
            if isinstance(message, our.UserMessage | our.AssistantMessage):
                yield {block.text} if is_exact else {block.text, block.text.rstrip()}
            elif isinstance(message, our.ToolResultMessage) and is_exact:
                yield {block.text, f"{prefix}{block.text}"}
