"""Models behind OpenAI's two APIs, through its own SDK: the extra `openai`.

The SDK tries a request again by itself (twice, unless `max_retries` says otherwise) where it failed before any answer
began: nothing was shown by then, and nothing is doubled. All these have the same key.
"""

import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Unpack, cast

from lanebus.bus.messages.message import AssistantMessage
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.agent.errors import MissingExtra
from lanebus.handlers.agent.models.provider_model import ProviderModel, key_headers
from lanebus.handlers.agent.models.request_form import ModelOptions
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.shared.usage import usage_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ("OpenAIChatModel", "OpenAIResponsesModel")

_UNFINISHED = frozenset({"queued", "in_progress"})

_log = logging.getLogger(__name__)


class OpenAIResponsesModel(ProviderModel):
    """A model behind the Responses API. Nothing connects before the first request.

    What a cut call took can be asked for later, see `settle`, as long as OpenAI keeps its answers: not with
    `store=False`.
    """

    API, provider = "openai-responses", "openai"

    def __init__(self, name: str, *, client: "AsyncOpenAI | None" = None, **options: Unpack[ModelOptions]) -> None:
        """
        Args:
            name: such as "gpt-5".
            client: with the key, address, time-outs and retries that you want; None makes one, which reads
                OPENAI_API_KEY from the environment.
            options: see `ModelOptions`.

        Raises:
            MissingExtra: the SDK is not installed.
        """
        self._client = client or _client()
        self._is_stored = options.get("store") is not False
        super().__init__(name, options)

    async def settle(self, message: AssistantMessage) -> Usage | None:
        """See `Settling.settle`. Source: `GET /v1/responses/{id}`, which tells the usage of an answer that is over."""
        if message.response_id is None or not self._is_stored:
            return None
        try:
            told = await self._client.get(f"/responses/{message.response_id}", cast_to=object)
            response = cast("Json", told) if isinstance(told, dict) else {}
            usage = None if response.get("status") in _UNFINISHED else usage_of(response.get("usage"), None)
        except Exception as error:  # noqa: BLE001  # of the SDK and of its HTTP client; or it tells nonsense
            _log.debug("what response %s took: %s", message.response_id, error)
            return None
        return None if usage is None else self.price(usage)

    def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        return _send(self._client, "/responses", body, key)


class OpenAIChatModel(ProviderModel):
    """A model behind the Chat Completions API, which other providers' servers speak, too: their address is the
    client's `base_url`. Nothing connects before the first request."""

    API, provider = "openai-chat", "openai"

    def __init__(self, name: str, *, client: "AsyncOpenAI | None" = None, **options: Unpack[ModelOptions]) -> None:
        """See `OpenAIResponsesModel`."""
        self._client = client or _client()
        super().__init__(name, options)

    def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        return _send(self._client, "/chat/completions", body, key)


def _client() -> "AsyncOpenAI":
    try:
        from openai import AsyncOpenAI  # noqa: PLC0415  # an extra, and slow to import
    except ModuleNotFoundError:
        raise MissingExtra("openai", "openai") from None
    return AsyncOpenAI()


async def _send(client: "AsyncOpenAI", path: str, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
    from openai import AsyncStream  # noqa: PLC0415  # an extra, and slow to import

    # Not `create`: its parameters are types of one SDK version, and ours is JSON for the API; nor are the events made
    # its types, which would be made JSON again.
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
