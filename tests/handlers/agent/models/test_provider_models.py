"""The promises of every model adapter, with the real SDKs and a local server of their APIs."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from decimal import Decimal
from typing import Unpack

import anyio
import pytest

from lanebus.agent import Begun, Model, ModelEvent, ModelFailure, ModelRequest, Piece, ToolSpec, failure_of
from lanebus.bus.messages import AssistantMessage, AudioBlock, MediaRef, Rates, TextBlock, ThinkingBlock, Usage
from lanebus.handlers.agent.loop import model_stream
from lanebus.handlers.agent.models.model import PartialResponse
from lanebus.handlers.agent.models.provider_model import ModelOptions, ProviderModel
from lanebus.handlers.providers import ToolChoice
from lanebus.messages import ToolCallBlock, UserMessage
from tests.support.agent.agents import SECONDS, Pause
from tests.support.log.entries import context_of
from tests.support.models.model_api import Cut, Json, ModelApi, Step, serve_api
from tests.support.models.model_dialects import DIALECTS, Call, Dialect, Said, Text
from tests.support.providers.forms import FORMS
from tests.support.servers.real import background

TOOL = ToolSpec("add", "Add numbers.", {"type": "object", "properties": {"first_number": {"type": "number"}}})
ASKED = ModelRequest(context_of(UserMessage.text("hi")), (TOOL,), max_tokens=77)
REPORTED = Usage(input=100, output=7, cache_read=40, total_tokens=147)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each API in turn."""
    return DIALECTS[str(request.param)]


@asynccontextmanager
async def asking(
    dialect: Dialect,
    *scripts: list[Step],
    chunk_bytes: int | None = None,
    retries: int = 0,
    **more: Unpack[ModelOptions],
) -> AsyncGenerator[tuple[ModelApi, ProviderModel], None]:
    """A server with these answers, and a model that calls it."""
    ended = [[*script, *([dialect.end] if dialect.end else [])] for script in scripts]
    async with (
        serve_api(dialect.frame, *ended, chunk_bytes=chunk_bytes) as (api, url),
        dialect.make(url, retries=retries, **more) as model,
    ):
        with anyio.fail_after(SECONDS):
            yield api, model


async def run(
    dialect: Dialect,
    *scripts: list[Step],
    asked: ModelRequest = ASKED,
    chunk_bytes: int | None = None,
    retries: int = 0,
    **more: Unpack[ModelOptions],
) -> tuple[AssistantMessage, list[ModelEvent], ModelApi]:
    """Return the answer, all events before it, and the server."""
    async with asking(dialect, *scripts, chunk_bytes=chunk_bytes, retries=retries, **more) as (api, model):
        *told, last = [event async for event in model.stream(asked)]
    assert isinstance(last, AssistantMessage)
    return last, told, api


def said(message: AssistantMessage) -> list[str]:
    """A short form of the blocks."""
    found: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                found.append(text)
            case ThinkingBlock(text=text):
                found.append(f"({text})")
            case ToolCallBlock(name=name, arguments=arguments):
                found.append(f"{name} {arguments}")
            case _:
                found.append(block.type)
    return found


def pieces(told: list[ModelEvent], kind: str) -> str:
    return "".join(event.text for event in told if isinstance(event, Piece) and event.kind == kind)


def bare(usage: Usage | None) -> Usage | None:
    return usage and usage.model_copy(update={"raw": None})


def failed(message: AssistantMessage) -> ModelFailure:
    failure = failure_of(message)
    assert failure is not None
    return failure


# --- what is answered -------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("chunk_bytes", [None, 1, 3, 64])
async def test_an_answer_does_not_depend_on_the_chunks_of_its_bytes(dialect: Dialect, chunk_bytes: int | None) -> None:
    text = Text(("Grüße", " 👋 –", " ok\u2028", "."))
    message, told, _ = await run(dialect, [*dialect.stream(Said((text,)))], chunk_bytes=chunk_bytes)
    assert said(message) == ["Grüße 👋 – ok\u2028."]
    assert pieces(told, "text") == "Grüße 👋 – ok\u2028."
    assert (message.stop_reason, failure_of(message)) == ("stop", None)


async def test_several_calls_are_joined_from_their_fragments(dialect: Dialect) -> None:
    calls = (Call("c_1", "add", ('{"first_', 'number": 1, "b": [2', "]}")), Call("c_2", "add", ("{}",)))
    message, told, _ = await run(dialect, [*dialect.stream(Said((Text(("Well.",)), *calls), "tools"))])
    assert message.stop_reason == "toolUse"
    assert said(message) == ["Well.", "add {'first_number': 1, 'b': [2]}", "add {}"]
    assert [call.id for call in message.tool_calls()] == ["c_1", "c_2"]
    assert [event.tool_name for event in told if isinstance(event, Piece) and event.tool_name] == ["add", "add"]


async def test_an_answer_that_is_filtered_or_too_long_says_so(dialect: Dialect) -> None:
    filtered, _, _ = await run(dialect, [*dialect.stream(Said(stop="filter"))])
    long, _, _ = await run(dialect, [*dialect.stream(Said(stop="length"))])
    assert (filtered.stop_reason, long.stop_reason) == ("guardRail", "length")
    assert filtered.raw_stop_reason
    assert long.raw_stop_reason


async def test_begin_thinking_text_and_usage_are_as_reported(dialect: Dialect) -> None:
    answer = Said((Text(("Let me ", "see."), "thinking"), Text(("Yes.",))))
    message, told, _ = await run(dialect, [*dialect.stream(answer)])
    assert said(message) == ["(Let me see.)", "Yes."]
    assert (pieces(told, "thinking"), pieces(told, "text")) == ("Let me see.", "Yes.")
    assert message.response_id
    assert [event for event in told if isinstance(event, Begun)] == [told[0]] == [Begun(message.response_id)]
    assert bare(message.usage) == REPORTED, "with cached tokens apart"
    assert message.usage is not None
    assert message.usage.raw
    assert message.usage.cost is None, "without rates and lists"
    assert [bare(event) for event in told if isinstance(event, Usage)][-1] == REPORTED


# --- what is asked ----------------------------------------------------------------------------------------------------


async def test_the_request_is_valid_for_its_api(dialect: Dialect) -> None:
    _, _, api = await run(dialect, [*dialect.stream(Said())])
    assert [request.target for request in api.asked] == [dialect.target]
    FORMS[dialect.form].require_legal(api.requests[0])
    assert "first_number" in str(api.requests[0]), "a schema goes as it is"
    assert "77" in str(api.requests[0])
    _, _, api = await run(dialect, [*dialect.stream(Said())], max_output=5)
    assert "77" not in str(api.requests[0]), "limited to `max_output`"


MORE: dict[str, ModelOptions] = {
    "anthropic": {"options": {"metadata": {"user_id": "ada"}}},
    "gemini": {"options": {"generationConfig": {"stopSequences": ["ada"]}}},
    "openai_chat": {"options": {"user": "ada", "stream_options": {"include_obfuscation": False}}},
    "openai_responses": {"options": {"user": "ada"}},
}


async def test_options_are_merged_into_the_body(dialect: Dialect) -> None:
    message, _, api = await run(dialect, [*dialect.stream(Said())], **MORE[dialect.form])
    FORMS[dialect.form].require_legal(api.requests[0])
    assert "ada" in str(api.requests[0])
    assert "77" in str(api.requests[0]), "what is beside it stays"
    if dialect.form == "openai_chat":
        assert api.requests[0]["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert bare(message.usage) == REPORTED


async def test_a_strict_model_fails_for_content_that_its_api_cannot_express(dialect: Dialect) -> None:
    sound = AudioBlock(media=MediaRef(kind="url", url="https://example.org/a.xyz", mime_type="audio/xyz"))
    asked = ModelRequest(context_of(UserMessage(content=(sound, TextBlock(text="hi")))))
    message, told, api = await run(dialect, [*dialect.stream(Said())], asked=asked, strict=True)
    if dialect.form == "gemini":  # which takes it
        assert message.stop_reason == "stop"
        return
    assert (message.stop_reason, told, api.asked) == ("error", [], [])
    assert (message.error_message or "").startswith("ContentRefused: ")
    assert failed(message) == ModelFailure()


async def test_a_choice_of_an_unknown_tool_is_a_failed_message(dialect: Dialect) -> None:
    asked = ModelRequest(ASKED.context, (ToolSpec("add", "Adds.", {"type": "object"}),))
    choice = ToolChoice("named", "subtract")
    message, told, api = await run(dialect, [*dialect.stream(Said())], asked=asked, tool_choice=choice)
    assert (message.stop_reason, told, api.asked) == ("error", [], [])
    assert (message.error_message or "").startswith("ToolNotOffered: the tool choice names 'subtract'")


async def test_the_key_goes_into_a_header_and_never_into_the_body(dialect: Dialect) -> None:
    asked = ModelRequest(ASKED.context, key="s1.main.1#0")
    _, _, api = await run(dialect, [*dialect.stream(Said())], asked=asked)
    takes_keys = dialect.form != "gemini"
    assert api.asked[0].headers.get("idempotency-key") == ("s1.main.1#0" if takes_keys else None)
    assert "s1.main.1" not in str(api.requests[0])
    _, _, keyless = await run(dialect, [*dialect.stream(Said())])
    assert "idempotency-key" not in keyless.asked[0].headers


@pytest.mark.parametrize("key", ["ü", "a\r\nb: c", "x" * 300])
async def test_a_key_that_fits_no_header_is_sent_as_its_hash(dialect: Dialect, key: str) -> None:
    message, _, api = await run(dialect, [*dialect.stream(Said())], asked=ModelRequest(ASKED.context, key=key))
    assert message.stop_reason == "stop"
    if dialect.form != "gemini":
        assert len(api.asked[0].headers["idempotency-key"]) == 64


async def test_retries_of_the_sdk_have_the_same_key(dialect: Dialect) -> None:
    status, code = dialect.overloaded
    refused: list[Step] = [dialect.status(status, code, "Overloaded", retry_after_ms="1")]
    asked = ModelRequest(ASKED.context, key="k")
    message, _, api = await run(dialect, refused, [*dialect.stream(Said())], asked=asked, retries=1)
    assert said(message) == ["Hello"]
    keys = [request.headers.get("idempotency-key") for request in api.asked]
    assert keys == ([None, None] if dialect.form == "gemini" else ["k", "k"])
    assert api.requests[0] == api.requests[1]


# --- what fails -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "text", "is_transient", "is_overflow"),
    [
        (400, "bad_request", "No such field.", False, False),
        (400, "bad_request", "Input is too long: reduce the length of the messages.", False, True),
        (401, "authentication", "Who are you?", False, False),
        (429, "rate_limit", "Too many requests: 99999 tokens per minute.", True, False),
        (429, "insufficient_quota", "Pay first.", False, False),
        (500, "internal", "Oh no.", True, False),
        (503, "unavailable", "Come back.", True, False),
        (529, "overloaded_error", "Overloaded.", True, False),
    ],
)
async def test_a_refused_request_is_a_failed_message_without_cost(
    dialect: Dialect, status: int, code: str, text: str, *, is_transient: bool, is_overflow: bool
) -> None:
    message, told, _ = await run(dialect, [dialect.status(status, code, text)])
    assert (message.stop_reason, message.content, message.usage, told) == ("error", (), None, [])
    assert text in (message.error_message or "")
    failure = failed(message)
    assert (failure.status, failure.code) == (status, code)
    assert (failure.is_transient, failure.is_overflow) == (is_transient, is_overflow)


async def test_retry_after_is_recorded_in_seconds(dialect: Dialect) -> None:
    async def told(**headers: str) -> float | None:
        message, _, _ = await run(dialect, [dialect.status(429, "slow_down", "Slow down.", **headers)])
        return failed(message).retry_after

    assert await told(retry_after="3") == 3.0
    assert await told(retry_after_ms="250", retry_after="9") == 0.25
    assert await told(retry_after="x") is None
    assert await told(retry_after="Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert (await told(retry_after="Wed, 21 Oct 2099 07:28:00 GMT") or 0) > 10**9


async def test_a_refused_connection_is_transient(dialect: Dialect) -> None:
    async with dialect.make("http://127.0.0.1:1") as model:
        (message,) = [event async for event in model.stream(ASKED)]
    assert isinstance(message, AssistantMessage)
    assert (message.stop_reason, message.usage) == ("error", None)
    assert failed(message) == ModelFailure(is_transient=True)


def until(dialect: Dialect, word: str) -> list[Step]:
    """A stream up to the event with this text."""
    events = dialect.stream(Said((Text(("Hel", "lo ")), Text(("wide ", "world")))))
    last = next(at for at, event in enumerate(events) if word in str(event))
    return [*events[: last + 1]]


ENDINGS = ("cut", "over", "garbage", "no event")


@pytest.mark.parametrize("ending", [[Cut()], [], [b"data: {garbage\n\n"], [b"data: [1]\n\n"]], ids=ENDINGS)
async def test_a_broken_stream_keeps_its_text_and_estimates_its_usage(dialect: Dialect, ending: list[Step]) -> None:
    if ending and isinstance(ending[0], bytes):
        ending = [b"event: message_delta\n" + ending[0]]
    message, _, _ = await run(dialect, [*until(dialect, "wide"), *ending])
    assert (message.stop_reason, said(message)) == (
        "error",
        ["Hello wide "] if len(said(message)) == 1 else ["Hello ", "wide "],
    )
    assert message.error_message
    assert message.usage is not None
    assert message.usage.estimated
    assert message.usage.output >= len("Hello wide ") // 4
    assert message.usage.input > 0
    assert failed(message).is_transient


async def test_an_error_in_the_stream_is_recorded_with_its_code(dialect: Dialect) -> None:
    message, _, _ = await run(dialect, [*until(dialect, "wide"), dialect.fault])
    assert message.stop_reason == "error"
    assert "Overloaded" in (message.error_message or "")
    assert message.usage is not None
    assert message.usage.estimated
    failure = failed(message)
    assert (failure.status, failure.code, failure.is_transient) == (*dialect.overloaded, True)


async def test_an_error_after_the_whole_answer_is_ignored(dialect: Dialect) -> None:
    message, _, _ = await run(dialect, [*dialect.stream(Said()), Cut()])
    assert (message.stop_reason, said(message)) == ("stop", ["Hello"])
    assert bare(message.usage) == REPORTED


# --- what is cut ------------------------------------------------------------------------------------------------------

LONG = Said((Text(("Let me ", "think."), "thinking"), Text(("Hel", "lo")), Call("c_1", "add", ("{", "}"))), "tools")


def paused(dialect: Dialect, at: int) -> tuple[list[Step], Pause]:
    """The long answer, which stops after this many events until it is released."""
    pause, events = Pause(), dialect.stream(LONG)
    return [*events[:at], pause, *events[at:]], pause


def heard_of(draft: PartialResponse) -> str:
    return "".join(said(draft.cut("aborted", "stopped")))


def counts(dialect: Dialect) -> range:
    return range(len(dialect.stream(LONG)))


PLACES = [(name, at) for name, each in DIALECTS.items() for at in counts(each)]


@pytest.mark.full
@pytest.mark.parametrize(("name", "at"), PLACES)
@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_call_that_is_ended_anywhere_releases_its_connection_at_once(name: str, at: int, how: str) -> None:
    dialect = DIALECTS[name]
    script, pause = paused(dialect, at)
    async with asking(dialect, script) as (api, model):
        draft, heard = PartialResponse(model, ASKED), anyio.Event()
        events = model.stream(ASKED)

        async def listen() -> None:
            async for event in events:
                draft.add(event)
                if how == "closed" and len(api.asked) and pause.reached.is_set():
                    break
            heard.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await pause.reached.wait()
            if how == "cancelled" or not heard.is_set():
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        await events.aclose()
        await api.gone.wait()
    assert "(Let me think.)Hello".startswith(heard_of(draft).removesuffix(")"))
    cut = draft.cut("aborted", "stopped")
    assert draft.is_empty == (cut.usage is None)
    assert cut.usage is None or cut.usage.estimated


async def test_a_generator_that_is_closed_at_an_event_releases_its_connection(dialect: Dialect) -> None:
    held = len(dialect.stream(LONG)) - 1
    _, told, _ = await run(dialect, [*dialect.stream(LONG)[:held]])
    assert len(told) > 5
    for stop in range(1, len(told) + 1):
        script, _ = paused(dialect, held)
        async with asking(dialect, script) as (api, model):
            async with aclosing(model.stream(ASKED)) as events:
                heard = [await anext(events) for _ in range(stop)]
            await api.gone.wait()
        assert heard == told[:stop]


TOKENS = 1_000
"""most tokens of a drained stream"""


async def drain(model: Model, draft: PartialResponse, *, seconds: float = SECONDS, tokens: int = TOKENS) -> bool:
    """Read the first piece and drain the rest. Return whether the model has ended its answer."""
    first = anyio.Event()

    def hear(event: ModelEvent) -> None:
        if isinstance(event, Piece):
            stream.mute(tokens)
            first.set()

    async with model_stream(model.stream(ASKED), draft, hear) as stream:
        await first.wait()
        return await stream.drain(seconds=seconds, tokens=tokens)


async def test_draining_a_cut_answer_yields_its_usage(dialect: Dialect) -> None:
    script, pause = paused(dialect, len(dialect.stream(LONG)) // 2)
    pause.over.set()
    async with asking(dialect, script) as (_, model):
        draft = PartialResponse(model, ASKED)
        assert await drain(model, draft)
    message = draft.cut("aborted", "stopped")
    assert said(message) == ["(Let me )"], "nothing of what nobody saw"
    assert draft.whole is None
    assert bare(message.usage) == REPORTED
    assert message.response_id


async def test_a_drain_that_takes_too_long_ends_with_an_estimate(dialect: Dialect) -> None:
    script, _ = paused(dialect, len(dialect.stream(LONG)) // 2)
    async with asking(dialect, script) as (api, model):
        draft = PartialResponse(model, ASKED)
        assert not await drain(model, draft, seconds=0.05)
        await api.gone.wait()
    usage = draft.cut("aborted", "stopped").usage
    assert usage is not None
    assert usage.estimated
    assert usage.output > 0
    assert usage.input > 0


async def test_a_drain_ends_at_its_limit_of_tokens(dialect: Dialect) -> None:
    words = Said((Text([f"{number} wordswordswords " for number in range(50)]),))
    events = dialect.stream(words)
    script: list[Step] = [*events[:-2], Pause(), *events[-2:]]
    async with asking(dialect, script) as (api, model):
        draft = PartialResponse(model, ASKED)
        assert not await drain(model, draft, tokens=20)
        await api.gone.wait()
    usage = draft.cut("aborted", "stopped").usage
    assert usage is not None
    assert 20 < usage.output < 60, "tokens after the cut are counted too"
    assert len(draft.cut("aborted", "stopped").text_content()) < 40


async def test_an_answer_is_drained_after_its_waiter_was_cancelled(dialect: Dialect) -> None:
    script, pause = paused(dialect, len(dialect.stream(LONG)) // 2)
    async with asking(dialect, script) as (_, model):
        draft, shown = PartialResponse(model, ASKED), list[ModelEvent]()
        async with model_stream(model.stream(ASKED), draft, shown.append) as speech:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(speech.wait)
                    await pause.reached.wait()
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            before = heard_of(draft)
            pause.over.set()
            assert await speech.drain(seconds=SECONDS, tokens=TOKENS)
    assert heard_of(draft) == before
    assert not any(isinstance(event, AssistantMessage) for event in shown)
    assert bare(draft.cut("aborted", "stopped").usage) == REPORTED


async def test_waiting_yields_the_whole_answer_and_a_stopping_worker_does_not_drain(dialect: Dialect) -> None:
    async with asking(dialect, [*dialect.stream(Said())]) as (_, model):
        draft, shown = PartialResponse(model, ASKED), list[ModelEvent]()
        async with model_stream(model.stream(ASKED), draft, shown.append) as speech:
            await speech.wait()
    assert draft.whole is shown[-1]
    script, pause = paused(dialect, len(dialect.stream(LONG)) // 2)
    async with asking(dialect, script) as (api, model):
        cut = PartialResponse(model, ASKED)

        async def listen() -> None:
            async with model_stream(model.stream(ASKED), cut, _nothing) as speech:
                await speech.wait()

        async with background() as tasks:
            tasks.start_soon(listen)
            await pause.reached.wait()
        await api.gone.wait()
    assert cut.whole is None


# --- what only one of them does ---------------------------------------------------------------------------------------

CHAT, RESPONSES, GEMINI = DIALECTS["openai-chat"], DIALECTS["openai-responses"], DIALECTS["gemini"]


async def test_a_chat_that_breaks_before_its_usage_is_complete_with_an_estimate_or_unknown() -> None:
    message, _, _ = await run(CHAT, [*CHAT.stream(Said())[:-1], Cut()])
    assert (message.stop_reason, said(message)) == ("stop", ["Hello"])
    assert message.usage is not None
    assert (message.usage.output, message.usage.estimated) == (2, True)
    message, _, _ = await run(CHAT, [*CHAT.stream(Said())[:-1]])
    assert (message.stop_reason, message.usage) == ("stop", None)


async def test_usage_in_each_chunk_is_not_the_usage_of_the_whole_answer() -> None:
    usage = CHAT.stream(Said())[-1]["usage"]
    script = [{**event, "usage": usage} for event in until(CHAT, "wide") if isinstance(event, dict)]
    message, _, _ = await run(CHAT, [*script, Cut()])
    assert message.usage is not None
    assert (message.usage.input, message.usage.output, message.usage.estimated) == (100, 7, True)


async def test_a_failed_response_has_its_reason_and_usage() -> None:
    whole = RESPONSES.stream(Said())[-1]["response"]
    assert isinstance(whole, dict)
    error: Json = {"code": "rate_limit_exceeded", "message": "Slow down."}
    ended: Json = {"type": "response.failed", "response": {**whole, "status": "failed", "error": error}}
    message, _, _ = await run(RESPONSES, [*until(RESPONSES, "lo"), ended])
    assert (message.stop_reason, message.error_message) == ("error", "Slow down.")
    assert failed(message) == ModelFailure(status=429, code="rate_limit_exceeded", is_transient=True)
    assert bare(message.usage) == REPORTED
    message, _, _ = await run(RESPONSES, [RESPONSES.stream(Said())[0], RESPONSES.fault])
    assert (message.stop_reason, message.usage) == ("error", None), "before its first piece"


async def test_a_malformed_call_of_gemini_is_transient() -> None:
    *events, last = GEMINI.stream(Said())
    wrong = json.loads(json.dumps(last).replace("STOP", "MALFORMED_FUNCTION_CALL"))
    message, _, _ = await run(GEMINI, [*events, wrong])
    assert message.stop_reason == "error"
    assert failed(message) == ModelFailure(code="MALFORMED_FUNCTION_CALL", is_transient=True)


async def test_geminis_sdk_calls_no_tools_and_continues_no_answers() -> None:
    called: list[Json] = GEMINI.stream(Said((Call("c_1", "add", ("{}",)),)))
    more = json.loads(json.dumps(GEMINI.stream(Said())[-1]).replace("STOP", "CONTINUATION"))
    more["candidates"][0]["continuationToken"] = "dG9rZW4="
    for script in (called, [*GEMINI.stream(Said())[:-1], more]):
        _, _, api = await run(GEMINI, [*script])
        assert len(api.asked) == 1


# --- what it costs ----------------------------------------------------------------------------------------------------

RATES = Rates(input=Decimal(1_000_000), output=Decimal(2_000_000), cache_read=Decimal(500_000))


async def test_the_callers_rates_price_reported_and_estimated_usage(dialect: Dialect) -> None:
    message, told, _ = await run(dialect, [*dialect.stream(Said())], rates=RATES)
    assert message.usage is not None
    assert message.usage.cost is not None
    assert (message.usage.cost.total, message.usage.cost.source) == (Decimal(100 + 14 + 20), "caller")
    assert all(event.cost for event in told if isinstance(event, Usage))
    broken, _, _ = await run(dialect, [*until(dialect, "wide"), Cut()], rates=RATES)
    guess = broken.usage
    assert guess is not None
    assert guess.cost == guess.cost_at(RATES, source="caller")


@pytest.mark.parametrize(
    ("api", "name", "window"),
    [
        ("anthropic", "claude-sonnet-4-5", 200_000),
        ("openai-responses", "gpt-5", 400_000),
        ("openai-chat", "gpt-5", 400_000),
        ("gemini", "gemini-2.5-pro", None),
    ],
)
async def test_price_and_window_of_a_listed_model_come_from_the_lists(api: str, name: str, window: int | None) -> None:
    dialect = DIALECTS[api]
    async with asking(dialect, [*dialect.stream(Said())]) as (_, model):
        model.name = name
        *_, message = [event async for event in model.stream(ModelRequest(ASKED.context))]
        assert model.context_window == window
    assert isinstance(message, AssistantMessage)
    assert message.usage is not None
    assert message.usage.cost is not None
    assert (message.usage.cost.source or "").startswith("genai-prices/")
    assert message.usage.cost.total > 0


async def test_the_callers_window_overrides_the_lists(dialect: Dialect) -> None:
    async with dialect.make("http://127.0.0.1:1", context_window=1234) as model:
        assert model.context_window == 1234
    async with dialect.make("http://127.0.0.1:1") as model:
        assert model.context_window is None


def _nothing(_: ModelEvent) -> None:
    pass
