"""All provider forms: how each request is made, and which checker decides whether its API accepts it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, Unpack

from lanebus.bus.messages import AssistantMessage, Block, Publishable
from lanebus.context import Context
from lanebus.providers import (
    ProviderRequest,
    RequestOptions,
    to_anthropic,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
)
from tests.support.log.entries import context_of, says
from tests.support.providers import anthropic_rules, gemini_rules, openai_chat_rules, openai_responses_rules

__all__ = ("FORMS", "Form")


class _To(Protocol):
    def __call__(self, context: Context, **options: Unpack[RequestOptions]) -> ProviderRequest: ...


class Form(NamedTuple):
    """The requests of one provider."""

    provider: str
    """the provider's name in the log"""
    model: str
    """one of its models"""
    to: _To
    shape_faults: Callable[[object], list[str]]
    rule_faults: Callable[[object], list[str]]
    said: str
    """the key of the list of messages in the body"""

    def require_legal(self, body: object) -> None:
        """Fail with a list of all faults of the body."""
        faults = self.shape_faults(body) or self.rule_faults(body)
        assert not faults, "\n".join(faults)

    def request(self, *messages: Publishable, **options: Unpack[RequestOptions]) -> ProviderRequest:
        """Return the request of these messages to `model`, which must be legal."""
        options.setdefault("model", self.model)
        request = self.to(context_of(*messages), **options)
        self.require_legal(request.body)
        return request

    def says(self, *content: Block | str, model: str | None = None, provider: str | None = None) -> AssistantMessage:
        """Return an answer of this provider and its model, unless others are named."""
        return says(*content).model_copy(update={"provider": provider or self.provider, "model": model or self.model})


FORMS = {
    name: Form(provider, model, to, rules.shape_faults, rules.rule_faults, said)
    for name, provider, model, to, rules, said in (
        ("anthropic", "anthropic", "claude-sonnet-5-5", to_anthropic, anthropic_rules, "messages"),
        ("gemini", "google", "gemini-3-pro", to_gemini, gemini_rules, "contents"),
        ("openai_chat", "openai", "gpt-5.2", to_openai_chat, openai_chat_rules, "messages"),
        ("openai_responses", "openai", "gpt-5.2", to_openai_responses, openai_responses_rules, "input"),
    )
}
