"""The adapters of Anthropic, Gemini and OpenAI, each through its SDK, and what they share: all but sending the request.

An adapter sends a body and yields the events of the stream as plain JSON. Once an answer has begun, nothing is retried
here: the text so far becomes a failed message, and the loop decides from the log.

The adapters inherit from one class because they differ only in how they send the body.

The SDKs of Anthropic and OpenAI retry a request that failed before its answer began (`max_retries`, 2 by default).
Nothing was shown by then, so nothing is duplicated, and all these requests have the same idempotency key. Gemini's SDK
retries nothing unless its client is configured to; neither it nor the API has idempotency keys.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, TypeVar, Unpack, cast

import anyio
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError, MissingExtra, SetupError, require_text
from lanebus.bus.messages import AssistantMessage, Rates, Usage
from lanebus.bus.text import describe_error, logged
from lanebus.handlers.agent.bounds import ModelBounds
from lanebus.handlers.agent.errors import MissingKey, OptionUnknown
from lanebus.handlers.agent.models.model import (
    ModelFailure,
    ModelRequest,
    UsageEstimate,
    failure_of_code,
    failure_of_error,
    with_failure,
)
from lanebus.handlers.providers import (
    PROVIDERS,
    Answer,
    Begun,
    FormOptions,
    Json,
    ModelEvent,
    Provider,
    ProviderRequest,
    ToolChoice,
    are_prices_there,
    copied,
    list_price,
    listed_window,
    priced,
    usage_of,
)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from google.genai import Client
    from openai import AsyncOpenAI


# Form a model's requests from its options, and convert the options to and from the JSON in the log. Pure.

_FORM = tuple(FormOptions.__annotations__)
_PLAIN = frozenset(_FORM) - {"tool_choice"} | {"max_output"}
"""options whose values are JSON"""


class ModelOptions(FormOptions, total=False):
    """The keyword arguments of every adapter, in addition to those of `FormOptions`."""

    options: Mapping[str, JsonValue]
    """more fields of the request's body, such as `temperature` or `thinking`. An object is merged with the object that
    the adapter writes for the same field. The fields are recorded in the log, so they must not contain secrets"""
    rates: Rates | None
    """US dollars for a million tokens; by default from the price lists, if these are installed and contain the model"""
    context_window: int | None
    """maximum number of tokens of a request and its answer together; by default from the price lists"""
    max_output: int | None
    """maximum number of tokens of an answer that the model supports; a larger `max_tokens` is reduced to this number"""


def form_request(api: Provider, model: str, request: ModelRequest, options: ModelOptions) -> ProviderRequest:
    """Return the request as the model's adapter sends it.

    Raises:
        MessageError: the API cannot express a part of the context, and the options are strict.
        ToolNotOffered: the options require a tool that the request does not have.
    """
    most = options.get("max_output")
    form_options: FormOptions = {name: options[name] for name in _FORM if name in options}  # type: ignore[assignment,literal-required]  # same keys
    form = api.to_request(
        request.context,
        **form_options,
        model=model,
        max_tokens=request.max_tokens if most is None else min(request.max_tokens, most),
        tools=request.tools,
        media=request.media,
        stream=True,
    )
    _join(form.body, options.get("options", {}))
    return form


def written_options(options: ModelOptions) -> Json:
    """Return the options that are part of a request, as JSON."""
    values = cast("Mapping[str, JsonValue]", options)
    written: Json = {name: values[name] for name in sorted(_PLAIN & values.keys()) if values[name] is not None}
    choice = options.get("tool_choice")
    if choice is not None:
        written["tool_choice"] = {"mode": choice.mode, "name": choice.name}
    if more := options.get("options"):
        written["options"] = copied({**more})
    return written


def read_options(written: Mapping[str, JsonValue]) -> ModelOptions:
    """Return the options from the JSON of `written_options`. Unknown options, written by newer versions, are
    ignored."""
    options: dict[str, object] = {name: written[name] for name in _PLAIN & written.keys()}
    match written.get("tool_choice"):
        case {"mode": "auto" | "required" | "none" as mode}:
            options["tool_choice"] = ToolChoice(mode)
        case {"mode": "named", "name": str() as name} if name:
            options["tool_choice"] = ToolChoice("named", name)
        case _:
            pass
    if isinstance(more := written.get("options"), dict):
        options["options"] = more
    return cast("ModelOptions", options)


def _join(body: Json, more: Mapping[str, JsonValue]) -> None:
    for name, value in more.items():
        existing = body.get(name)
        if isinstance(existing, dict) and isinstance(value, dict):
            _join(existing, value)
        else:
            body[name] = copied(value)


_CUT = "the stream ended before the message did"
_KEY_LENGTH = 255

_log = logging.getLogger(__name__)


class ProviderModel(ABC):
    """A model of one API: forms requests, reads and prices answers, and classifies failures."""

    API: ClassVar[str]
    """name of the model's API, a key of `PROVIDERS`"""
    provider: str
    """the provider's name in the log"""

    def __init__(self, name: str, options: ModelOptions) -> None:
        """
        Args:
            name: the model's name at the provider.
            options: see `ModelOptions`.

        Raises:
            OptionUnknown: an option is not one of `ModelOptions`.
        """
        require_text("name", name, is_filled=True)
        for option in options:
            if option not in ModelOptions.__annotations__:  # Python does not check `Unpack`
                raise OptionUnknown(name, option, tuple(ModelOptions.__annotations__), of="model")
        self.name = name
        self._api, self._options = PROVIDERS[self.API], options
        self._rates = options.get("rates")
        # Load the price lists now and not during an answer: the first load takes a tenth of a second.
        self._has_lists = are_prices_there()

    @property
    def api(self) -> str:
        """See `Optioned.api`."""
        return self.API

    @property
    def request_options(self) -> Mapping[str, JsonValue]:
        """See `Optioned.request_options`."""
        return written_options(self._options)

    @property
    def context_window(self) -> int | None:
        """See `Model.context_window`."""
        window = self._options.get("context_window")
        if window is not None or not self._has_lists:
            return window
        return listed_window(provider=self.provider, model=self.name)

    def price(self, usage: Usage) -> Usage:
        """See `Pricing.price`."""
        if usage.cost is not None or self._rates is not None or not self._has_lists:
            return usage if usage.cost is not None else priced(usage, self._rates)
        cost = list_price(usage, provider=self.provider, model=self.name)
        return usage if cost is None else usage.model_copy(update={"cost": cost})

    @abstractmethod
    def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        """Send the body and yield the events of the answer. Closing or cancelling the generator releases the
        connection.

        Args:
            body: the request.
            key: see `ModelRequest.key`.
        """

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        try:
            form = self._form(request)
        except (MessageError, SetupError) as error:  # refused in strict mode, or a required tool is unknown
            failed = self._api.answer(self.name).message(describe_error(error))
            yield with_failure(failed, ModelFailure())
            return
        answer, estimate = self._api.answer(self.name, self._rates, form.tool_names), UsageEstimate(request)
        fault, failure = None, None
        try:
            async with aclosing(self._send(form.body, request.key)) as events:
                async for event in events:
                    parsed = answer.take(_object(event))
                    if not estimate.has_begun:
                        parsed.insert(0, Begun(answer.response_id))
                    for each in parsed:
                        estimate.add(each)
                        yield self.price(each) if isinstance(each, Usage) else each
            if not answer.is_complete:
                fault, failure = _CUT, ModelFailure(is_transient=True)
        except Exception as error:  # noqa: BLE001  # of the SDK, of its HTTP client, of a malformed stream
            _log.debug("%s failed", self.name, exc_info=logged(error))
            fault, failure = describe_error(error), failure_of_error(error)
        yield self._whole(answer, estimate, fault, failure)

    def _whole(
        self, answer: Answer, estimate: UsageEstimate, fault: str | None, failure: ModelFailure | None
    ) -> AssistantMessage:
        """Return the message to record."""
        is_cut = fault is not None
        if answer.is_complete:  # the answer is whole; only the rest of the stream failed
            fault = None
        message = answer.message(fault)
        # A provider may end an answer with an error and without usage. If the answer had any text, it cost something.
        is_given_up = message.stop_reason == "error" and estimate.output_tokens > 0
        usage = estimate.usage() if not answer.is_counted and (is_cut or is_given_up) else message.usage
        if usage is not None:
            message = message.model_copy(update={"usage": self.price(usage)})
        if message.stop_reason != "error":
            return message
        if fault is None or failure is None:
            failure = failure_of_code(answer.error_code, message.error_message or "")
        return with_failure(message, failure)

    def _form(self, request: ModelRequest) -> ProviderRequest:
        form = form_request(self._api, self.name, request, self._options)
        for warning in form.warnings:
            _log.warning("session %s: %s", request.context.session, warning)
        return form


def key_headers(key: str | None) -> dict[str, str]:
    """Return the header with a call's idempotency key. The SDKs accept a key as an option but do not send the key."""
    if key is None:
        return {}
    if len(key) > _KEY_LENGTH or not (key.isascii() and key.isprintable()):
        key = sha256(key.encode(errors="surrogatepass")).hexdigest()
    return {"Idempotency-Key": key}


def _object(event: object) -> Json:
    """Return an event as a JSON object. Raise DecodeError if it is none: SDKs do not check the events they receive."""
    if not isinstance(event, dict):
        raise DecodeError("", "an event of a stream is a JSON object")
    return cast("Json", event)


# Models of Anthropic, through its SDK: the extra `anthropic`.


class AnthropicModel(ProviderModel):
    """A model of Anthropic. It connects at the first request."""

    API, provider = "anthropic", "anthropic"

    def __init__(self, name: str, *, client: "AsyncAnthropic | None" = None, **options: Unpack[ModelOptions]) -> None:
        """
        Args:
            name: such as "claude-sonnet-4-5".
            client: your own client, with its key, address, time-outs and retries. None makes one that reads
                ANTHROPIC_API_KEY from the environment.
            options: see `ModelOptions`.

        Raises:
            MissingExtra: the SDK is not installed.
            MissingKey: `client` is None, and the environment has no key.
        """
        try:
            from anthropic import AsyncAnthropic  # noqa: PLC0415  # an extra, and slow to import
        except ModuleNotFoundError:
            raise MissingExtra("anthropic", "anthropic") from None
        self._client = client or AsyncAnthropic()
        if client is None and not (self._client.api_key or self._client.auth_token or self._client.credentials):
            raise MissingKey("anthropic", "ANTHROPIC_API_KEY")
        super().__init__(name, options)

    async def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        from anthropic import AsyncStream  # noqa: PLC0415  # an extra, and slow to import

        # Not `messages.create`: its parameters and events are types of one SDK version, and would have to be converted
        # from and to JSON.
        events = await self._client.post(
            "/v1/messages",
            body=body,
            cast_to=object,
            options={"headers": key_headers(key)},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        async with events:
            async for event in events:
                yield cast("Json", event)


# Models of Google's Gemini API, through its SDK: the extra `gemini`.


_ADDED = {"sdk_http_response", "automatic_function_calling_history", "parsed"}
"""fields that the SDK adds to a response"""


class GeminiModel(ProviderModel):
    """A model of the Gemini API. It connects at the first request."""

    API, provider = "gemini", "google"

    def __init__(
        self,
        name: str,
        *,
        client: "Client | None" = None,
        bounds: ModelBounds | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        """
        Args:
            name: such as "gemini-2.5-pro".
            client: your own client, with its key, address, time-outs and retries. None makes one that reads
                GEMINI_API_KEY from the environment.
            bounds: how much of an answer is read ahead; None means the defaults.
            options: see `ModelOptions`.

        Raises:
            MissingExtra: the SDK is not installed.
            MissingKey: `client` is None, and the environment has no key.
        """
        try:
            from google.genai import Client  # noqa: PLC0415  # an extra, and slow to import
        except ModuleNotFoundError:
            raise MissingExtra("google-genai", "gemini") from None
        try:
            self._client = client or Client()
        except ValueError:
            raise MissingKey("google", "GEMINI_API_KEY") from None
        self._bounds = bounds or ModelBounds()
        super().__init__(name, options)

    async def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        from google.genai import types  # noqa: PLC0415  # an extra, and slow to import

        del key
        config = types.GenerateContentConfig(
            # The body replaces the `contents` argument below. The SDK would convert the body's values if they were
            # arguments.
            http_options=types.HttpOptions(extra_body={**body}),
            # By default the SDK would call tools and continue long answers itself, and the log would contain neither
            # the tool calls nor the continuations.
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            automatic_continuation=False,
        )
        chunks = await self._client.aio.models.generate_content_stream(model=self.name, contents="…", config=config)
        # Closing only the SDK's iterator would leave its connection open.
        async with aclosing(read_ahead(chunks, self._bounds.read_ahead)) as responses:
            async for response in responses:
                yield cast("Json", response.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=_ADDED))


T = TypeVar("T")


async def read_ahead(items: AsyncIterable[T], limit: int) -> AsyncGenerator[T, None]:
    """Yield the items, which a separate task reads ahead.

    Closing or cancelling the generator cancels this task, and waits until `items` is closed. The cancellation is raised
    inside `items`, so generators nested in it, and their connection, are closed at once. Closing only `items` would
    leave these to the garbage collector.

    Args:
        limit: maximum number of items in the buffer. One more item is read and waits for room in the buffer.
    """
    send, receive = anyio.create_memory_object_stream[T](limit)

    async def read() -> None:
        with send:
            async for item in items:
                try:
                    await send.send(item)
                except (asyncio.CancelledError, anyio.BrokenResourceError):
                    # The cancellation hit between two items. Cancel again while waiting for the next item, to close the
                    # source.
                    if (task := asyncio.current_task()) is not None:
                        task.cancel()

    task = asyncio.create_task(read())
    try:
        with receive:
            async for item in receive:
                yield item
        await task
    finally:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # retrieved, else asyncio logs it


# Models of OpenAI's two APIs, through its SDK: the extra `openai`.


_UNFINISHED = frozenset({"queued", "in_progress"})


class OpenAIResponsesModel(ProviderModel):
    """A model of the Responses API. It connects at the first request.

    The usage of a cut call can be requested later, see `settle`, unless the option `store` is False.
    """

    API, provider = "openai-responses", "openai"

    def __init__(self, name: str, *, client: "AsyncOpenAI | None" = None, **options: Unpack[ModelOptions]) -> None:
        """
        Args:
            name: such as "gpt-5".
            client: your own client, with its key, address, time-outs and retries. None makes one that reads
                OPENAI_API_KEY from the environment.
            options: see `ModelOptions`.

        Raises:
            MissingExtra: the SDK is not installed.
            MissingKey: `client` is None, and the environment has no key.
        """
        self._client = client or _client()
        self._is_stored = options.get("store") is not False
        super().__init__(name, options)

    async def settle(self, message: AssistantMessage) -> Usage | None:
        """See `Settling.settle`. Source: `GET /v1/responses/{id}`, which returns the usage of a finished answer."""
        if message.response_id is None or not self._is_stored:
            return None
        try:
            body = await self._client.get(f"/responses/{message.response_id}", cast_to=object)
            response = cast("Json", body) if isinstance(body, dict) else {}
            usage = None if response.get("status") in _UNFINISHED else usage_of(response.get("usage"), None)
        except Exception as error:  # noqa: BLE001  # of the SDK, its HTTP client, or a malformed body
            _log.debug("the usage of response %s is not available: %s", message.response_id, describe_error(error))
            return None
        return None if usage is None else self.price(usage)

    def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        return _send(self._client, "/responses", body, key)


class OpenAIChatModel(ProviderModel):
    """A model of the Chat Completions API. It connects at the first request.

    For another provider with this API, pass a client with the provider's `base_url`.
    """

    API, provider = "openai-chat", "openai"

    def __init__(self, name: str, *, client: "AsyncOpenAI | None" = None, **options: Unpack[ModelOptions]) -> None:
        """See `OpenAIResponsesModel`."""
        self._client = client or _client()
        super().__init__(name, options)

    def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        return _send(self._client, "/chat/completions", body, key)


def _client() -> "AsyncOpenAI":
    try:
        from openai import AsyncOpenAI, OpenAIError  # noqa: PLC0415  # an extra, and slow to import
    except ModuleNotFoundError:
        raise MissingExtra("openai", "openai") from None
    try:
        return AsyncOpenAI()
    except OpenAIError:
        raise MissingKey("openai", "OPENAI_API_KEY") from None


async def _send(client: "AsyncOpenAI", path: str, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
    from openai import AsyncStream  # noqa: PLC0415  # an extra, and slow to import

    # Not `create`: its parameters and events are types of one SDK version, which would have to be converted from and to
    # JSON.
    events = await client.post(
        path,
        body=body,
        cast_to=object,
        options={"headers": key_headers(key)},
        stream=True,
        stream_cls=AsyncStream[object],
    )
    async with events:
        async for event in events:
            yield cast("Json", event)
