"""Models of Google's Gemini API, through its SDK: the extra `gemini`.

The SDK retries nothing unless its client is configured to. Neither the SDK nor the API has idempotency keys.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar, Unpack, cast

import anyio

from lanebus.bus.errors import MissingExtra
from lanebus.handlers.agent.bounds import ModelBounds
from lanebus.handlers.agent.errors import MissingKey
from lanebus.handlers.agent.models.provider_model import ModelOptions, ProviderModel
from lanebus.handlers.providers import Json

if TYPE_CHECKING:
    from google.genai import Client


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
