"""Models of Anthropic, through its own SDK: the extra `anthropic`.

The SDK tries a request again by itself (twice, unless `max_retries` says otherwise) where it failed before any answer
began: nothing was shown by then, and nothing is doubled. Once it has begun nothing is tried again: what was said is
kept as a failed message.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from bus.messages.usage import Rates
from handlers.agent.errors import MissingExtra
from handlers.agent.model import ModelRequest
from handlers.providers.answer import ModelEvent
from handlers.providers.anthropic import AnthropicAnswer, to_anthropic
from handlers.providers.request import Json, ProviderRequest

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ("AnthropicModel",)

_log = logging.getLogger(__name__)


class AnthropicModel:
    """A model of Anthropic. Nothing connects before the first request."""

    provider = "anthropic"

    def __init__(
        self,
        name: str,
        *,
        client: "AsyncAnthropic | None" = None,
        options: Mapping[str, JsonValue] | None = None,
        rates: Rates | None = None,
    ) -> None:
        """
        Args:
            name: such as "claude-sonnet-4-5".
            client: with the key, address, time-outs and retries that you want; None makes one, which reads
                ANTHROPIC_API_KEY from the environment.
            options: more keys of the request's body, such as `thinking`.
            rates: what a million tokens cost you; None leaves the cost unknown.

        Raises:
            MissingExtra: the SDK is not installed.
        """
        try:
            from anthropic import AsyncAnthropic  # noqa: PLC0415  # an extra, and slow to import
        except ModuleNotFoundError:
            raise MissingExtra("anthropic", "anthropic") from None
        self.name = name
        self._client = client or AsyncAnthropic()
        self._options, self._rates = dict(options or {}), rates

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model.stream`."""
        from anthropic import AsyncStream  # noqa: PLC0415  # an extra, and slow to import
        from anthropic.types import Message, RawMessageStreamEvent  # noqa: PLC0415

        form = self._form(request)
        answer = AnthropicAnswer(self.name, self._rates, form.tool_names)
        try:
            # Not `messages.create`: its parameters are types of one SDK version, and ours is JSON for the API.
            events = await self._client.post(
                "/v1/messages",
                body={**form.body, **self._options},
                cast_to=Message,
                stream=True,
                stream_cls=AsyncStream[RawMessageStreamEvent],
            )
            async with events:
                async for event in events:
                    for told in answer.take(cast("Json", event.to_dict())):
                        yield told
            fault = None if answer.is_complete else "the stream ended before the message did"
        except Exception as error:  # noqa: BLE001  # of the SDK, of its HTTP client, of a malformed stream
            _log.debug("%s failed", self.name, exc_info=True)
            fault = f"{type(error).__name__}: {error}"
        yield answer.message(fault)

    def _form(self, request: ModelRequest) -> ProviderRequest:
        form = to_anthropic(
            request.context,
            model=self.name,
            max_tokens=request.max_tokens,
            tools=request.tools,
            media=request.media,
            stream=True,
        )
        for warning in form.warnings:
            _log.warning("session %s: %s", request.context.session, warning)
        return form
