"""Write requests to Anthropic's Messages API and read its answers."""

from lanebus.handlers.providers.anthropic.answer import AnthropicAnswer, from_anthropic
from lanebus.handlers.providers.anthropic.form import to_anthropic

__all__ = ("AnthropicAnswer", "from_anthropic", "to_anthropic")
