"""Models of OpenAI's two APIs, through its SDK: the extra `openai`.

The SDK itself retries a request that failed before its answer began (`max_retries`, 2 by default). Nothing was shown by
then, so nothing is duplicated, and all these requests have the same idempotency key.
"""

import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Unpack, cast

from lanebus.bus.errors import MissingExtra
from lanebus.bus.messages import AssistantMessage, Usage
from lanebus.bus.text import describe_error
from lanebus.handlers.agent.errors import MissingKey
from lanebus.handlers.agent.models.provider_model import ModelOptions, ProviderModel, key_headers
from lanebus.handlers.providers import Json, usage_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_UNFINISHED = frozenset({"queued", "in_progress"})

_log = logging.getLogger(__name__)


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
