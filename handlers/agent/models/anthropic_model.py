"""Models of Anthropic, through its SDK: the extra `anthropic`.

The SDK itself retries a request that failed before its answer began (`max_retries`, 2 by default). Nothing was shown by
then, so nothing is duplicated, and all these requests have the same idempotency key.
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Unpack, cast

from lanebus.bus.errors import MissingExtra
from lanebus.handlers.agent.errors import MissingKey
from lanebus.handlers.agent.models.provider_model import ModelOptions, ProviderModel, key_headers
from lanebus.handlers.providers import Json

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


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
