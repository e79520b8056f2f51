"""Models of Anthropic, through its own SDK: the extra `anthropic`.

The SDK tries a request again by itself (twice, unless `max_retries` says otherwise) where it failed before any answer
began: nothing was shown by then, and nothing is doubled. All these have the same key.
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Unpack, cast

from lanebus.handlers.agent.errors import MissingExtra
from lanebus.handlers.agent.models.provider_model import ProviderModel, key_headers
from lanebus.handlers.agent.models.request_form import ModelOptions
from lanebus.handlers.providers.common.request import Json

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ("AnthropicModel",)


class AnthropicModel(ProviderModel):
    """A model of Anthropic. Nothing connects before the first request."""

    API, provider = "anthropic", "anthropic"

    def __init__(self, name: str, *, client: "AsyncAnthropic | None" = None, **options: Unpack[ModelOptions]) -> None:
        """
        Args:
            name: such as "claude-sonnet-4-5".
            client: with the key, address, time-outs and retries that you want; None makes one, which reads
                ANTHROPIC_API_KEY from the environment.
            options: see `ModelOptions`.

        Raises:
            MissingExtra: the SDK is not installed.
        """
        try:
            from anthropic import AsyncAnthropic  # noqa: PLC0415  # an extra, and slow to import
        except ModuleNotFoundError:
            raise MissingExtra("anthropic", "anthropic") from None
        self._client = client or AsyncAnthropic()
        super().__init__(name, options)

    async def _send(self, body: Json, key: str | None) -> AsyncGenerator[Json, None]:
        from anthropic import AsyncStream  # noqa: PLC0415  # an extra, and slow to import

        # Not `messages.create`: its parameters are types of one SDK version, and ours is JSON for the API; nor are the
        # events made its types, which would be made JSON again.
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
